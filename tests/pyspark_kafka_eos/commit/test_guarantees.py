"""The weaker guarantees without Spark: what is sent how often, and what a lost or refused answer means for each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import ProtocolViolation, RecordTooLarge
from kafka_core.values import TopicPartition as Where
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.group_offsets import commit_group_offsets
from pyspark_kafka_eos.commit.drivers import driver_for
from pyspark_kafka_eos.commit.plain import PlainDriver
from pyspark_kafka_eos.model import ClientSettings, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.writer import write_slot
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit.judge import read_all
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

ROWS = [str(number) for number in range(500)]
ONCE = Counter(ROWS)


def driver(kafka: AnyKafka, topic: str, guarantee: str, **more: Any) -> PlainDriver:
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": topic,
            "delivery.guarantee": guarantee,
            **more,
        }
    )
    found = driver_for(Cluster.shared(options.client), options, "query")
    assert isinstance(found, PlainDriver)
    assert found.start(0) is None
    return found


def write(to: PlainDriver, rows: list[str] | None = None) -> Seal:
    return write_slot(to.plan(0), 0, [pa.RecordBatch.from_pydict({"value": rows or ROWS})])


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_every_record_is_there_once_where_nothing_fails(kafka: AnyKafka, topic: MakeTopic, guarantee: str) -> None:
    name = topic()
    to = driver(kafka, name, guarantee, **{"kafka.batch.size": "1024"})
    # A real broker answers NOT_LEADER_OR_FOLLOWER for a moment after a topic is made: that is a failure, and `none`
    # loses by it.
    assert not read_all(kafka, name)

    seal = write(to)
    report = to.process(0, lambda only: [seal], (), {})

    assert read_all(kafka, name) == ONCE
    assert (report.records, report.slots, seal.empty) == (500, 1, True)


@pytest.mark.embedded
def test_at_least_once_a_lost_answer_is_made_up_for_by_the_same_sequence_sent_again(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    name = topic()
    to = driver(kafka, name, "at-least-once", **{"kafka.request.timeout.ms": "2000"})
    fault = kafka.fault("Produce", "drop-answer")

    write(to)

    assert fault.fired == 1
    assert read_all(kafka, name) == ONCE


@pytest.mark.embedded
def test_none_loses_what_the_leader_refuses_and_says_nothing_to_the_query(
    kafka: EmbeddedKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    to = driver(kafka, name, "none")
    fault = kafka.fault("Produce", "error", code="NOT_LEADER_OR_FOLLOWER")

    seal = write(to)

    assert fault.fired == 1
    assert seal.records == 500
    assert read_all(kafka, name) == Counter()
    assert "1 batches were not acknowledged and are lost" in caplog.text


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_a_row_that_cannot_be_written_fails_the_task_all_the_same(
    kafka: AnyKafka, topic: MakeTopic, guarantee: str
) -> None:
    name = topic(**{"max.message.bytes": "2000"})

    with pytest.raises(RecordTooLarge):
        write(driver(kafka, name, guarantee), ["x" * 3000])

    assert read_all(kafka, name) == Counter()


def test_committed_offsets_are_what_an_ordinary_consumer_of_the_group_gets(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic()
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
    try:
        commit_group_offsets(cluster, f"g-{name}", {Where(name, 0): 7, Where(name, 2): 9})
        commit_group_offsets(cluster, f"g-{name}", {Where(name, 0): 8})
    finally:
        cluster.close()

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"g-{name}"})
    found = consumer.committed([TopicPartition(name, number) for number in range(3)], timeout=30)
    consumer.close()
    assert [each.offset for each in found] == [8, -1001, 9]


def test_a_group_with_members_of_its_own_refuses_offsets_and_the_batch_is_done_all_the_same(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"g-{name}", "enable.auto.commit": False}
    )
    consumer.subscribe([name])
    try:
        while not consumer.assignment():
            consumer.poll(0.2)
        to = driver(kafka, name, "at-least-once", **{"offsets.group": f"g-{name}"})

        with pytest.raises(ProtocolViolation, match="UNKNOWN_MEMBER_ID"):
            commit_group_offsets(to.cluster, f"g-{name}", {Where(name, 0): 7})
        report = to.process(0, lambda only: [write(to)], (), {Where(name, 0): 7})

        assert report.records == 500
        assert "its source offsets are not committed" in caplog.text
        assert consumer.committed([TopicPartition(name, 0)], timeout=30)[0].offset == -1001
    finally:
        consumer.close()
