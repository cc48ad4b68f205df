"""The sink by format in a streaming query: rows, columns, restart, refusals. librdkafka reads."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import functions as sf

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import ClientSettings
from tests.pyspark_kafka_eos.spark.sink.sink_query import numbers, run_sink, write_input
from tests.pyspark_kafka_eos.spark.sink.test_writer import newest_decision
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Run = Callable[..., str]


@pytest.fixture
def run(spark, kafka: AnyKafka, tmp_path: Path) -> Run:
    """run(options, shape, batches=1, rows=10): what Spark says of the query's failure, "" where it did not fail."""

    def call(options: dict[str, Any], *args: Any, folder: Path = tmp_path, **more: Any) -> str:
        return run_sink(spark, folder, {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}, *args, **more)

    return call


def counted(messages) -> Counter[int]:
    return Counter(int(message.value()) for message in messages)


def open_slots(kafka: AnyKafka, pipeline: str) -> list[str]:
    """The pipeline's ids that have an open transaction."""
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
    try:
        views = Transactions(cluster).describe([f"{pipeline}:{name}" for name in (0, 1, "batch")])
        return [name for name, view in views.items() if view.state == "Ongoing"]
    finally:
        cluster.close()


@pytest.mark.versions
@pytest.mark.parametrize("scope", ["task", "batch"])
def test_every_row_is_there_once_also_after_a_restart(run: Run, read_topic, topic, scope: str) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}", "transaction.scope": scope}

    assert run(options, batches=2, rows=50) == ""
    assert run(options, batches=3, rows=50) == ""

    assert counted(read_topic(name)) == dict.fromkeys(range(150), 1)


@pytest.mark.versions
def test_all_columns_arrive_as_they_were(run: Run, read_topic, topic) -> None:
    name = topic()
    at = dt.datetime(2026, 3, 4, 5, 6, 7, 890000, tzinfo=dt.timezone.utc)

    def shape(source):
        number = sf.col("value").cast("int")
        return source.select(
            sf.lit("dropped, as in Spark's sink").alias("extra"),
            (number % 4).alias("partition"),
            sf.when(number != 3, sf.col("value")).cast("binary").alias("value"),
            sf.concat(sf.lit("key-"), sf.col("value")).alias("KEY"),
            sf.array(
                sf.struct(sf.lit("a").alias("key"), sf.lit(b"1").alias("value")),
                sf.struct(sf.lit("a").alias("key"), sf.lit(None).cast("binary").alias("value")),
            ).alias("headers"),
            sf.lit(name).alias("topic"),
            sf.lit(at).cast("timestamp").alias("timestamp"),
        )

    assert run({"pipeline": f"p-{name}"}, shape) == ""

    messages = {message.key().decode(): message for message in read_topic(name)}
    assert sorted(messages) == sorted(f"key-{number}" for number in range(10))
    for number in range(10):
        message = messages[f"key-{number}"]
        assert message.partition() == number % 4
        assert message.value() == (None if number == 3 else str(number).encode())
        assert message.headers() == [("a", b"1"), ("a", None)]
        assert message.timestamp()[1] == int(at.timestamp() * 1000)


def test_a_micro_batch_without_rows_is_decided(run: Run, read_topic, topic, kafka: AnyKafka) -> None:
    name = topic()

    said = run(
        {"topic": name, "pipeline": f"p-{name}"},
        lambda source: source.where(sf.length("value") > 9),
        batches=2,
    )

    assert said == ""
    assert newest_decision(kafka, f"p-{name}").batch_id == 1
    assert read_topic(name, "read_uncommitted") == []


