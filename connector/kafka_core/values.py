"""Small values that client and broker share: partitions, and the identity of a writer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_SEQUENCE = -1

DEFAULT_UNPACKED_BYTES = 256 * 1024 * 1024
"""The most bytes that a record that is written, or a batch of records that is read, may have before compression: 256
times a topic's default max.message.bytes. Half is less than what other clients write and read (a value of 140 MB that
packs well); double fills a worker of 1 GB with one batch.
"""


@dataclass(frozen=True, order=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """(topic, its partitions) in order, as Kafka's requests need them."""
    topics: dict[str, list[int]] = {}
    for where in sorted(partitions):
        topics.setdefault(where.topic, []).append(where.partition)
    return list(topics.items())


@dataclass(frozen=True)
class ProducerIdentity:
    """A writer's identity: a producer id and the epoch that fences every older one (KIP-98, KIP-360)."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} epoch {self.epoch}"
