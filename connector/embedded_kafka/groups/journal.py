"""The group coordinator's records in `__consumer_offsets`: written to the log first, then to
the offsets in memory.

Owns: the logs' partitions, the committed and pending offsets of each, the order of log and memory.
Does not know: who may commit, members, requests.
Invariants:
- A method changes memory only after the change is in the log.
- Where the log refuses, nothing has changed.
- Loading the log restores the same offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from embedded_kafka.groups.consumers_log import (
    ConsumerKey,
    ConsumersRead,
    Records,
    decode_consumer_key,
    records_of,
)
from embedded_kafka.groups.machine.consumer_value import ConsumerGroup, ConsumerLimits
from embedded_kafka.groups.machine.moves import Group, Limits
from embedded_kafka.groups.offsets import CommittedOffset, OffsetStore
from embedded_kafka.groups.offsets_log import (
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from embedded_kafka.groups.ports import GroupLogs
from embedded_kafka.log import ScannedBatch
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC
from embedded_kafka.topics.java_hash import partition_of
from kafka_core.errors import OptionsError
from kafka_core.protocol.error_codes import Code
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, TopicPartition

log = logging.getLogger(__name__)

Key = OffsetKey | GroupKey | ConsumerKey


class Journal:
    """All partitions of `__consumer_offsets`. `partitions`: how many there are."""

    def __init__(self, logs: GroupLogs, partitions: int) -> None:
        self._logs = logs
        self._partitions = partitions
        self._stores: dict[int, OffsetStore] = {}

    def partition_for(self, group_id: str) -> int:
        """The partition that holds the group."""
        return partition_of(group_id, self._partitions)

    def check(self, group_id: str) -> None:
        """Refused(NOT_COORDINATOR) where another broker has the group, or its records are damaged: no answer is better
        than a wrong one."""
        offline = self._logs.offline(OFFSETS_TOPIC)
        if offline and self.partition_for(group_id) in offline:
            raise Refused(
                Code.NOT_COORDINATOR, f"the partition of {OFFSETS_TOPIC} with {group_id} is not served by this broker"
            )

    def offsets_of(self, group_id: str) -> OffsetStore:
        """The offsets of the group's partition."""
        return self._store(self.partition_for(group_id))

    def load(
        self, limits: Limits, consumer_limits: ConsumerLimits, only: int | None = None
    ) -> Iterator[Group | ConsumerGroup]:
        """Load everything, or one partition; yields the groups of both kinds. CorruptBatch or UnsupportedVersion for an
        unreadable record, OptionsError for a record that was written with another number of partitions."""
        for partition, partition_log in self._logs.existing(OFFSETS_TOPIC):
            if only not in (None, partition):
                continue
            groups: dict[str, Group] = {}
            consumers = ConsumersRead()
            store = self._store(partition)
            keys: dict[bytes, Key | None] = {}
            try:
                for batch in partition_log.scan_batches():
                    _replay(batch, groups, consumers, store, limits, keys)
            except Refused as damaged:
                self._logs.take_offline(OFFSETS_TOPIC, partition, damaged)
                del self._stores[partition]
                continue
            found = {group.group_id: group for group in consumers.groups(consumer_limits)}
            for group_id in store.group_ids():
                if group_id not in found:
                    groups.setdefault(group_id, Group(group_id, limits))
            if any(self.partition_for(group_id) != partition for group_id in [*groups, *found]):
                raise OptionsError(
                    "the offsets of groups were written with another number of partitions; nothing was "
                    "changed; restore that number",
                    {"offsets_topic_partitions": self._partitions},
                )
            yield from groups.values()
            yield from found.values()

    def drop_partition(self, partition: int) -> None:
        """Forget a partition's offsets; its log keeps them."""
        self._stores.pop(partition, None)

    def write_group(self, group: Group, now_ms: int) -> None:
        """Write the group's generation with its assignment. Refused where the write fails."""
        self._append(group.group_id, generation_of(group), now_ms)

    def write_records(self, group_id: str, records: Records, now_ms: int) -> None:
        """Write records of one group in one batch. Refused where the write fails."""
        self._append(group_id, records, now_ms)

    def commit(
        self,
        group_id: str,
        offsets: Sequence[tuple[TopicPartition, CommittedOffset]],
        *,
        now_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_EPOCH,
    ) -> None:
        """Commit offsets; with a producer, in its transaction. Refused where the write fails."""
        records: Records = [(encode_offset_key(group_id, where), encode_offset(offset)) for where, offset in offsets]
        first = self._append(group_id, records, now_ms, producer_id, producer_epoch)
        store = self.offsets_of(group_id)
        for at, (where, offset) in enumerate(offsets):
            placed = replace(offset, log_offset=first + at)
            if producer_id == NO_PRODUCER_ID:
                store.put(group_id, where, placed)
            else:
                store.put_pending(producer_id, group_id, where, placed)

    def forget(
        self, group: Group | ConsumerGroup, partitions: Sequence[TopicPartition], *, with_group: bool, now_ms: int
    ) -> None:
        """Write tombstones for these partitions, and for the group itself. Refused where the write fails."""
        group_id = group.group_id
        records: Records = [(encode_offset_key(group_id, where), None) for where in partitions]
        if with_group:
            records += tombstones(group)
        if records:
            self._append(group_id, records, now_ms)
        for where in partitions:
            self.offsets_of(group_id).forget(group_id, where)

    def end_transaction(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """The partition's log has a marker."""
        self._store(partition).end_transaction(producer_id, commit=commit)

    def _store(self, partition: int) -> OffsetStore:
        return self._stores.setdefault(partition, OffsetStore())

    def _append(
        self,
        group_id: str,
        records: Records,
        now_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_EPOCH,
    ) -> int:
        partition_log = self._logs.internal_log(OFFSETS_TOPIC, self.partition_for(group_id))
        first, _last = partition_log.append_internal(
            records,
            now_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id != NO_PRODUCER_ID,
        )
        return first


def generation_of(group: Group) -> Records:
    """The record of a classic group: its generation with its assignment."""
    return [(encode_group_key(group.group_id), encode_group(group))]


def tombstones(group: Group | ConsumerGroup) -> Records:
    """The records after which the group itself is not there any more; its offsets have their own."""
    if isinstance(group, ConsumerGroup):
        return records_of(group.group_id, group, None)
    # A group without a generation was never written.
    return [(encode_group_key(group.group_id), None)] if group.generation > 0 else []


def _replay(
    batch: ScannedBatch,
    groups: dict[str, Group],
    consumers: ConsumersRead,
    store: OffsetStore,
    limits: Limits,
    keys: dict[bytes, Key | None],
) -> None:
    """`keys`: a cache of decoded keys, because most records have one of few keys."""
    if batch.control_commit is not None:
        store.end_transaction(batch.producer_id, commit=batch.control_commit)
        return
    for record in batch.records:
        name = record.key or b""
        key = keys[name] if name in keys else keys.setdefault(name, decode_consumer_key(name) or decode_key(name))
        if isinstance(key, ConsumerKey):
            consumers.take(key, record.value)
        elif isinstance(key, GroupKey):
            if record.value is None:
                groups.pop(key.group_id, None)
            else:
                groups[key.group_id] = decode_group(key.group_id, record.value, limits)
        elif isinstance(key, OffsetKey):
            if record.value is None:
                store.forget(key.group_id, key.where)
            elif batch.transactional:
                offset = decode_offset(record.value, record.offset)
                store.put_pending(batch.producer_id, key.group_id, key.where, offset)
            else:
                store.put(key.group_id, key.where, decode_offset(record.value, record.offset))
        else:
            log.warning("skipped a record of __consumer_offsets of a newer kind, at offset %s", record.offset)
