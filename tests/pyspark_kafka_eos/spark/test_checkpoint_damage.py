"""A damaged or lost checkpoint: the query stops and says what to do, or replays what is decided; nothing twice, nothing
skipped. Real Spark, real Kafka."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kafka_core.errors import PipelineConflict
from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.spark.offset_log import read_earlier, read_offsets
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.conftest import Outcome
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RunQuery = Callable[..., Outcome]
ReadTopic = Callable[..., list[Message]]


def value_only(source: DataFrame) -> DataFrame:
    return source.select(sf.col("value").cast("string").alias("value"))


def rows_in(messages: list[Message]) -> Counter[int]:
    """The rows that are there; each is the number that the source gave it."""
    return Counter(int(message.value()) for message in messages)


def once(count: int) -> Counter[int]:
    """The source's first rows, each once."""
    return Counter(range(count))


def edit(path: Path, text: str) -> None:
    """Write a file as an editor does: Hadoop's checksum of what was there before stands beside it and is removed."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.write_text(text)


def forget_the_planned_batch(checkpoint: Path) -> None:
    """Leave a checkpoint as it is between two batches: tests end a query when its next batch is planned already."""
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        if not (checkpoint / "commits" / path.name).exists():
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


# ---- what is lost


def test_with_the_checkpoint_deleted_the_query_is_refused(
    run_query: RunQuery, read_topic: ReadTopic, topic: MakeTopic, tmp_path: Path
) -> None:
    name, checkpoint = topic(), tmp_path / "checkpoint"
    options = {"topic": name, "pipeline": f"p-{name}"}
    run_query(value_only, options, batches=2, checkpoint=str(checkpoint))
    shutil.rmtree(checkpoint)

    outcome = run_query(value_only, options, checkpoint=str(checkpoint))

    # Spark begins again at batch 0 and at the source's beginning, under a new query id.
    assert isinstance(outcome.raised, PipelineConflict)
    assert "set adopt.checkpoint=true once" in str(outcome.raised)
    assert "nothing was written" in str(outcome.raised)
    assert "adopt.checkpoint" in outcome.spark_says
    assert rows_in(read_topic(name, "read_uncommitted")) == once(20)


def test_with_the_querys_metadata_lost_it_is_refused_until_they_are_back(
    run_query: RunQuery, read_topic: ReadTopic, topic: MakeTopic, tmp_path: Path
) -> None:
    name, checkpoint = topic(), tmp_path / "checkpoint"
    options = {"topic": name, "pipeline": f"p-{name}"}
    run_query(value_only, options, checkpoint=str(checkpoint))
    before = (checkpoint / "metadata").read_text()
    (checkpoint / "metadata").unlink()

    try:
        refused: object = run_query(value_only, options, checkpoint=str(checkpoint)).raised
    except PySparkException as error:
        # Newer Sparks find it themselves; older ones give the query a new id, which is ours to refuse.
        refused = error

    assert "metadata file is missing" in str(refused) or "adopt.checkpoint" in str(refused)
    assert rows_in(read_topic(name, "read_uncommitted")) == once(10)
    edit(checkpoint / "metadata", before)
    assert run_query(value_only, options, checkpoint=str(checkpoint)).raised is None
    assert rows_in(read_topic(name)) == once(20)


def test_with_the_commit_log_lost_the_last_batch_is_resumed_and_not_written_again(
    run_query: RunQuery, read_topic: ReadTopic, topic: MakeTopic, tmp_path: Path
) -> None:
    name, checkpoint = topic(), tmp_path / "checkpoint"
    options = {"topic": name, "pipeline": f"p-{name}"}
    run_query(value_only, options, batches=2, checkpoint=str(checkpoint))
    forget_the_planned_batch(checkpoint)
    shutil.rmtree(checkpoint / "commits")

    outcome = run_query(value_only, options, batches=2, checkpoint=str(checkpoint))

    assert outcome.raised is None
    assert [(each.batch_id, each.resumed) for each in outcome.reports] == [(1, True), (2, False)]
    assert rows_in(read_topic(name, "read_uncommitted")) == once(30)


# ---- what is damaged


def test_offsets_that_spark_cannot_read_stop_the_query_before_the_writer_is_called(
    run_query: RunQuery, read_topic: ReadTopic, topic: MakeTopic, tmp_path: Path
) -> None:
    name, checkpoint = topic(), tmp_path / "checkpoint"
    options = {"topic": name, "pipeline": f"p-{name}"}
    run_query(value_only, options, checkpoint=str(checkpoint))
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    good = newest.read_text()
    edit(newest, "garbage")

    outcome = run_query(value_only, options, checkpoint=str(checkpoint))

    assert outcome.raised is None
    assert outcome.reports == []
    assert outcome.spark_says, "Spark went on over a damaged offset log"
    assert rows_in(read_topic(name, "read_uncommitted")) == once(10)
    edit(newest, good)
    assert run_query(value_only, options, checkpoint=str(checkpoint)).raised is None
    assert rows_in(read_topic(name)) == once(20)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(lambda path: path.unlink(), "cannot be read", id="deleted"),
        pytest.param(lambda path: path.write_text("garbage"), "cannot be read", id="its checksum is wrong"),
        pytest.param(lambda path: edit(path, ""), "an unknown format", id="empty"),
    ],
)
def test_offsets_damaged_while_the_batch_runs_stop_it_before_it_is_written(
    spark: SparkSession,
    kafka: AnyKafka,
    run_query: RunQuery,
    read_topic: ReadTopic,
    topic: MakeTopic,
    tmp_path: Path,
    damage: Callable[[Path], Any],
    said: str,
) -> None:
    name, checkpoint = topic(), tmp_path / "checkpoint"
    options = {"topic": name, "pipeline": f"p-{name}"}
    writer = ExactlyOnceWriter({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options})
    kept: list[str] = []
    raised: list[Exception] = []

    def damage_then_write(frame: DataFrame, batch_id: int) -> None:
        path = checkpoint / "offsets" / str(batch_id)
        kept.append(path.read_text())
        damage(path)
        try:
            writer(frame, batch_id)
        except Exception as error:
            raised.append(error)
            raise

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    stream = value_only(source).writeStream.foreachBatch(damage_then_write)
    query = stream.option("checkpointLocation", str(checkpoint)).start()
    with pytest.raises(StreamingQueryException, match="offset log"):
        query.awaitTermination(120)

    assert isinstance(raised[0], PipelineConflict)
    assert said in str(raised[0])
    assert f"{checkpoint}/offsets/0" in str(raised[0])
    assert "nothing was written" in str(raised[0])
    assert read_topic(name, "read_uncommitted") == []
    edit(checkpoint / "offsets" / "0", kept[0])
    assert run_query(value_only, options, checkpoint=str(checkpoint)).raised is None
    assert rows_in(read_topic(name)) == once(10)


def test_an_offset_log_as_spark_wrote_it_is_read_line_by_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":0}\n{"t":{"0":5}}\n-\n')

    assert read_offsets(spark, str(tmp_path), 3) == ('{"t":{"0":5}}', "-")
    assert read_earlier(spark, str(tmp_path), 3) == ('{"t":{"0":5}}', "-")
    # Spark deletes old files; of them nothing is known.
    assert read_earlier(spark, str(tmp_path), 2) is None
