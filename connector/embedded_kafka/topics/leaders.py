"""Leaders of partitions: which broker leads each, and which epoch began at which offset (KIP-101, KIP-320).

Owns: the file of partitions that have had more than one leader. Every other partition has only
epoch 0, from offset 0 on, under the first of its replicas.
Does not know: requests; which brokers are alive, and why a leader is elected (`cluster.controller`).
Invariants:
- Epochs and the offsets where they begin both grow.
- The log stores batches with epoch 0, which distinguishes them from damage. Reads stamp their leader's epoch.
- A start finds all replicas in sync and every partition led.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from embedded_kafka.refusals import Refused
from embedded_kafka.storage import read_json, write_json
from embedded_kafka.topics.placement import replicas_of
from embedded_kafka.topics.topics import Topics
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

_FILE = "leader-epochs.json"
_UNDEFINED = (-1, -1)
_BASE_AND_LENGTH = struct.Struct(">qi")
_EPOCH_AT = 12

History = list[tuple[int, int]]
"""(epoch, the first offset that it wrote), ascending in both."""

_Key = tuple[UUID, int]
"""A topic's id and a partition: a topic that is recreated begins anew."""


class Leadership(NamedTuple):
    """A partition as metadata show it. `leader`: NO_LEADER where no broker leads it."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Election(NamedTuple):
    """One partition's next leader. `in_sync`: None where it does not change."""

    where: TopicPartition
    leader: int
    in_sync: tuple[int, ...] | None = None


