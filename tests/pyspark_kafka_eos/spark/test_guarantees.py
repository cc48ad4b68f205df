"""`delivery.guarantee`: what each keeps, shown by the log, the group's offsets and the transactions that there are
not.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import functions as sf

from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.admin import list_transactions
from pyspark_kafka_eos.model import ClientSettings
from tests.pyspark_kafka_eos.spark.sink.sink_query import run_sink

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
    # Every partition has its leader then: what has none for a moment, `none` loses.
    assert not read_topic(name)

    outcome = run_query(
        value_only, {"topic": name, "pipeline": f"p-{name}", "delivery.guarantee": guarantee}, batches=2
    )

    assert outcome.raised is None
    assert [report.records for report in outcome.reports] == [10, 10]
    assert values(read_topic(name)) == Counter(range(20))
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
    try:
        assert not [each for each in list_transactions(cluster) if each.startswith(f"p-{name}:")]
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


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_by_format_and_without_a_group_the_checkpoint_may_be_what_the_session_says(
    spark, kafka, topic, read_topic, tmp_path: Path, guarantee: str
) -> None:
    name, dead = topic(), topic()
    assert not [*read_topic(name), *read_topic(dead)]
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "dead.letter.topic": dead,
        "delivery.guarantee": guarantee,
    }

    def shape(source):
        # The last row of each of the two batches.
        return source.withColumn("partition", sf.when(sf.col("value").endswith("9"), 7).cast("int"))

    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "elsewhere"))
    try:
        said = run_sink(spark, tmp_path, options, shape, batches=2, checkpoint=False)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")

    assert said == ""
    assert values(read_topic(name)) == Counter(set(range(20)) - {9, 19})
    letters = read_topic(dead)
    assert values(letters) == Counter([9, 19])
    assert {dict(each.headers())["kafka_eos.error.batch"] for each in letters} == {b"0", b"1"}


def test_by_format_at_least_once_a_batch_that_failed_halfway_is_there_twice_after_the_restart(
    spark, kafka, topic, read_topic, tmp_path: Path
) -> None:
    name = topic()
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "delivery.guarantee": "at-least-once",
    }

    def bad(source):
        return source.withColumn("partition", sf.when(sf.col("value") == "9", 7).cast("int"))

    assert "names a partition" in run_sink(spark, tmp_path, options, bad)
    before = values(read_topic(name))
    assert before

    assert run_sink(spark, tmp_path, options) == ""

    assert values(read_topic(name)) == Counter(range(10)) + before


@pytest.mark.parametrize("way", ["foreachBatch", "format"])
def test_at_least_once_a_kafka_sources_offsets_are_committed_to_the_group_after_the_batch(
    spark, kafka, topic, read_topic, tmp_path: Path, way: str
) -> None:
    source, target = topic(), topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(40):
        producer.produce(source, str(number), partition=number % 4)
    producer.flush()
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    rows = spark.readStream.format("kafka_eos").options(**options, subscribe=source, startingOffsets="earliest").load()
    weaker = {
        **options,
        "topic": target,
        "delivery.guarantee": "at-least-once",
        "offsets.group": f"g-{target}",
    }
    writing = rows.select("key", "value").writeStream
    writing = (
        writing.format("kafka_eos").options(**weaker)
        if way == "format"
        else writing.foreachBatch(ExactlyOnceWriter(weaker))
    )

    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination(120)

    assert values(read_topic(target)) == Counter(range(40))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"g-{target}"})
    found = consumer.committed([TopicPartition(source, number) for number in range(4)], timeout=30)
    consumer.close()
    assert [each.offset for each in found] == [10, 10, 10, 10]