def test_the_group_has_the_source_offsets_of_what_is_written(
    spark, read_topic, topic, kafka: AnyKafka, tmp_path: Path
) -> None:
    source, name = topic(partitions=2), topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(30):
        producer.produce(source, str(number).encode(), partition=number % 2)
    producer.flush()

    query = (
        spark.readStream.format("kafka_eos")
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source})
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("kafka_eos")
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "pipeline": f"p-{name}"})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)

    assert counted(read_topic(name)) == dict.fromkeys(range(30), 1)
    group = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"p-{name}"})
    asked = [TopicPartition(source, number) for number in range(2)]
    assert [each.offset for each in group.committed(asked, timeout=30)] == [15, 15]
    group.close()


def test_a_query_stopped_in_the_middle_goes_on_where_it_was(
    run: Run, spark, read_topic, topic, kafka: AnyKafka, tmp_path: Path
) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}"}
    assert run(options, rows=500) == ""
    write_input(tmp_path / "input", 3, 500)
    query = (
        numbers(spark, tmp_path / "input")
        .writeStream.format("kafka_eos")
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers, **options})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    logged = tmp_path / "checkpoint" / "offsets" / "1"
    while not logged.exists() and query.isActive:
        query.awaitTermination(0.05)

    # Its offsets are logged, so batch 1 is being begun, written or committed.
    query.stop()

    assert run(options, batches=3, rows=500) == ""
    assert counted(read_topic(name)) == dict.fromkeys(range(1500), 1)


# ---- bad input


@pytest.mark.versions
@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_row_that_cannot_be_written_stops_the_query_and_nothing_is_visible_or_left_open(
    run: Run, read_topic, topic, kafka: AnyKafka, scope: str
) -> None:
    name = topic(**{"max.message.bytes": "2000"})

    def shape(source):
        large = sf.when(sf.col("value") == "5", sf.lit(3000)).otherwise(sf.lit(10))
        return source.select(
            sf.concat(sf.lit("key-"), sf.col("value")).alias("key"),
            sf.expr("repeat('x', 1)").alias("unused"),
            sf.when(large == 3000, sf.expr("repeat('x', 3000)")).otherwise(sf.col("value")).alias("value"),
        )

    said = run({"topic": name, "pipeline": f"p-{name}", "transaction.scope": scope}, shape)

    assert "RecordTooLarge" in said
    assert "key-5" in said
    assert read_topic(name) == []
    assert open_slots(kafka, f"p-{name}") == []


@pytest.mark.parametrize(
    ("options", "shape", "mode", "expected"),
    [
        pytest.param({"pipelin": "p"}, None, "append", "did you mean pipeline", id="misspelt"),
        pytest.param({}, lambda s: s.select(sf.lit(1).alias("value")), "append", "string or binary", id="type"),
        pytest.param({}, None, "update", "does not support Update mode", id="update"),
        pytest.param(
            {}, lambda s: s.groupBy("value").count().select("value"), "complete", "outputMode append", id="complete"
        ),
        pytest.param({"topic": "never-created"}, None, "append", "never-created", id="topic"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_as_the_querys_first_exception(
    run: Run, read_topic, topic, options: dict[str, Any], shape, mode: str, expected: str
) -> None:
    name = topic()

    said = run({"topic": name, "pipeline": f"p-{name}", **options}, *([shape] if shape else []), output_mode=mode)

    assert expected in said
    assert read_topic(name, "read_uncommitted") == []


def test_a_checkpoint_that_the_sink_is_not_told_of_is_refused(
    run: Run, spark, read_topic, topic, tmp_path: Path
) -> None:
    name = topic()
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "elsewhere"))
    try:
        said = run({"topic": name, "pipeline": f"p-{name}"}, checkpoint=False)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")

    assert "checkpointLocation is missing" in said
    assert read_topic(name, "read_uncommitted") == []


def test_a_second_query_under_the_pipelines_name_is_refused(run: Run, read_topic, topic, tmp_path: Path) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}"}
    assert run(options, folder=tmp_path / "first") == ""

    said = run(options, folder=tmp_path / "second")

    assert "PipelineConflict" in said
    assert len(read_topic(name, "read_uncommitted")) == 10
