"""Queries and jobs that rest for 30 days, on real Spark: ids expired, records and group offsets gone. They go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos import ExactlyOnceWriter
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.pyspark_kafka_eos.commit.resting import rest
from tests.pyspark_kafka_eos.spark.source.source_query import (
    committed,
    produce,
    run,
    sink,
    start,
    stream_of,
    values,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.embedded]

WAYS = ["format", "foreachBatch"]


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    """A broker of the test's own, whose clock it moves."""
    with EmbeddedKafka(in_process=True) as kafka:
        yield kafka


def make(broker: EmbeddedKafka) -> str:
    """A topic of one partition whose records can go one by one."""
    return topics_of(broker)(1, **{"segment.ms": "1000"})


def shown(broker: EmbeddedKafka, topic: str) -> list[int]:
    return values(messages_of(broker, topic))


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_stream_that_was_stopped_goes_on_with_its_next_batch(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, way: str, scope: str
) -> None:
    source, out = make(broker), make(broker)
    options = sink(broker, out, **{"transaction.scope": scope})
    produce(broker, source, 0, range(5))
    assert run(stream_of(spark, broker, subscribe=source), way, options, tmp_path) == ""
    assert shown(broker, out) == list(range(5))
    rest(broker, [source, out], options["pipeline"])
    produce(broker, source, 0, range(5, 8))

    assert run(stream_of(spark, broker, subscribe=source), way, options, tmp_path) == ""

    assert shown(broker, out) == [5, 6, 7]
    assert committed(broker, options["pipeline"], source) == [8]


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_ran_all_the_time_goes_on_with_its_next_batch(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, way: str
) -> None:
    source, out = make(broker), make(broker)
    options = sink(broker, out)
    produce(broker, source, 0, range(5))
    query = start(stream_of(spark, broker, subscribe=source), way, options, tmp_path)
    try:
        query.processAllAvailable()
        assert shown(broker, out) == list(range(5))
        rest(broker, [source, out], options["pipeline"])
        produce(broker, source, 0, range(5, 8))
        query.processAllAvailable()
    finally:
        query.stop()

    assert shown(broker, out) == [5, 6, 7]
    assert committed(broker, options["pipeline"], source) == [8]


class Stopped(Exception):
    """What the function raises after its writer has returned."""


def test_a_batch_that_is_ended_and_that_spark_begins_again_is_not_written_again(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """The process ended between the batch's end and Spark's own record of it; the rows that it read are gone since."""
    source, out = make(broker), make(broker)
    options = sink(broker, out)
    produce(broker, source, 0, range(5))
    writer = ExactlyOnceWriter(options)

    def write(frame: Any, batch_id: int) -> None:
        writer(frame, batch_id)
        raise Stopped

    stream = stream_of(spark, broker, subscribe=source).select("value")
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="Stopped"):
        query.awaitTermination(300)
    assert shown(broker, out) == list(range(5))
    rest(broker, [source, out], options["pipeline"])
    produce(broker, source, 0, range(5, 8))

    # Spark runs the batch's plan for what it adds to a query's state, and a state without those rows would be wrong.
    said = run(stream_of(spark, broker, subscribe=source), "foreachBatch", options, tmp_path)
    assert "DataLoss" in said
    assert "failOnDataLoss=false" in said
    assert shown(broker, out) == []

    lenient = stream_of(spark, broker, subscribe=source, failOnDataLoss="false")
    assert run(lenient, "foreachBatch", options, tmp_path) == ""
    assert shown(broker, out) == [5, 6, 7]


@pytest.mark.long
@pytest.mark.parametrize("named", [False, True], ids=["without a pipeline", "with a pipeline"])
def test_a_data_frame_is_written_every_thirty_days(broker: EmbeddedKafka, spark: SparkSession, named: bool) -> None:
    out = make(broker)
    options = sink(broker, out)
    if not named:
        del options["pipeline"]
    for month in range(3):
        rows = spark.createDataFrame([(str(month * 10 + row),) for row in range(3)], "value string")
        writer = rows.repartition(2).write.format("kafka_eos").options(**options).mode("append")
        if named:
            writer = writer.option("batch.id", month)
        writer.save()
        assert shown(broker, out) == [month * 10 + row for row in range(3)]
        rest(broker, [out], f"p-{out}")
