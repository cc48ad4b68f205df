"""Leaders of partitions: which epoch began at which offset (KIP-101, KIP-320).

Owns: the file of partitions that have had more than one leader. Every other partition has only
epoch 0, from offset 0 on.
Does not know: requests. There is one broker, so only a test can elect a new leader.
Invariants:
- Epochs and the offsets where they begin both grow.
- The log stores batches with epoch 0, which distinguishes them from damage. Reads stamp their leader's epoch.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from pathlib import Path
from uuid import UUID

from embedded_kafka.refusals import Refused
from embedded_kafka.storage import read_json, write_json
from embedded_kafka.topics.topics import Topics
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

_FILE = "leader-epochs.json"
_UNDEFINED = (-1, -1)
_BASE_AND_LENGTH = struct.Struct(">qi")
_EPOCH_AT = 12

History = list[tuple[int, int]]
"""(epoch, the first offset that it wrote), ascending in both."""


class Leaders:
    """The leaders of all partitions of one data directory."""

    def __init__(self, directory: Path, topics: Topics) -> None:
        self._directory = directory
        self._topics = topics
        self._histories: dict[tuple[UUID, int], History] = {}

    def load(self) -> None:
        """Read the file; skips entries of topics that no longer exist."""
        for entry in read_json(self._directory / _FILE) or []:
            topic_id = UUID(entry["topic_id"])
            if self._topics.by_id(topic_id) is not None:
                history = [(epoch, start) for epoch, start in entry["epochs"]]
                self._histories[topic_id, entry["partition"]] = history

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

    def elect(self, where: TopicPartition, lost_from: int | None = None) -> int:
        """Elect a new leader that lacks the records from `lost_from` on (None: lacks none); returns its
        epoch. Refused and ValueError mean that nothing has changed."""
        log = self._topics.log(where)
        topic = self._topics.get(where.topic)
        assert topic is not None, "a partition that has a log is of a topic"
        if lost_from is not None:
            log = self._topics.cut(where, lost_from)
        before = self._history(where)
        kept = [(epoch, start) for epoch, start in before if start < log.end_offset]
        self._histories[topic.topic_id, where.partition] = [*kept, (before[-1][0] + 1, log.end_offset)]
        self._save()
        return before[-1][0] + 1

    def _history(self, where: TopicPartition) -> History:
        if not self._histories:
            return _FIRST
        topic = self._topics.get(where.topic)
        return _FIRST if topic is None else self._histories.get((topic.topic_id, where.partition), _FIRST)

    def _save(self) -> None:
        write_json(
            self._directory / _FILE,
            [
                {"topic_id": topic_id.hex, "partition": partition, "epochs": history}
                for (topic_id, partition), history in self._histories.items()
                if self._topics.by_id(topic_id) is not None
            ],
        )


_FIRST: History = [(0, 0)]
