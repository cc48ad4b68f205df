"""Which of a query's source offsets its consumer group gets: whatever form Spark's log has, and on the source's cluster
only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.model import GroupOffset
from pyspark_kafka_eos.operations.checks import examine
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.spark.source.source_group import group_offsets
from tests.conftest import MakeTopic, spark_is_at_least
from tests.pyspark_kafka_eos.spark.source.source_query import committed, produce, run, sink, stream_of, values
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def other() -> Iterator[EmbeddedKafka]:
    """Another cluster."""
    with EmbeddedKafka(in_process=True) as broker:
        yield broker


def make(broker: EmbeddedKafka, topic: str, partitions: int = 1) -> None:
    """The topic, where the other cluster has one of the same name."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for answer in admin.create_topics([NewTopic(topic, partitions)], operation_timeout=30).values():
        answer.result(30)


@pytest.mark.long
@pytest.mark.versions
@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_the_group_gets_the_offsets_of_every_source_where_spark_logs_them_by_number_or_name(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, read_topic, tmp_path: Path, way: str
) -> None:
    first, second, out = topic(1), topic(2), topic(1)
    produce(kafka, first, 0, range(5))
    produce(kafka, second, 0, range(5, 12))
    produce(kafka, second, 1, range(12, 15))
    named = way == "format" and spark_is_at_least(4, 3)
    settings = {"spark.sql.streaming.offsetLog.formatVersion": "2"}
    if named:
        settings["spark.sql.streaming.queryEvolution.enableSourceEvolution"] = "true"
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        one = stream_of(spark, kafka, "orders" if named else "", subscribe=first)
        two = stream_of(spark, kafka, "customers" if named else "", subscribe=second)
        said = run(one.union(two), way, sink(kafka, out), tmp_path)
    finally:
        for name in settings:
            spark.conf.unset(name)

    assert said == ""
    assert values(read_topic(out)) == list(range(15))
    form, _, *lines = (tmp_path / "offsets" / "0").read_text().splitlines()
    assert form == ("v2" if spark_is_at_least(4, 2) else "v1")
    assert any(line.startswith("orders:") for line in lines) == named
    assert committed(kafka, f"p-{out}", first) == [5]
    assert committed(kafka, f"p-{out}", second, 2) == [7, 3]


@pytest.mark.versions
@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_a_query_from_one_cluster_to_another_works_and_commits_no_offsets_of_the_one_to_the_other(
    kafka: AnyKafka,
    other: EmbeddedKafka,
    spark: SparkSession,
    topic: MakeTopic,
    read_topic,
    tmp_path: Path,
    way: str,
) -> None:
    source, alike, out = f"only-there-{way}", f"alike-{way}", topic(1)
    make(other, source)
    # Both clusters have this one, and the sink's has more in it.
    make(other, alike)
    for name in (source, alike):
        produce(other, name, 0, range(10))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.create_topics([NewTopic(alike, 1)], operation_timeout=30).values():
        answer.result(30)
    produce(kafka, alike, 0, range(50))
    stream = stream_of(spark, other, subscribe=f"{source},{alike}")

    said = run(stream, way, sink(kafka, out), tmp_path)

    assert said == ""
    assert values(read_topic(out)) == sorted([*range(10), *range(10)])
    for name in (source, alike):
        assert committed(kafka, f"p-{out}", name) == [None]
        assert committed(other, f"p-{out}", name) == [None]


def test_an_empty_group_commits_no_offsets(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, read_topic, tmp_path: Path
) -> None:
    source, out = topic(1), topic(1)
    produce(kafka, source, 0, range(5))

    for way in ("format", "foreachBatch"):
        options = sink(kafka, out, **{"offsets.group": "", "pipeline": f"p-{out}-{way}"})
        assert run(stream_of(spark, kafka, subscribe=source), way, options, tmp_path / way) == ""
        assert committed(kafka, f"p-{out}-{way}", source) == [None]

    assert values(read_topic(out)) == sorted([*range(5), *range(5)])


# ---- without a query


def options_of(kafka: AnyKafka, pipeline: str) -> SinkOptions:
    """A sink's options."""
    return SinkOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, "pipeline": pipeline})


def test_what_is_left_out_is_said_once_with_the_cluster_and_the_way_out(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    options = options_of(kafka, f"p-{name}")
    cluster = Cluster.shared(options.client)
    line = f'{{"{name}": {{"0": 0}}, "version:1": {{}}, "cluster:another": {{}}}}'

    with caplog.at_level(logging.WARNING, "pyspark_kafka_eos.spark.source.source_group"):
        found = [group_offsets(cluster, options, (line,)) for _ in range(3)]

    assert found == [{}] * 3
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"the source topics {name} are of another Kafka cluster (another)" in said
    assert "lost" not in said and "in its checkpoint alone" in said and "Set offsets.group to an empty text" in said


def test_without_a_group_the_doctor_asks_for_no_rights_on_one(kafka: AnyKafka, topic: MakeTopic) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "pipeline": "p", "offsets.group": ""}

    found = examine(SinkOptions.parse({**options, "topic": topic(1)}))

    assert [(each.status, each.seen[:5]) for each in found if each.name == "group"] == [("ok", "none:")]


def test_of_a_source_that_does_not_say_its_cluster_only_what_is_there_counts(kafka: AnyKafka, topic: MakeTopic) -> None:
    there, shorter = topic(1), topic(1)
    produce(kafka, there, 0, range(5))
    produce(kafka, shorter, 0, range(5))
    options = options_of(kafka, f"p-{there}")
    lines = (
        f'{{"{there}": {{"0": 5}}, "{shorter}": {{"0": 6}}, "nowhere": {{"0": 1}}}}',
        f'1:{{"{there}": {{"0": 4, "9": 1}}}}',
    )

    assert group_offsets(Cluster.shared(options.client), options, lines[:1]) == {
        TopicPartition(there, 0): GroupOffset(5)
    }
    assert group_offsets(Cluster.shared(options.client), options, lines) == {}
