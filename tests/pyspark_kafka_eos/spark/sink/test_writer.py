"""The writer in a streaming query: columns, routing, restart. Real Spark, real Kafka, librdkafka reads."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.partitioner.default import murmur2
from pyspark.sql import functions as sf

from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import ClientSettings

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def value_only(source):
    return source.select(sf.col("value").cast("string").alias("value"))


def test_every_row_of_several_batches_is_there_once(run_query, read_topic, topic) -> None:
    name = topic()

    outcome = run_query(value_only, {"topic": name, "pipeline": f"p-{name}"}, batches=3, rows=50)

    assert outcome.raised is None
    found = Counter(int(message.value()) for message in read_topic(name))
    assert set(found.values()) == {1}
    assert len(found) == 150 == sum(report.records for report in outcome.reports)


def test_all_columns_arrive_as_they_were(run_query, read_topic, topic) -> None:
    name = topic()
    at = dt.datetime(2026, 3, 4, 5, 6, 7, 890000, tzinfo=dt.timezone.utc)

    def shape(source):
        return source.select(
            sf.concat(sf.lit("key-"), sf.col("value")).alias("KEY"),
            sf.when(sf.col("value") != 3, sf.col("value").cast("string")).cast("binary").alias("value"),
            sf.array(
                sf.struct(sf.lit("a").alias("key"), sf.lit(b"1").alias("value")),
                sf.struct(sf.lit("a").alias("key"), sf.lit(None).cast("binary").alias("value")),
            ).alias("headers"),
            sf.lit(name).alias("topic"),
            (sf.col("value") % 4).cast("int").alias("partition"),
            sf.lit(at).cast("timestamp").alias("timestamp"),
            sf.lit("dropped, as in Spark's sink").alias("extra"),
        )

    outcome = run_query(shape, {"pipeline": f"p-{name}"})

    assert outcome.raised is None
    messages = {message.key().decode(): message for message in read_topic(name)}
    assert sorted(messages) == sorted(f"key-{number}" for number in range(10))
    for number in range(10):
        message = messages[f"key-{number}"]
        assert message.partition() == number % 4
        assert message.value() == (None if number == 3 else str(number).encode())
        assert message.headers() == [("a", b"1"), ("a", None)]
        assert message.timestamp()[1] == int(at.timestamp() * 1000)


def test_keys_go_where_javas_partitioner_sends_them(run_query, read_topic, topic) -> None:
    name = topic()

    def shape(source):
        return source.select(sf.concat(sf.lit("key-"), sf.col("value")).alias("key"), sf.lit("v").alias("value"))

    run_query(shape, {"topic": name, "pipeline": f"p-{name}"}, rows=200)

    places = {message.key(): message.partition() for message in read_topic(name)}
    assert len(places) == 200
    assert {places[key] for key in places} == {0, 1, 2, 3}
    for key, partition in places.items():
        assert partition == (murmur2(key) & 0x7FFFFFFF) % 4


def test_rows_of_one_batch_may_go_to_several_topics(run_query, read_topic, topic) -> None:
    even, odd = topic(), topic(partitions=1)

    def shape(source):
        where = sf.when(sf.col("value") % 2 == 0, sf.lit(even)).otherwise(sf.lit(odd))
        return source.select(sf.col("value").cast("string").alias("value"), where.alias("topic"))

    outcome = run_query(shape, {"pipeline": f"p-{even}"})

    assert outcome.raised is None
    assert sorted(int(message.value()) for message in read_topic(even)) == [0, 2, 4, 6, 8]
    assert sorted(int(message.value()) for message in read_topic(odd)) == [1, 3, 5, 7, 9]


@pytest.mark.versions
def test_a_query_that_is_started_again_goes_on_where_it_was(run_query, read_topic, topic, tmp_path: Path) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}"}
    checkpoint = str(tmp_path / "kept")

    run_query(value_only, options, batches=2, checkpoint=checkpoint)
    again = run_query(value_only, options, batches=2, checkpoint=checkpoint)

    assert again.raised is None
    assert again.reports[0].batch_id >= 2
    found = Counter(int(message.value()) for message in read_topic(name))
    assert set(found.values()) == {1}
    assert sorted(found) == list(range(len(found)))


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read_by_librdkafka(run_query, read_topic, topic, compression: str) -> None:
    name = topic()

    outcome = run_query(
        lambda source: source.select(sf.repeat(sf.col("value").cast("string"), 50).alias("value")),
        {"topic": name, "pipeline": f"p-{name}", "kafka.compression.type": compression},
        rows=500,
    )

    assert outcome.raised is None
    assert len({message.value() for message in read_topic(name)}) == 500


def test_an_empty_slot_opens_no_transaction(run_query, read_topic, topic) -> None:
    name = topic()

    outcome = run_query(
        lambda source: value_only(source.where(sf.col("value") < 0)), {"topic": name, "pipeline": f"p-{name}"}
    )

    assert outcome.raised is None
    assert [report.records for report in outcome.reports] == [0]
    assert read_topic(name, "read_uncommitted") == []


def test_the_decision_names_the_sources_offsets_as_spark_logged_them(run_query, topic, kafka) -> None:
    name = topic()

    run_query(value_only, {"topic": name, "pipeline": f"p-{name}"}, batches=2, rows=10)

    decision = newest_decision(kafka, f"p-{name}")
    assert (decision.batch_id, decision.records) == (1, 10)
    assert [json.loads(line)["offset"] for line in decision.source_offsets] == [20]


def newest_decision(kafka, pipeline):
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
    try:
        return Ledger(cluster, "exactly-once-ledger", pipeline).newest(settle=True)
    finally:
        cluster.close()


def test_a_kafka_sources_offsets_are_committed_to_the_group_with_the_batch(
    spark, kafka, topic, read_topic, tmp_path: Path
) -> None:
    source, target = topic(), topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(40):
        producer.produce(source, str(number), partition=number % 4)
    producer.flush()
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    rows = spark.readStream.format("kafka_eos").options(**options, subscribe=source, startingOffsets="earliest").load()
    writer = ExactlyOnceWriter({**options, "topic": target, "pipeline": f"p-{target}", "offsets.group": f"g-{target}"})

    query = (
        rows.select("key", "value")
        .writeStream.foreachBatch(writer)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)

    assert sorted(int(message.value()) for message in read_topic(target)) == list(range(40))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"g-{target}"})
    found = consumer.committed([TopicPartition(source, number) for number in range(4)], timeout=30)
    consumer.close()
    assert [each.offset for each in found] == [10, 10, 10, 10]
