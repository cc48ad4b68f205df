"""A topic with a seeded past, written by librdkafka, and what librdkafka's own consumer reads of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from kafka_core import runtime
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.model import ClientSettings
from tests.support.brokers import AnyKafka, settle
from tests.support.clock import Skipping

Header = tuple[str, bytes | None]
Record = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...], int, int]
"""Partition, offset, key, value, headers, timestamp in ms, timestamp type (0 set by the producer, 1 by the broker)."""

_TIMEOUT_S = 30


@dataclass
class Writers:
    """Transactional producers that write in turns, and one without transactions."""

    bootstrap_servers: str
    compression: str = "none"
    _made: list[Producer] = field(default_factory=list)

    def plain(self) -> Producer:
        """A producer without transactions."""
        return self._make({})

    def transactional(self, name: str) -> Producer:
        """A producer whose next call may be begin_transaction()."""
        producer = self._make({"transactional.id": name})
        producer.init_transactions(_TIMEOUT_S)
        return producer

    def _make(self, more: dict[str, str]) -> Producer:
        common = {
            "bootstrap.servers": self.bootstrap_servers,
            "compression.type": self.compression,
            "linger.ms": "0",
            "log_level": "0",  # it goes on talking after the broker is gone
        }
        producer = Producer({**common, **more})
        self._made.append(producer)
        return producer


def write(producer: Producer, topic: str, partition: int, records: list[dict[str, object]]) -> None:
    """Send records and wait until they are in the log."""
    for record in records:
        producer.produce(topic, partition=partition, **record)
    assert producer.flush(_TIMEOUT_S) == 0


def some_records(dice: random.Random, count: int) -> list[dict[str, object]]:
    """Records with null and empty keys and values, with and without headers, some of them long."""
    return [
        {
            "key": dice.choice([None, b"", b"k%d" % number]),
            "value": dice.choice([None, b"", dice.randbytes(dice.randrange(1, 300)), b"same " * 40]),
            "headers": dice.choice([None, [], [("a", b"1"), ("a", None), ("\u00e9", b"")]]),
            "timestamp": 1_600_000_000_000 + dice.randrange(10**9),
        }
        for number in range(count)
    ]


def past(writers: Writers, topic: str, partitions: int, seed: int, steps: int = 25) -> None:
    """Write a past to the topic: transactions of two producers that interleave on the same partitions, some aborted,
    some empty, plain records in between; each partition ends in markers or in aborted records."""
    dice = random.Random(seed)
    plain = writers.plain()
    names = ("left", "right")
    producers = {name: writers.transactional(f"{topic}.{name}") for name in names}
    is_open = dict.fromkeys(names, False)
    for _ in range(steps):
        name = dice.choice(names)
        partition = dice.randrange(partitions)
        if not is_open[name]:
            producers[name].begin_transaction()
            is_open[name] = True
        choice = dice.random()
        if choice < 0.2:
            write(plain, topic, partition, some_records(dice, dice.randrange(1, 4)))
        elif choice < 0.7:
            write(producers[name], topic, partition, some_records(dice, dice.randrange(1, 8)))
        else:
            end(producers[name], commit=choice < 0.85)
            is_open[name] = False
    for name in names:
        if not is_open[name]:
            producers[name].begin_transaction()
        for partition in range(partitions):
            write(producers[name], topic, partition, some_records(dice, 2))
    end(producers["left"], commit=True)
    end(producers["right"], commit=False)
    settle(writers.bootstrap_servers, topic)


def end(producer: Producer, *, commit: bool) -> None:
    """End the producer's open transaction."""
    if commit:
        producer.commit_transaction(_TIMEOUT_S)
    else:
        producer.abort_transaction(_TIMEOUT_S)


def judged(bootstrap_servers: str, topic: str, partitions: int, isolation: str) -> list[Record]:
    """What librdkafka's consumer reads of a topic from its beginning to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "judge",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Record] = []
        left = set(range(partitions))
        while left:
            message = consumer.poll(_TIMEOUT_S)
            assert message is not None, f"librdkafka came to no end of {left}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
                continue
            kind, timestamp_ms = message.timestamp()
            found.append(
                (
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    timestamp_ms,
                    kind - 1,
                )
            )
        return sorted(found, key=lambda record: record[:2])
    finally:
        consumer.close()


def records_of(batches: Iterator[pa.RecordBatch]) -> list[Record]:
    """The rows of our batches in the same form, in the order in which they came, partition by partition."""
    found: list[Record] = []
    for batch in batches:
        assert batch.num_rows > 0
        rows = batch.to_pydict()
        headers = rows.get("headers", [None] * batch.num_rows)
        times = batch.column("timestamp").cast("int64").to_pylist()
        for i in range(batch.num_rows):
            entries = tuple((entry["key"], entry["value"]) for entry in headers[i] or ())
            found.append(
                (
                    rows["partition"][i],
                    rows["offset"][i],
                    rows["key"][i],
                    rows["value"][i],
                    entries,
                    times[i] // 1000,
                    rows["timestampType"][i],
                )
            )
    return sorted(found, key=lambda record: record[0])


@pytest.fixture
def pauses_take_no_time() -> Iterator[None]:
    """For scripted brokers, which answer on this thread: nothing there becomes true by waiting."""
    with runtime.replaced(Skipping()):
        yield


@pytest.fixture
def connect() -> Iterator[Callable[[AnyKafka], Cluster]]:
    """Opens clusters of ours, closed at the end of the test."""
    opened: list[Cluster] = []

    def open_cluster(broker: AnyKafka) -> Cluster:
        servers = tuple(broker.bootstrap_servers.split(","))
        cluster = Cluster(ClientSettings(servers))
        opened.append(cluster)
        return cluster

    yield open_cluster
    for cluster in opened:
        cluster.close()
