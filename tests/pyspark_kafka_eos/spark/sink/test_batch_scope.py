"""transaction.scope=batch in a streaming query: columns, routing, refusals and restart as in scope=task. librdkafka
reads.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import functions as sf

from kafka_core.errors import InvalidRow, RecordTooLarge
from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.drivers import driver_for
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.options import SinkOptions

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

    by_batch = run_query(shape, {"pipeline": f"p-{name}", "transaction.scope": "batch"}, checkpoint=str(tmp_path / "b"))
    by_task = run_query(shape, {"pipeline": f"q-{name}"}, checkpoint=str(tmp_path / "t"))

    assert isinstance(by_batch.raised, InvalidRow)
    assert "has no topic" in by_batch.spark_says
    assert by_batch.raised == by_task.raised
    assert read_topic(name) == []


def test_a_record_larger_than_its_topic_allows_is_named_by_topic_and_key(run_query, read_topic, topic) -> None:
    name = topic(**{"max.message.bytes": "2000"})

    def shape(source):
        value = sf.when(sf.col("value") == 5, sf.expr("repeat('x', 3000)")).otherwise(sf.expr("repeat('x', 100)"))
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
        outcome = run_query(value_only, options(name, **{"transaction.scope": scope}), batches=2, checkpoint=checkpoint)
        assert outcome.raised is None

    found = Counter(int(message.value()) for message in read_topic(name))
    assert set(found.values()) == {1}
    assert sorted(found) == list(range(len(found)))
    assert len(found) >= 60


def test_many_tasks_share_one_transaction(run_query, read_topic, topic, kafka) -> None:
    name = topic()

    def spread(source):
        return value_only(source).repartition(5)

    outcome = run_query(spread, options(name), batches=2, rows=500)

    assert outcome.raised is None
    assert sorted(int(message.value()) for message in read_topic(name)) == list(range(1000))
    given = SinkOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options(name)})
    decision = Ledger(Cluster.shared(given.client), given.ledger_topic, given.pipeline).newest(settle=True)
    assert decision is not None
    (seal,) = decision.seals
    assert (seal.transactional_id, seal.records) == (f"p-{name}:batch", 500)
    # Every task wrote to every partition, each from where the one before it ended.
    assert [part.records for part in seal.partitions] == [part.last_sequence + 1 for part in seal.partitions]
    assert sum(part.records for part in seal.partitions) == 500


def test_the_option_chooses_the_driver(kafka) -> None:
    given = SinkOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options("t")})
    assert isinstance(driver_for(Cluster.shared(given.client), given, "q"), WholeBatch)
    assert (
        ExactlyOnceWriter({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options("t")}).options.scope == "batch"
    )
