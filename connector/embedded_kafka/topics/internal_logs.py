"""The two internal topics, as one broker's coordinators use them.

Owns: the creation of the topics on first use, and which of their partitions this broker may use.
Does not know: what the records mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from embedded_kafka.log import PartitionLog
from embedded_kafka.topics.topics import Topics
from kafka_core.values import TopicPartition


class Standing(Protocol):
    """What a broker is to the partitions of the internal topics."""

    def elsewhere(self, topic: str) -> frozenset[int]:
        """The partitions that it does not lead, for all that it knows."""

    def check_append(self, where: TopicPartition) -> None:
        """Refused where an append that all replicas in sync have to have cannot be acknowledged."""

    def epoch(self, where: TopicPartition) -> int:
        """The partition's leader epoch, for all that it knows."""


class InternalLogs:
    """Logs of `__transaction_state` and `__consumer_offsets`."""

    def __init__(self, topics: Topics, standing: Standing) -> None:
        self._topics = topics
        self._standing = standing

    def internal_log(self, topic: str, partition: int) -> PartitionLog:
        """The partition's log, to append to; creates the topic if it does not exist yet. Refused where this broker
        cannot have an append acknowledged now."""
        self._topics.ensure_internal(topic)
        where = TopicPartition(topic, partition)
        self._standing.check_append(where)
        return self._topics.log(where)

    def existing(self, topic: str) -> Iterator[tuple[int, PartitionLog]]:
        """The partitions that this broker leads and that have ever been written to."""
        elsewhere = self._standing.elsewhere(topic)
        for where, log in self._topics.opened():
            if where.topic == topic and where.partition not in elsewhere:
                yield where.partition, log

    def offline(self, topic: str) -> frozenset[int]:
        """The partitions that this broker does not coordinate: another one leads them, or their files are damaged, so
        their records are unknown."""
        damaged, elsewhere = self._topics.offline(topic), self._standing.elsewhere(topic)
        return damaged | elsewhere if damaged else elsewhere

    def take_offline(self, topic: str, partition: int, error: Exception) -> None:
        """The partition's records cannot be read."""
        self._topics.take_offline(TopicPartition(topic, partition), error)

    def coordinator_epoch(self, topic: str, partition: int) -> int:
        """The epoch under which this broker coordinates what the partition stores."""
        return self._standing.epoch(TopicPartition(topic, partition))
