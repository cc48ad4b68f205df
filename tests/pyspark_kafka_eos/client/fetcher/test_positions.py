"""Questions about offsets, and what is said where offsets are gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition

from kafka_core.errors import BrokerUnavailable, DataLoss, UnknownTopic
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.model import placed
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.client.fetcher.conftest import Writers, end, records_of, write
from tests.support.brokers import AnyKafka, delete_records

pytestmark = pytest.mark.kafka

Connect = Callable[[AnyKafka], Cluster]


def test_both_ends_of_every_partition_are_found(kafka: AnyKafka, topic: MakeTopic, connect: Connect) -> None:
    name = topic(3)
    write(Writers(kafka.bootstrap_servers).plain(), name, 1, [{"value": b"x"}] * 10)
    delete_records(kafka.bootstrap_servers, name, 0, 0)
    offsets = Offsets(connect(kafka))

    partitions = offsets.partitions_of([name])

    assert partitions == [TopicPartition(name, number) for number in range(3)]
    assert list(offsets.earliest(partitions).values()) == [0, 0, 0]
    assert list(offsets.latest(partitions).values()) == [0, 10, 0]


def test_a_time_gives_the_first_record_that_is_not_older(kafka: AnyKafka, topic: MakeTopic, connect: Connect) -> None:
    name = topic(1)
    where = TopicPartition(name, 0)
    times_ms = [1_600_000_000_000 + 1000 * number for number in range(5)]
    write(Writers(kafka.bootstrap_servers).plain(), name, 0, [{"timestamp": at} for at in times_ms])
    offsets = Offsets(connect(kafka))

    assert offsets.at_time({where: times_ms[2]}) == {where: 2}
    assert offsets.at_time({where: times_ms[2] + 1}) == {where: 3}
    assert offsets.at_time({where: times_ms[4] + 1}) == {where: None}


def test_a_topic_that_does_not_exist_is_named(kafka: AnyKafka, connect: Connect) -> None:
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        Offsets(connect(kafka)).partitions_of(["no-such-topic"])


def test_a_partition_that_does_not_exist_is_named(kafka: AnyKafka, topic: MakeTopic, connect: Connect) -> None:
    with pytest.raises(UnknownTopic, match="no partition 2"):
        Offsets(connect(kafka)).latest([TopicPartition(topic(2), 2)])


def test_committed_offsets_are_those_of_the_group_and_leave_out_what_it_has_not_committed(
    kafka: AnyKafka, topic: MakeTopic, connect: Connect
) -> None:
    name = topic(3)
    theirs = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{name}-group"})
    theirs.commit(offsets=[TheirPartition(name, 0, 5), TheirPartition(name, 2, 0)], asynchronous=False)
    theirs.close()
    offsets = Offsets(connect(kafka))
    expected = {TopicPartition(name, 0): 5, TopicPartition(name, 2): 0}

    assert offsets.committed(f"{name}-group") == placed(expected)
    assert offsets.committed(f"{name}-group", [TopicPartition(name, n) for n in range(3)]) == placed(expected)
    assert offsets.committed("group-without-offsets") == {}


def test_committed_offsets_of_an_open_transaction_are_waited_for(
    kafka: AnyKafka, topic: MakeTopic, connect: Connect
) -> None:
    name = topic(1)
    group = f"{name}-group"
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    producer = Writers(kafka.bootstrap_servers).transactional(f"{name}.offsets")
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TheirPartition(name, 0, 3)], consumer.consumer_group_metadata(), 30)
    offsets = Offsets(connect(kafka))

    with pytest.raises(BrokerUnavailable, match="transaction that commits offsets of this group may still be open"):
        offsets.committed(group, [TopicPartition(name, 0)], deadline_ms=200)
    end(producer, commit=True)

    assert offsets.committed(group, [TopicPartition(name, 0)]) == placed({TopicPartition(name, 0): 3})
    consumer.close()


def test_deleted_offsets_stop_the_reader_before_anything_is_skipped(
    kafka: AnyKafka, topic: MakeTopic, connect: Connect
) -> None:
    name = topic(1)
    where = TopicPartition(name, 0)
    write(Writers(kafka.bootstrap_servers).plain(), name, 0, [{"value": b"%d" % n} for n in range(10)])
    delete_records(kafka.bootstrap_servers, name, 0, 4)
    cluster = connect(kafka)

    with pytest.raises(DataLoss, match="offsets 1 to 3 are deleted") as caught:
        list(Fetcher(cluster).read_ranges([OffsetRange(where, 1, 8)]))
    assert caught.value.facts["earliest"] == 4

    tolerant = Fetcher(cluster, fail_on_data_loss=False)
    assert [record[1] for record in records_of(tolerant.read_ranges([OffsetRange(where, 1, 8)]))] == [
        4,
        5,
        6,
        7,
    ]
    assert list(tolerant.read_ranges([OffsetRange(where, 1, 3)])) == []


def test_offsets_behind_the_end_of_a_partition_are_lost_data(
    kafka: AnyKafka, topic: MakeTopic, connect: Connect
) -> None:
    name = topic(1)
    where = TopicPartition(name, 0)
    write(Writers(kafka.bootstrap_servers).plain(), name, 0, [{"value": b"x"}] * 3)
    cluster = connect(kafka)

    with pytest.raises(DataLoss, match="the partition ends at 3"):
        list(Fetcher(cluster).read_ranges([OffsetRange(where, 50, 60)]))

    assert list(Fetcher(cluster, fail_on_data_loss=False).read_ranges([OffsetRange(where, 50, 60)])) == []
