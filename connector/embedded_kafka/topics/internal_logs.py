"""The broker's two internal topics, as its coordinators use them.

Owns: the creation of the topics on first use.
Does not know: what the records mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from embedded_kafka.log import PartitionLog
from embedded_kafka.topics.topics import Topics
from kafka_core.values import TopicPartition


class InternalLogs:
    """Logs of `__transaction_state` and `__consumer_offsets`."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def internal_log(self, topic: str, partition: int) -> PartitionLog:
        """The partition's log; creates the topic if it does not exist yet."""
        self._topics.ensure_internal(topic)
        return self._topics.log(TopicPartition(topic, partition))

    def existing(self, topic: str) -> Iterator[tuple[int, PartitionLog]]:
        """The partitions that have ever been written to."""
        for where, log in self._topics.opened():
            if where.topic == topic:
                yield where.partition, log

    def offline(self, topic: str) -> frozenset[int]:
        """The partitions whose files are damaged, so their records are unknown."""
        return self._topics.offline(topic)

    def take_offline(self, topic: str, partition: int, error: Exception) -> None:
        """The partition's records cannot be read."""
        self._topics.take_offline(TopicPartition(topic, partition), error)
