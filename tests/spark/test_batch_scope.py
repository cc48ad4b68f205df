"""transaction.scope=batch in a streaming query: columns, routing, refusals and restart as in scope=task. librdkafka reads."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from connector import ExactlyOnceWriter
from connector.commit.batch_scope import BatchDriver
from connector.commit.drivers import driver_for
from connector.errors import InvalidRow, RecordTooLarge
from connector.model import TopicPartition
from connector.options import SinkOptions
from connector.spark import batch_job
from connector.spark.batch_job import JOB_SETTINGS, routes_to, set_for_this_job, spark_hash, writer_of

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def options(topic: str, **more: str) -> dict[str, str]:
    return {"topic": topic, "pipeline": f"p-{topic}", "transaction.scope": "batch", **more}


def value_only(source):
    return source.select(sf.col("value").cast("string").alias("value"))


def test_every_row_of_several_batches_is_there_once(run_query, read_topic, topic) -> None:
    name = topic()

    outcome = run_query(value_only, options(name), batches=3, rows=50)

    assert outcome.raised is None
    found = Counter(int(message.value()) for message in read_topic(name))
    assert set(found.values()) == {1}
    assert len(found) == 150 == sum(report.records for report in outcome.reports)
    assert [report.redone for report in outcome.reports] == [0, 0, 0]


def test_all_columns_arrive_as_they_were_compressed_or_not(run_query, read_topic, topic) -> None:
    name = topic()
    at = dt.datetime(2026, 3, 4, 5, 6, 7, 890000, tzinfo=dt.timezone.utc)

    def shape(source):
        return source.select(
            sf.concat(sf.lit("key-"), sf.col("value")).alias("key"),
            sf.when(sf.col("value") != 3, sf.col("value").cast("string")).cast("binary").alias("value"),
            sf.array(sf.struct(sf.lit("a").alias("key"), sf.lit(b"1").alias("value"))).alias("headers"),
            sf.lit(name).alias("topic"),
            (sf.col("value") % 4).cast("int").alias("partition"),
            sf.lit(at).cast("timestamp").alias("timestamp"),
        )

    outcome = run_query(
        shape, {k: v for k, v in options(name, **{"kafka.compression.type": "zstd"}).items() if k != "topic"}
    )

    assert outcome.raised is None
    messages = {message.key().decode(): message for message in read_topic(name)}
    assert sorted(messages) == sorted(f"key-{number}" for number in range(10))
    for number in range(10):
        message = messages[f"key-{number}"]
        assert message.partition() == number % 4
        assert message.value() == (None if number == 3 else str(number).encode())
        assert message.headers() == [("a", b"1")]
        assert message.timestamp()[1] == int(at.timestamp() * 1000)


def test_a_bad_row_is_refused_with_the_message_of_scope_task_and_nothing_shows(
    run_query, read_topic, topic, tmp_path: Path
) -> None:
    name = topic()

    def shape(source):
        where = sf.when(sf.col("value") != 7, sf.lit(name))
        return source.select(sf.col("value").cast("string").alias("value"), where.alias("topic"))

    by_batch = run_query(
        shape, {"pipeline": f"p-{name}", "transaction.scope": "batch"}, checkpoint=str(tmp_path / "b")
    )
    by_task = run_query(shape, {"pipeline": f"q-{name}"}, checkpoint=str(tmp_path / "t"))

    assert isinstance(by_batch.raised, InvalidRow)
    assert "has no topic" in by_batch.spark_says
    assert by_batch.raised == by_task.raised
    assert read_topic(name) == []


def test_a_record_larger_than_its_topic_allows_is_named_by_topic_and_key(
    run_query, read_topic, topic
) -> None:
    name = topic(**{"max.message.bytes": "2000"})

    def shape(source):
        value = sf.when(sf.col("value") == 5, sf.expr("repeat('x', 3000)")).otherwise(
            sf.expr("repeat('x', 100)")
        )
        return source.select(sf.concat(sf.lit("key-"), sf.col("value")).alias("key"), value.alias("value"))

    outcome = run_query(shape, options(name), rows=300)

    assert isinstance(outcome.raised, RecordTooLarge)
    assert outcome.raised.facts["topic"] == name
    assert outcome.raised.facts["key"] == "key-5"
    assert outcome.raised.facts["limit_bytes"] == 2000
    assert read_topic(name) == []


def test_a_query_that_changes_its_scope_both_ways_goes_on_where_it_was(
    run_query, read_topic, topic, tmp_path: Path
) -> None:
    name = topic()
    checkpoint = str(tmp_path / "kept")

    for scope in ("task", "batch", "task"):
        outcome = run_query(
            value_only, options(name, **{"transaction.scope": scope}), batches=2, checkpoint=checkpoint
        )
        assert outcome.raised is None

    found = Counter(int(message.value()) for message in read_topic(name))
    assert set(found.values()) == {1}
    assert sorted(found) == list(range(len(found)))
    assert len(found) >= 60


def test_the_settings_of_the_job_are_put_back(spark) -> None:
    def settings():
        return {name: spark.conf.get(name, None) for name in JOB_SETTINGS}

    before = settings()

    def job() -> None:
        with set_for_this_job(spark):
            assert settings() == JOB_SETTINGS != before
            raise ZeroDivisionError("whatever ends the job")

    with pytest.raises(ZeroDivisionError):
        job()

    assert settings() == before


def test_writers_that_got_different_starts_of_a_task_have_their_batch_done_again(
    run_query, read_topic, topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    encode, tries = batch_job.encode_task, []

    def encode_twice(plan, routes):
        tries.append(plan.identity)
        first_try, run_once = len(tries) == 1, encode(plan, routes)

        def run(batches):
            for batch in run_once(batches):
                rows = batch.to_pylist()
                for row in rows:
                    # As if the task had been run again between the writers.
                    if first_try and row["start"] is not None and row["route"] != routes[0]:
                        row["start"] += 1000
                yield pa.RecordBatch.from_pylist(rows, batch.schema)

        return run

    monkeypatch.setattr(batch_job, "encode_task", encode_twice)

    outcome = run_query(value_only, options(name), batches=1, rows=50)

    assert outcome.raised is None
    assert [report.redone for report in outcome.reports] == [1]
    assert len({(identity.producer_id, identity.epoch) for identity in tries}) == 2
    assert sorted(int(message.value()) for message in read_topic(name)) == list(range(50))


@pytest.mark.parametrize("writers", [1, 2, 7, 64])
def test_each_writer_gets_one_spark_partition(spark, writers: int) -> None:
    routes = routes_to(writers)
    frame = spark.createDataFrame([(route,) for route in routes], "route int")

    placed = frame.repartition(writers, "route").select("route", sf.spark_partition_id()).collect()

    assert sorted(tuple(row) for row in placed) == sorted(
        (route, index) for index, route in enumerate(routes)
    )


def test_the_hash_is_sparks(spark) -> None:
    numbers = [0, 1, 2, 41, 12345, 2**31 - 1]
    frame = spark.createDataFrame([(number,) for number in numbers], "number int")

    assert [row[0] for row in frame.select(sf.hash("number")).collect()] == [spark_hash(n) for n in numbers]


def test_neighbouring_partitions_go_to_different_writers() -> None:
    assert len({writer_of(TopicPartition("t", number), 4) for number in range(4)}) == 4


def test_the_option_chooses_the_driver(kafka) -> None:
    from connector.client.cluster import Cluster

    given = SinkOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options("t")})
    assert isinstance(driver_for(Cluster.shared(given.client), given, "q"), BatchDriver)
    assert (
        ExactlyOnceWriter({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options("t")}).options.scope
        == "batch"
    )
