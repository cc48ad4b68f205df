"""What the parity tests share: topics of their own, an independent reader (librdkafka), waiting with an end.

Owns: the proof that a client did something.
Does not know: the client that is judged, the product.
Invariants: a reader reads to the end that the broker names, so what is missing or twice shows; every wait has an end.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from tests.parity.brokers import Broker
from tests.support.brokers import settle

WAIT_S = 60.0
_LOOK_AGAIN_AFTER_S = 0.05


@dataclass(frozen=True)
class Read:
    """A record as the reader got it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def wait_until(said: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Ask until it is so; an AssertionError naming it when it never is."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not said():
        assert time.monotonic() < deadline, f"never happened: {what}"
        pause.wait(_LOOK_AGAIN_AFTER_S)


def new_name(what: str) -> str:
    """A name that nobody used before."""
    return f"{what}-{uuid.uuid4().hex[:12]}"


def admin_of(broker: Broker) -> AdminClient:
    """librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def new_topic(broker: Broker, partitions: int = 1, *, configs: Mapping[str, str] | None = None) -> str:
    """A new, empty topic that the broker's metadata shows with a leader for every partition."""
    name = new_name("topic")
    admin = admin_of(broker)
    # Tests write records with times long past, which one broker deletes sooner than another.
    new = NewTopic(name, partitions, 1, config={"retention.ms": "-1", **(configs or {})})
    admin.create_topics([new])[name].result(WAIT_S)

    def led() -> bool:
        found = admin.list_topics(name, timeout=WAIT_S).topics[name].partitions
        return len(found) == partitions and all(each.leader >= 0 for each in found.values())

    wait_until(led, f"{name} has leaders")
    return name


def write(broker: Broker, topic: str, values: list[bytes], partition: int = 0) -> None:
    """Plain records, acknowledged; no transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(WAIT_S) == 0


def ends(broker: Broker, topic: str, partitions: int, *, stable: bool = False) -> dict[int, int]:
    """The offset after the last record of each partition; `stable`: after the last that read_committed may see."""
    isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    # Held until its answers are there: nobody answers for a client that was collected.
    admin = admin_of(broker)
    answers = admin.list_offsets(asked, isolation_level=isolation)
    return {where.partition: answer.result(WAIT_S).offset for where, answer in answers.items()}


def read(broker: Broker, topic: str, *, isolation: str = "read_committed", settled: bool = True) -> list[Read]:
    """Every record of the topic, partition by partition in the order of the log.

    settled: wait for the markers of what was ended before; False where a transaction is to stay open.
    """
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "judge",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    found: list[Read] = []
    with closing(Consumer(settings)) as consumer:
        partitions = len(consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)
        if settled:
            settle(broker.bootstrap_servers, topic)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        ended: set[int] = set()
        while len(ended) < partitions:
            message = consumer.poll(WAIT_S)
            assert message is not None, "the judge got no answer"
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert partition is not None and offset is not None
            if error is None:
                found.append(Read(partition, offset, message.key(), message.value()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
    return sorted(found, key=lambda each: (each.partition, each.offset))


def values_of(broker: Broker, topic: str, *, isolation: str = "read_committed", settled: bool = True) -> list[bytes]:
    """The values alone."""
    return [each.value or b"" for each in read(broker, topic, isolation=isolation, settled=settled)]
