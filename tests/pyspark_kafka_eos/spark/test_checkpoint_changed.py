"""A checkpoint that was restored or edited so that a batch no longer is what was decided: refused, nothing is
skipped.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kafka_core.errors import PipelineConflict
from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.spark.offset_log import kafka_sources, read_offsets
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.test_checkpoint_damage import (
    ReadTopic,
    RunQuery,
    edit,
    forget_the_planned_batch,
    once,
    rows_in,
    value_only,
)
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_checkpoint_restored_from_before_the_last_batch_does_not_skip_what_came_since(
    run_query: RunQuery, read_topic: ReadTopic, topic: MakeTopic, tmp_path: Path
) -> None:
    name, checkpoint, backup = topic(), tmp_path / "checkpoint", tmp_path / "backup"
    options = {"topic": name, "pipeline": f"p-{name}"}
    run_query(value_only, options, checkpoint=str(checkpoint))
    forget_the_planned_batch(checkpoint)
    shutil.copytree(checkpoint, backup)
    run_query(value_only, options, checkpoint=str(checkpoint))
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)

    # Spark plans batch 1 anew, over 25 rows where the decided batch 1 had 10.
    outcome = run_query(value_only, options, rows=25, batches=2, checkpoint=str(checkpoint))

    # Returned as done, batch 1 takes with it the 15 rows that the decided one did not have: they never show.
    assert isinstance(outcome.raised, PipelineConflict), rows_in(read_topic(name))
    assert rows_in(read_topic(name, "read_uncommitted")) == once(20)


def test_offsets_of_a_decided_batch_that_were_edited_are_refused(
    run_query: RunQuery, read_topic: ReadTopic, topic: MakeTopic, tmp_path: Path
) -> None:
    name, checkpoint = topic(), tmp_path / "checkpoint"
    options = {"topic": name, "pipeline": f"p-{name}"}
    run_query(value_only, options, checkpoint=str(checkpoint))
    forget_the_planned_batch(checkpoint)
    shutil.rmtree(checkpoint / "commits")
    path = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    lines = path.read_text().splitlines()
    offset = json.loads(lines[2])
    lines[2] = json.dumps({**offset, "offset": 2 * offset["offset"]})
    edit(path, "\n".join(lines))

    outcome = run_query(value_only, options, batches=2, checkpoint=str(checkpoint))

    # The batch resumes as what was decided, and the next one begins where the edited file says: rows are skipped.
    assert isinstance(outcome.raised, PipelineConflict), rows_in(read_topic(name))
    assert rows_in(read_topic(name, "read_uncommitted")) == once(10)


def test_an_offset_log_without_any_source_is_an_error_and_not_no_offsets(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    # Torn after its metadata: every query has a source, so every file has a line for it.
    (tmp_path / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n')

    with pytest.raises(PipelineConflict):
        read_offsets(spark, str(tmp_path), 0)


def test_a_line_of_offsets_that_is_cut_off_is_an_error_and_not_no_offsets() -> None:
    with pytest.raises(PipelineConflict):
        kafka_sources(('{"orders":{"0":17,"1":',))


# ---- what Spark's log does not tell: which files a number stands for


@dataclass
class Files:
    """A query over files, run to its end at each call."""

    spark: SparkSession
    kafka: AnyKafka
    topic: str
    directory: Path
    way: str
    scope: str

    def put(self, name: str, *values: str) -> None:
        """A new file, whole at once."""
        given = self.directory / "in"
        given.mkdir(exist_ok=True)
        (self.directory / name).write_text("".join(f"{each}\n" for each in values))
        (self.directory / name).rename(given / name)

    def run(self) -> str:
        """What stopped it, "" for nothing."""
        rows = self.spark.readStream.text(str(self.directory / "in"))
        options = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers, "topic": self.topic, "pipeline": f"p-{self.topic}",
            "transaction.scope": self.scope,
        }  # fmt: skip
        checkpoint = str(self.directory / "checkpoint")
        writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
        if self.way == "format":
            writer = writer.format("kafka_eos").options(**options)
        else:
            writer = writer.foreachBatch(ExactlyOnceWriter({**options, "checkpointLocation": checkpoint}))
        try:
            writer.start().awaitTermination(120)
        except StreamingQueryException as error:
            return str(error)
        return ""


@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_other_files_under_the_number_of_a_committed_batch_are_not_taken_for_it(
    spark: SparkSession,
    kafka: AnyKafka,
    read_topic: ReadTopic,
    topic: MakeTopic,
    tmp_path: Path,
    way: str,
    scope: str,
) -> None:
    name = topic(1)
    query = Files(spark, kafka, name, tmp_path, way, scope)
    query.put("0.txt", "0", "1")
    assert query.run() == ""
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    query.put("1.txt", "2", "3")
    assert query.run() == ""
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "older", tmp_path / "checkpoint")
    query.put("2.txt", "4", "5")

    said = query.run()

    assert "has another batch 1: Spark planned it at" in said, rows_in(read_topic(name))
    assert rows_in(read_topic(name)) == once(4)
    # The batch that was committed and not noted is another matter: it is the one that Spark logged.
    shutil.rmtree(tmp_path / "checkpoint")
    again = Files(spark, kafka, topic(1), tmp_path, way, scope)
    assert again.run() == ""
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    assert again.run() == ""
    assert rows_in(read_topic(again.topic)) == once(6)
