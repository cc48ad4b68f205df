"""Transaction markers: the coordinator's decision in the partitions' logs.

Owns: writing a marker, waking waiting readers, notifying the group coordinator where the marker ends offsets.
Does not know: transactions.
"""

from __future__ import annotations

from collections.abc import Callable

from embedded_kafka.clock import Clock
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC
from embedded_kafka.topics.topics import Topics
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition


class Markers:
    """Writes markers into the logs of one broker.

    on_offsets: called behind a marker in a partition of `__consumer_offsets`, with the partition, the producer id and
    whether
        it commits. on_written: called behind every marker. leads: whether anyone leads a partition now.
    """

    def __init__(
        self,
        topics: Topics,
        clock: Clock,
        *,
        on_offsets: Callable[[int, int, bool], None],
        on_written: Callable[[TopicPartition], None],
        leads: Callable[[TopicPartition], bool] = lambda _where: True,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._on_offsets = on_offsets
        self._on_written = on_written
        self._leads = leads

    async def write(
        self, partition: TopicPartition, producer_id: int, epoch: int, *, commit: bool,
        coordinator_epoch: int, transaction_version: int = 1,
    ) -> None:  # fmt: skip
        """End the producer's transaction in one partition. Refused with the log's code; UNKNOWN_TOPIC_OR_PARTITION;
        NOT_LEADER_OR_FOLLOWER where nobody leads it."""
        if self._topics.has(partition) and not self._leads(partition):
            raise Refused(Code.NOT_LEADER_OR_FOLLOWER, f"no broker leads {partition} now")
        self._topics.log(partition).append_marker(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._clock.now_ms(),
            transaction_version=transaction_version,
        )
        if partition.topic == OFFSETS_TOPIC:
            self._on_offsets(partition.partition, producer_id, commit)
        self._on_written(partition)

    def ended(self, partition: TopicPartition, producer_id: int, epoch: int, since_ms: int) -> bool:
        """Whether the newest batch of the producer there is a marker of this epoch, written at `since_ms` or later.

        A transactional producer's own batches open a transaction: if none is open, its newest batch is a marker.
        """
        if not self._topics.has(partition):
            return False
        producer = self._topics.log(partition).producer(producer_id)
        return (
            producer is not None
            and producer.transaction_start_offset == -1
            and producer.epoch == epoch
            and producer.last_timestamp_ms >= since_ms
        )
