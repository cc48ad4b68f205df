"""Transaction markers: the coordinator's decision in the partitions' logs.

Owns: writing a marker, waking waiting readers, notifying the group coordinator where the marker ends offsets.
Does not know: transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC
from kafka_core.values import TopicPartition

if TYPE_CHECKING:
    from embedded_kafka.node import Node


class Markers:
    """Writes markers into the logs of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def write(
        self, partition: TopicPartition, producer_id: int, epoch: int, *, commit: bool,
        coordinator_epoch: int, transaction_version: int = 1,
    ) -> None:  # fmt: skip
        """End the producer's transaction in one partition. Refused with the log's code; UNKNOWN_TOPIC_OR_PARTITION."""
        log = self._node.topics.log(partition)
        log.append_marker(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._node.clock.now_ms(),
            transaction_version=transaction_version,
        )
        if partition.topic == OFFSETS_TOPIC:
            self._node.groups.on_marker(partition.partition, producer_id, commit)
        self._node.appended(partition)

    def ended(self, partition: TopicPartition, producer_id: int, epoch: int, since_ms: int) -> bool:
        """Whether the newest batch of the producer there is a marker of this epoch, written at `since_ms` or later.

        A transactional producer's own batches open a transaction: if none is open, its
        newest batch is a marker.
        """
        if not self._node.topics.has(partition):
            return False
        producer = self._node.topics.log(partition).producer(producer_id)
        return (
            producer is not None
            and producer.transaction_start_offset == -1
            and producer.epoch == epoch
            and producer.last_timestamp_ms >= since_ms
        )
