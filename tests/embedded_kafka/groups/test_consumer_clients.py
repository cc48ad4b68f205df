"""librdkafka's consumers of the consumer protocol (KIP-848) on the embedded broker: they share a topic, come and go,
commit, and go on after the broker was killed, and nothing is lost or read twice.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.embedded, pytest.mark.judged, pytest.mark.slow]

PARTITIONS = 6
WAIT_S = 60.0
QUICK = {"group.consumer.heartbeat.interval.ms": "200"}
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(config=QUICK) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers, **QUIET})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(WAIT_S)
        yield running


class Members:
    """Consumers of one group, read together. What they read is committed at once."""

    def __init__(self, kafka: EmbeddedKafka, stack: ExitStack) -> None:
        self._kafka = kafka
        self._stack = stack
        self.running: dict[str, Consumer] = {}
        self.values: Counter[bytes | None] = Counter()

    def add(self, name: str, topic: str = "t", **settings: object) -> Consumer:
        """Start one."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._kafka.bootstrap_servers, "group.id": "g", "group.protocol": "consumer",
                "client.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False, **QUIET, **settings,
            }
        )  # fmt: skip
        self._stack.callback(consumer.close)
        consumer.subscribe([topic])
        self.running[name] = consumer
        return consumer

    def take_away(self, name: str) -> None:
        """One leaves."""
        self.running.pop(name).close()

    def poll(self) -> None:
        """One look of each."""
        for consumer in self.running.values():
            for message in consumer.consume(200, 0.02):
                # Of a broker that is away.
                if message.error() is None:
                    self.values[message.value()] += 1
            try:
                consumer.commit(asynchronous=False)
            except KafkaException:
                # Nothing to commit yet, or the broker is away, or an epoch was crossed: the next look commits.
                continue

    def until(self, said: Callable[[], bool], what: str) -> None:
        """Read on until it is so."""
        stop = threading.Event()
        timer = threading.Timer(WAIT_S, stop.set)
        timer.start()
        try:
            while not said():
                assert not stop.is_set(), f"never happened: {what}; {self.held()}"
                self.poll()
        finally:
            timer.cancel()

    def held(self) -> dict[str, list[int]]:
        """Which partitions each has."""
        return {
            name: sorted(where.partition for where in consumer.assignment()) for name, consumer in self.running.items()
        }

    def shared(self, *counts: int) -> bool:
        """Whether all partitions are held, once each, in shares of these sizes."""
        held = self.held().values()
        return sorted(map(len, held)) == sorted(counts) and sorted(itertools.chain(*held)) == list(range(PARTITIONS))


def test_members_come_and_go_and_the_broker_is_killed_under_load_and_nothing_is_lost_or_read_twice(
    kafka: EmbeddedKafka,
) -> None:
    sent: list[bytes] = []
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, **QUIET})

    def produce() -> None:
        while not stop.wait(0.002):
            sent.append(b"%d" % len(sent))
            producer.produce("t", sent[-1])
            producer.poll(0)

    with ExitStack() as stack:
        members = Members(kafka, stack)
        thread = threading.Thread(target=produce)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)

        members.add("one")
        members.until(lambda: members.shared(6), "one has all")
        members.add("by-expression", "^t$")
        members.until(lambda: members.shared(3, 3), "two share")
        members.add("static", **{"group.instance.id": "i"})
        members.until(lambda: members.shared(2, 2, 2), "three share")
        before = members.held()

        kafka.kill()
        kafka.restart()
        members.poll()
        read = sum(members.values.values())
        members.until(lambda: sum(members.values.values()) > read + 100, "they go on")
        assert members.held() == before

        members.take_away("by-expression")
        members.until(lambda: members.shared(3, 3), "two share again")
        stop.set()
        thread.join()
        assert producer.flush(WAIT_S) == 0
        members.until(lambda: len(members.values) >= len(sent), "everything was read")
        members.poll()

    assert set(members.values) == set(sent)
    assert set(members.values.values()) == {1}


def test_a_member_that_died_without_a_word_is_replaced_when_its_session_ends(kafka: EmbeddedKafka) -> None:
    with ExitStack() as stack:
        members = Members(kafka, stack)
        members.add("dies")
        members.until(lambda: members.shared(6), "one has all")
        # Its heartbeats do not come through any more, and those of others do.
        silent = kafka.fault("ConsumerGroupHeartbeat", "drop-request", client_id="dies", times=1_000)
        members.add("lives")
        members.until(lambda: silent.fired > 0, "its heartbeat is lost")
        dead = members.running.pop("dies")
        assert members.held() == {"lives": []}

        kafka.advance(46_000)

        members.until(lambda: members.shared(6), "the other one has all")
        assert silent.fired > 0
        kafka.clear_faults()
        dead.close()


def test_offsets_of_a_member_go_with_its_transaction(kafka: EmbeddedKafka) -> None:
    with ExitStack() as stack:
        members = Members(kafka, stack)
        consumer = members.add("copies")
        members.until(lambda: members.shared(6), "it has all")
        plain = Producer({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
        for number in range(30):
            plain.produce("t", b"%d" % number)
        assert plain.flush(WAIT_S) == 0
        copier = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "copier", **QUIET})
        copier.init_transactions(WAIT_S)

        def copy(*, commit: bool) -> None:
            copier.begin_transaction()
            copier.produce("copies", b"a copy")
            copier.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WAIT_S
            )
            (copier.commit_transaction if commit else copier.abort_transaction)(WAIT_S)

        got = []
        while len(got) < 30:
            got += consumer.consume(30, 1)
        copy(commit=False)
        assert all(where.offset < 0 for where in consumer.committed(consumer.assignment(), WAIT_S))
        copy(commit=True)

        committed = consumer.committed(consumer.assignment(), WAIT_S)
        assert sum(where.offset for where in committed if where.offset > 0) == 30


def test_a_broker_that_is_told_so_offers_the_classic_protocol_alone() -> None:
    with EmbeddedKafka(config={"group.coordinator.rebalance.protocols": "classic"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("t", b"value")
        assert producer.flush(WAIT_S) == 0
        with closing(Consumer({**settings, **QUIET})) as consumer:
            consumer.subscribe(["t"])

            message = consumer.poll(WAIT_S)

        assert message is not None
        assert message.value() == b"value"
