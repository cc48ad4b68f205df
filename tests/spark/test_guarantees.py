"""`delivery.guarantee`: what each keeps, shown by the log, the group's offsets and the transactions that there are not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import functions as sf

from connector import ExactlyOnceWriter
from connector.client.admin import list_transactions
from connector.client.cluster import Cluster
from connector.model import ClientSettings

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def value_only(source):
    return source.select(sf.col("value").cast("string").alias("value"))


def values(messages) -> Counter[int]:
    return Counter(int(message.value()) for message in messages)


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_without_transactions_rows_are_written_under_no_transactional_id(
    run_query, read_topic, topic, kafka, guarantee: str
) -> None:
    name = topic()

    outcome = run_query(
        value_only, {"topic": name, "pipeline": f"p-{name}", "delivery.guarantee": guarantee}, batches=2
    )

    assert outcome.raised is None
    assert [report.records for report in outcome.reports] == [10, 10]
    assert values(read_topic(name)) == Counter(range(20))
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
    try:
        assert not [each for each in list_transactions(cluster) if each.startswith(f"p-{name}.")]
    finally:
        cluster.close()


def test_at_least_once_a_batch_that_failed_halfway_is_there_twice_after_the_restart(
    run_query, read_topic, topic, tmp_path: Path
) -> None:
    """The difference to exactly-once, which the same query shows in test_bad_input: there nothing of it is visible."""
    name = topic()
    options = {"topic": name, "delivery.guarantee": "at-least-once"}
    checkpoint = str(tmp_path / "kept")

    def bad_once(source):
        number = sf.when(sf.col("value") == 9, 7).cast("int").alias("partition")
        return source.select(sf.col("value").cast("string").alias("value"), number)

    failed = run_query(bad_once, options, checkpoint=checkpoint)
    assert "names a partition" in str(failed.raised)
    before = values(read_topic(name))
    assert before

    again = run_query(value_only, options, checkpoint=checkpoint)

    assert again.raised is None
    assert values(read_topic(name)) == Counter(range(10)) + before


def test_at_least_once_a_kafka_sources_offsets_are_committed_to_the_group_after_the_batch(
    spark, kafka, topic, read_topic, tmp_path: Path
) -> None:
    source, target = topic(), topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(40):
        producer.produce(source, str(number), partition=number % 4)
    producer.flush()
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    rows = (
        spark.readStream.format("kafka_eos")
        .options(**options, subscribe=source, startingOffsets="earliest")
        .load()
    )
    writer = ExactlyOnceWriter(
        {
            **options,
            "topic": target,
            "delivery.guarantee": "at-least-once",
            "offsets.group": f"g-{target}",
        }
    )

    query = (
        rows.select("key", "value")
        .writeStream.foreachBatch(writer)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)

    assert values(read_topic(target)) == Counter(range(40))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"g-{target}"})
    found = consumer.committed([TopicPartition(source, number) for number in range(4)], timeout=30)
    consumer.close()
    assert [each.offset for each in found] == [10, 10, 10, 10]