class Leaders:
    """The leaders of all partitions of one data directory. `brokers`: the ids of the cluster's."""

    def __init__(self, directory: Path, topics: Topics, brokers: Sequence[int] = (0,)) -> None:
        self._directory = directory
        self._topics = topics
        self._brokers = tuple(brokers)
        self._histories: dict[_Key, History] = {}
        # Only where they are not the first replica and all replicas.
        self._led: dict[_Key, int] = {}
        self._in_sync: dict[_Key, tuple[int, ...]] = {}
        self.version = 0
        """Grows whenever a partition's leader changes."""

    def load(self) -> None:
        """Read the file; skips entries of topics that no longer exist. A partition that was led by nobody, or by a
        broker that is not there any more, is led by its first replica, under a new epoch.
        """
        lost = []
        for entry in read_json(self._directory / _FILE) or []:
            topic = self._topics.by_id(UUID(entry["topic_id"]))
            if topic is None:
                continue
            key, where = (topic.topic_id, entry["partition"]), TopicPartition(topic.name, entry["partition"])
            self._histories[key] = [(epoch, start) for epoch, start in entry["epochs"]]
            leader = entry.get("leader")
            if leader in self.replicas(where):
                self._led[key] = leader
            elif leader is not None:
                lost.append(Election(where, self.replicas(where)[0]))
        self.elect_all(lost)

    # ---- where it is

    def replicas(self, where: TopicPartition) -> tuple[int, ...]:
        """The brokers that have the partition, the preferred leader first."""
        if len(self._brokers) == 1:
            return self._brokers
        topic = self._topics.get(where.topic)
        if topic is None:
            return replicas_of(where.topic, where.partition, self._topics.default_replicas, self._brokers)
        if where.partition < len(topic.assigned):
            return topic.assigned[where.partition]
        return replicas_of(where.topic, where.partition, topic.replication_factor, self._brokers)

    def leader(self, where: TopicPartition) -> int:
        """The broker that leads it, or would lead it if it existed; NO_LEADER."""
        if self._led:
            key = self._key(where)
            if key in self._led:
                return self._led[key]
        return self.replicas(where)[0]

    def placed(self, where: TopicPartition) -> Leadership:
        """All of it."""
        replicas = self.replicas(where)
        key = self._key(where) if self._led or self._in_sync else None
        return Leadership(
            self._led.get(key, replicas[0]) if key else replicas[0],
            self.epoch(where),
            replicas,
            self._in_sync.get(key, replicas) if key else replicas,
        )

    def in_sync(self, where: TopicPartition) -> tuple[int, ...]:
        """The replicas that have every record."""
        return self.placed(where).in_sync

    def set_in_sync(self, where: TopicPartition, in_sync: tuple[int, ...]) -> None:
        """Replace the replicas in sync; the leader and its epoch stay, as in Kafka."""
        key = self._key(where)
        if key is None:
            return
        if set(in_sync) == set(self.replicas(where)):
            self._in_sync.pop(key, None)
        else:
            self._in_sync[key] = in_sync

    # ---- epochs

    def epoch(self, where: TopicPartition) -> int:
        """The leader's epoch now."""
        return self._history(where)[-1][0]

    def check(self, where: TopicPartition, epoch: int) -> None:
        """Refuse a client whose leader epoch is older or newer; a negative epoch means that it has none (KIP-320)."""
        current = self.epoch(where)
        if 0 <= epoch < current:
            raise Refused(Code.FENCED_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch}")
        if epoch > current:
            raise Refused(Code.UNKNOWN_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch}")

    def end_of(self, where: TopicPartition, epoch: int) -> tuple[int, int]:
        """(the largest epoch up to this one, the offset behind its last record); both -1 where they are unknown.

        As in Kafka, an epoch older than all known ones ends where the first known one begins. Refused where
        the partition does not exist.
        """
        log = self._topics.log(where)
        history = self._history(where)
        # Epochs of deleted records are dropped, except that of the first record still in the log.
        first = max(0, bisect_right(history, log.log_start_offset, key=lambda entry: entry[1]) - 1)
        history = [(each, max(start, log.log_start_offset)) for each, start in history[first:]]
        if epoch == history[-1][0]:
            return epoch, log.end_offset
        if not 0 <= epoch < history[-1][0]:
            return _UNDEFINED
        following = bisect_right(history, epoch, key=lambda entry: entry[0])
        return (history[following - 1][0] if following else epoch), history[following][1]

    def epoch_at(self, where: TopicPartition, offset: int) -> int:
        """The epoch that wrote the record with this offset; at the log's end, the current one."""
        history = self._history(where)
        return history[max(0, bisect_right(history, offset, key=lambda entry: entry[1]) - 1)][0]

    def start_of_epoch(self, where: TopicPartition) -> int:
        """The log's end when the leader was elected."""
        return self._history(where)[-1][1]

    def stamped(self, where: TopicPartition, batches: memoryview) -> memoryview:
        """Whole batches with their leaders' epochs, which no CRC covers; the input itself where
        there was only one leader."""
        if len(batches) == 0 or self._history(where) == _FIRST:
            return batches
        copy, at = bytearray(batches), 0
        while at < len(copy):
            base_offset, length = _BASE_AND_LENGTH.unpack_from(copy, at)
            struct.pack_into(">i", copy, at + _EPOCH_AT, self.epoch_at(where, base_offset))
            at += _BASE_AND_LENGTH.size + length
        return memoryview(copy)

    def elect(self, where: TopicPartition, lost_from: int | None = None, leader: int | None = None) -> int:
        """Elect a new leader (None: the broker that leads it now) that lacks the records from `lost_from` on (None:
        lacks none); returns its epoch. Refused and ValueError mean that nothing has changed."""
        # A partition that does not exist, or whose files are damaged, has no leader to elect.
        self._topics.log(where)
        if lost_from is not None:
            self._topics.cut(where, lost_from)
        self.elect_all([Election(where, self.leader(where) if leader is None else leader)])
        return self.epoch(where)

    def elect_all(self, elections: Iterable[Election]) -> None:
        """Make these brokers the leaders, each under a new epoch. One write of the file, however many there are."""
        for where, leader, in_sync in elections:
            key = self._key(where)
            assert key is not None, "a partition that is elected for is of a topic"
            before = self._history(where)
            log = self._topics.opened_log(where)
            # A log that was never used is empty; one whose files are damaged is not looked into.
            end = before[-1][1] if log is None else log.end_offset
            kept = [(epoch, start) for epoch, start in before if start < end]
            self._histories[key] = [*kept, (before[-1][0] + 1, end)]
            self._led[key] = leader
            if in_sync is not None:
                self.set_in_sync(where, in_sync)
            self.version += 1
        self._save()

    def _history(self, where: TopicPartition) -> History:
        if not self._histories:
            return _FIRST
        key = self._key(where)
        return _FIRST if key is None else self._histories.get(key, _FIRST)

    def _key(self, where: TopicPartition) -> _Key | None:
        topic = self._topics.get(where.topic)
        return None if topic is None else (topic.topic_id, where.partition)

    def _save(self) -> None:
        write_json(
            self._directory / _FILE,
            [
                {
                    "topic_id": key[0].hex,
                    "partition": key[1],
                    "epochs": history,
                    **({"leader": self._led[key]} if len(self._brokers) > 1 and key in self._led else {}),
                }
                for key, history in self._histories.items()
                if self._topics.by_id(key[0]) is not None
            ],
        )


_FIRST: History = [(0, 0)]
