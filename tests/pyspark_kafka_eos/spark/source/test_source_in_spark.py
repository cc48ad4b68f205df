"""The source in Spark itself: found by its name, restarted from checkpoints, ending where the topic ends."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.spark.offset_json import position_of
from pyspark_kafka_eos.spark.source.source import source_schema
from tests.conftest import MakeTopic, spark_is_at_least
from tests.pyspark_kafka_eos.client.fetcher.conftest import Record, Writers, end, judged, some_records, write
from tests.pyspark_kafka_eos.spark.source.source_query import produce
from tests.support.brokers import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT = 15
_TIMEOUT_S = 120


def test_finding_the_source_loads_nothing_heavy() -> None:
    heavy = "{'numba', 'kafka', 'pydantic', 'pyspark_kafka_eos.records', 'pyspark_kafka_eos.client'}"
    code = f"import sys, pyspark_kafka_eos; print(sorted({heavy} & set(sys.modules)))"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


def as_record(row: Any) -> Record:
    """A row as the judge gives its records."""
    headers = tuple((entry.key, entry.value and bytes(entry.value)) for entry in row.headers or ())
    bodies = [None if body is None else bytes(body) for body in (row.key, row.value)]
    return (row.partition, row.offset, bodies[0], bodies[1], headers, round(row.timestamp.timestamp() * 1000),
            row.timestampType)  # fmt: skip


def run_to_the_end(stream: DataFrame, checkpoint: Path, take: Callable[[DataFrame, int], None]) -> None:
    """Process what is there in as many batches as the limit makes of it."""
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    # Before 4.2 AvailableNow is a single batch for every Python source: docs/reading.md.
    ends_by_itself = spark_is_at_least(4, 2)
    query = (writer.trigger(availableNow=True) if ends_by_itself else writer).start()
    try:
        if ends_by_itself:
            assert query.awaitTermination(_TIMEOUT_S), "the query came to no end"
        else:
            query.processAllAvailable()
    finally:
        query.stop()


def logged_ends(checkpoint: Path) -> list[dict[TopicPartition, int]]:
    """The end of each batch in Spark's offset log."""
    files = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    texts = [path.read_text().splitlines()[-1] for path in sorted(files, key=lambda path: int(path.name))]
    return [dict(position_of(json.loads(text)).offsets) for text in texts]


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.versions
def test_each_record_is_read_once_within_the_limit_across_a_failure_and_a_restart(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(2)
    writers = Writers(kafka.bootstrap_servers, "lz4")
    dice = random.Random(3)
    plain, aborting = writers.plain(), writers.transactional(f"{name}.aborts")

    def add_records() -> None:
        # Each partition ends in aborted records and their marker: the query must come to its end all the same.
        for partition in (0, 1):
            write(plain, name, partition, some_records(dice, 20))
        aborting.begin_transaction()
        write(aborting, name, 0, some_records(dice, 12))
        write(aborting, name, 1, some_records(dice, 2))
        end(aborting, commit=False)

    stream = (
        spark.readStream.format("kafka_eos")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", LIMIT)
        .option("includeHeaders", "true")
        .load()
    )
    batches: dict[int, list[list[Record]]] = {}
    fail_at = {2}

    def take(batch: DataFrame, number: int) -> None:
        batches.setdefault(number, []).append(sorted(as_record(row) for row in batch.collect()))
        if number in fail_at:
            fail_at.clear()
            raise RuntimeError("the sink fails once")

    add_records()
    with pytest.raises(Exception, match="the sink fails once"):
        run_to_the_end(stream, tmp_path, take)
    run_to_the_end(stream, tmp_path, take)
    add_records()
    run_to_the_end(stream, tmp_path, take)

    assert stream.schema == source_schema(include_headers=True)
    assert [len(tries) for tries in batches.values()].count(2) == 1
    assert batches[2][0] == batches[2][1]
    read = sorted((record for tries in batches.values() for record in tries[0]), key=lambda each: each[:2])
    assert read == judged(kafka.bootstrap_servers, name, 2, "read_committed")
    ends = logged_ends(tmp_path)
    assert ends[-1] == {TopicPartition(name, 0): 66, TopicPartition(name, 1): 46}
    positions = [0, *(sum(each.values()) for each in ends)]
    assert all(0 < later - sooner <= LIMIT for sooner, later in itertools.pairwise(positions))


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.versions
def test_a_frame_and_its_view_are_planned_once_from_spark_4_1_on_and_a_new_load_anew(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic
) -> None:
    """docs/reading.md, first lines. Where a later Spark plans each action anew, this fails, and those lines have to say
    so.
    """
    name = topic(1)
    reader = spark.read.format("kafka_eos").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    reader = reader.option("subscribe", name)
    produce(kafka, name, 0, range(5))
    frame = reader.load()
    frame.createOrReplaceTempView("planned_once")
    assert frame.count() == 5
    produce(kafka, name, 0, range(7))

    again = [frame.count(), frame.select("value").count(), spark.table("planned_once").count()]

    assert again == ([5, 5, 5] if spark_is_at_least(4, 1) else [12, 12, 12])
    assert reader.load().count() == 12


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.versions
def test_a_batch_reads_what_is_committed_and_nothing_of_an_empty_topic(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic
) -> None:
    name, empty = topic(2), topic(1)
    writers = Writers(kafka.bootstrap_servers)
    dice = random.Random(5)
    writer = writers.transactional(f"{name}.writer")
    # One partition is all aborted records and markers; in the other they stand between committed ones and at the end.
    for number in range(6):
        writer.begin_transaction()
        write(writer, name, 0, some_records(dice, 4))
        if number % 2:
            write(writer, name, 1, some_records(dice, 3))
        end(writer, commit=number % 2 == 0)
    reader = (
        spark.read.format("kafka_eos")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("includeHeaders", "true")
    )
    batch = reader.option("subscribe", name).option("minPartitions", 6).load()

    read = sorted((as_record(row) for row in batch.collect()), key=lambda each: each[:2])

    assert read == judged(kafka.bootstrap_servers, name, 2, "read_committed")
    assert len(read) == 3 * 4
    assert reader.option("subscribe", empty).load().count() == 0
