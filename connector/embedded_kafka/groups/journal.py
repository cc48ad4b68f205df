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
        """Refused(NOT_COORDINATOR) where the group's records are damaged: no answer is better than a wrong one."""
        offline = self._logs.offline(OFFSETS_TOPIC)
        if offline and self.partition_for(group_id) in offline:
            raise Refused(Code.NOT_COORDINATOR, f"the partition of {OFFSETS_TOPIC} with {group_id} is offline")

    def offsets_of(self, group_id: str) -> OffsetStore:
        """The offsets of the group's partition."""
        return self._store(self.partition_for(group_id))

    def load(self, limits: Limits) -> Iterator[Group]:
        """Load everything; yields the existing groups. CorruptBatch or UnsupportedVersion for an unreadable
        record, OptionsError for a record that was written with another number of partitions."""
        for partition, partition_log in self._logs.existing(OFFSETS_TOPIC):
            groups: dict[str, Group] = {}
            store = self._store(partition)
            keys: dict[bytes, OffsetKey | GroupKey | None] = {}
            try:
                for batch in partition_log.scan_batches():
                    _replay(batch, groups, store, limits, keys)
            except Refused as damaged:
                self._logs.take_offline(OFFSETS_TOPIC, partition, damaged)
                del self._stores[partition]
                continue
            for group_id in store.group_ids():
                groups.setdefault(group_id, Group(group_id, limits))
            if any(self.partition_for(group_id) != partition for group_id in groups):
                raise OptionsError(
                    "the offsets of groups were written with another number of partitions; nothing was "
                    "changed; restore that number",
                    {"offsets_topic_partitions": self._partitions},
                )
            yield from groups.values()

    def write_group(self, group: Group, now_ms: int) -> None:
        """Write the group's generation with its assignment. Refused where the write fails."""
        self._append(group.group_id, [(encode_group_key(group.group_id), encode_group(group))], now_ms)

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
        records: list[tuple[bytes, bytes | None]] = [
            (encode_offset_key(group_id, where), encode_offset(offset)) for where, offset in offsets
        ]
        first = self._append(group_id, records, now_ms, producer_id, producer_epoch)
        store = self.offsets_of(group_id)
        for at, (where, offset) in enumerate(offsets):
            placed = replace(offset, log_offset=first + at)
            if producer_id == NO_PRODUCER_ID:
                store.put(group_id, where, placed)
            else:
                store.put_pending(producer_id, group_id, where, placed)

    def forget(self, group: Group, partitions: Sequence[TopicPartition], *, with_group: bool, now_ms: int) -> None:
        """Write tombstones for these partitions, and for the group itself. Refused where the write fails."""
        group_id = group.group_id
        records: list[tuple[bytes, bytes | None]] = [(encode_offset_key(group_id, where), None) for where in partitions]
        if with_group and group.generation > 0:
            records.append((encode_group_key(group_id), None))
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
        records: list[tuple[bytes, bytes | None]],
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


def _replay(
    batch: ScannedBatch,
    groups: dict[str, Group],
    store: OffsetStore,
    limits: Limits,
    keys: dict[bytes, OffsetKey | GroupKey | None],
) -> None:
    """`keys`: a cache of decoded keys, because most records have one of few keys."""
    if batch.control_commit is not None:
        store.end_transaction(batch.producer_id, commit=batch.control_commit)
        return
    for record in batch.records:
        name = record.key or b""
        key = keys[name] if name in keys else keys.setdefault(name, decode_key(name))
        if isinstance(key, GroupKey):
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
