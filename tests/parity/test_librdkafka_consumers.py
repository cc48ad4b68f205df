"""librdkafka's consumers: groups that share and resume, every codec, times, keys and headers as they were sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.parity.brokers import Broker
from tests.parity.clients import LIBRDKAFKA
from tests.parity.judge import WAIT_S, new_name, new_topic, wait_until, write

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
PARTITIONS = 4
RECORDS = 50


class Member:
    """A member of a group, with what it was given to read."""

    def __init__(self, broker: Broker, group: str, topic: str, strategy: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "partition.assignment.strategy": strategy,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 200,
            }
        )
        self.values: list[bytes | None] = []
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        """One look: news of the group are acted on, records are taken."""
        for message in self.consumer.consume(100, 0.02):
            assert message.error() is None, message.error()
            self.values.append(message.value())

    def partitions(self) -> set[int]:
        """What it is assigned now."""
        return {where.partition for where in self.consumer.assignment()}


def shared(members: list[Member], wanted: list[int]) -> bool:
    """Whether all partitions are assigned, once each, in shares of these sizes; every member is polled."""
    for member in members:
        member.poll()
    held = [member.partitions() for member in members]
    return sorted(map(len, held)) == wanted and set().union(*held) == set(range(PARTITIONS))


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(
            strategy,
            marks=pytest.mark.shows(LIBRDKAFKA, f"consumer group, {strategy}: two members, rebalance, commit, resume"),
        )
        for strategy in ("range", "cooperative-sticky")
    ],
)
def test_a_group_shares_its_partitions_and_goes_on_where_it_had_committed(broker: Broker, strategy: str) -> None:
    topic, group = new_topic(broker, PARTITIONS), new_name("group")

    def fill(run: int) -> list[bytes]:
        written = []
        for partition in range(PARTITIONS):
            values = [b"%d.%d.%d" % (run, partition, number) for number in range(RECORDS)]
            write(broker, topic, values, partition)
            written += values
        return written

    with ExitStack() as stack:
        one = Member(broker, group, topic, strategy)
        stack.enter_context(closing(one.consumer))
        wait_until(lambda: shared([one], [4]), "one member has all")
        two = Member(broker, group, topic, strategy)
        with closing(two.consumer):
            wait_until(lambda: shared([one, two], [2, 2]), "two members have two each")
            first_run = fill(1)

            def read_all() -> bool:
                shared([one, two], [])
                return len(one.values) + len(two.values) >= len(first_run)

            wait_until(read_all, "everything of the first run was read")
            assert len(one.values) == len(two.values)
            assert sorted(value or b"" for value in one.values + two.values) == sorted(first_run)
            for member in (one, two):
                member.consumer.commit(asynchronous=False)
        # The second has left; the first takes over what it had.
        wait_until(lambda: shared([one], [4]), "the one that stays has all again")

    second_run = fill(2)
    three = Member(broker, group, topic, strategy)
    with closing(three.consumer):

        def read_on() -> bool:
            three.poll()
            return len(three.values) >= len(second_run)

        wait_until(read_on, "everything of the second run was read")
    assert sorted(value or b"" for value in three.values) == sorted(second_run)


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    """One without a group's assignment."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": new_name("alone"),
        "check.crcs": True,
    }
    with closing(Consumer(settings)) as found:
        yield found


@pytest.mark.shows(LIBRDKAFKA, "gzip, snappy, lz4, zstd; keys, headers, times, tombstones")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_come_back_as_they_were_sent(broker: Broker, consumer: Consumer, codec: str) -> None:
    topic = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 20})
    sent = [
        (b"key-%d" % number, None if number % 10 == 0 else b"value " * number, 1_600_000_000_000 + number)
        for number in range(500)
    ]
    headers = [("empty", b""), ("none", None), ("twice", b"1"), ("twice", b"2")]
    for key, value, time_ms in sent:
        producer.produce(topic, value, key=key, timestamp=time_ms, headers=headers)
    assert producer.flush(WAIT_S) == 0

    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[tuple[bytes | None, bytes | None, int]] = []
    while len(got) < len(sent):
        messages = consumer.consume(len(sent) - len(got), WAIT_S)
        assert messages, "nothing came"
        for message in messages:
            assert message.error() is None, message.error()
            assert message.headers() == headers
            got.append((message.key(), message.value(), message.timestamp()[1]))
    assert got == sent


@pytest.mark.shows(LIBRDKAFKA, "offsets by time")
def test_an_offset_is_found_by_the_time_of_its_record(broker: Broker, consumer: Consumer) -> None:
    topic = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(100):
        producer.produce(topic, b"value", timestamp=1_600_000_000_000 + 1_000 * number)
        if number % 10 == 9:
            assert producer.flush(WAIT_S) == 0

    def found(time_ms: int) -> int:
        [answer] = consumer.offsets_for_times([TopicPartition(topic, 0, 1_600_000_000_000 + time_ms)], WAIT_S)
        return int(answer.offset)

    assert [found(time_ms) for time_ms in (-1, 0, 1, 41_500, 99_000)] == [0, 0, 1, 42, 99]
    # Later than every record: the end, as librdkafka words it.
    assert found(99_001) == -1
