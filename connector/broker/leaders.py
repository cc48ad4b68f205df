"""Leaders of partitions: which epoch began at which offset (KIP-101, KIP-320).

Owns: the file of those partitions that have had more than one leader; each other's only epoch is 0, from offset 0 on.
Does not know: requests. There is one broker, so a new leader comes only where a test elects one.
Invariants: epochs and the offsets where they begin both grow; batches are kept with epoch 0, by which damage is told from
batches, and get their leader's epoch when they are read.
"""

from __future__ import annotations

import struct
import uuid
from bisect import bisect_right
from pathlib import Path

from connector.broker.refusals import Refused
from connector.broker.storage import read_json, write_json
from connector.broker.topics import Topics
from connector.model import TopicPartition
from connector.protocol.error_codes import Code

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
        self._histories: dict[tuple[uuid.UUID, int], History] = {}

    def load(self) -> None:
        """Read the file; what it says of topics that are gone is passed over."""
        for entry in read_json(self._directory / _FILE) or []:
            topic_id = uuid.UUID(entry["topic_id"])
            if self._topics.by_id(topic_id) is not None:
                history = [(epoch, start) for epoch, start in entry["epochs"]]
                self._histories[topic_id, entry["partition"]] = history

    def epoch(self, where: TopicPartition) -> int:
        """The leader's epoch now."""
        return self._history(where)[-1][0]

    def check(self, where: TopicPartition, epoch: int) -> None:
        """Refuse a client that knows an older leader, or a newer one; a negative epoch knows none (KIP-320)."""
        current = self.epoch(where)
        if 0 <= epoch < current:
            raise Refused(Code.FENCED_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch}")
        if epoch > current:
            raise Refused(Code.UNKNOWN_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch}")

    def end_of(self, where: TopicPartition, epoch: int) -> tuple[int, int]:
        """(the largest epoch up to this one, the offset behind its last record); -1 both where that cannot be said.

        As Kafka: an epoch before all that are known ends where the first of those begins. Refused where there is no partition.
        """
        log = self._topics.log(where)
        history = self._history(where)
        # What deleted records were written in is forgotten, but for the epoch of the first record that is kept.
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

    def stamped(self, where: TopicPartition, batches: memoryview) -> memoryview:
        """Whole batches with the epochs of their leaders, which no CRC covers; the very same where there was one leader only."""
        if len(batches) == 0 or self._history(where) == _FIRST:
            return batches
        copy, at = bytearray(batches), 0
        while at < len(copy):
            base_offset, length = _BASE_AND_LENGTH.unpack_from(copy, at)
            struct.pack_into(">i", copy, at + _EPOCH_AT, self.epoch_at(where, base_offset))
            at += _BASE_AND_LENGTH.size + length
        return memoryview(copy)

    def elect(self, where: TopicPartition, lost_from: int | None = None) -> int:
        """Have a new leader, which lacks the records from an offset on; gives its epoch. Refused, ValueError: nothing is changed."""
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
