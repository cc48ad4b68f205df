"""One partition's log in the broker on the test's thread: what is in it, and what happens to logs.

Owns: reading whole batches past any leader that is a fault, and losing records at either end or between.
Does not know: requests, coordinators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embedded_kafka.faults.fault import Fault, LeaderFault
from embedded_kafka.log import PartitionLog
from embedded_kafka.log.segments import swap
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.records import BatchInfo, MarkerKind, control_marker, scan

if TYPE_CHECKING:
    from tests.pyspark_kafka_eos.commit.node_kafka import NodeKafka


@dataclass(frozen=True)
class Stored:
    """One batch as it stands in the log."""

    info: BatchInfo
    data: bytes

    @property
    def commit(self) -> bool | None:
        """What a marker says; None for records."""
        if not self.info.control:
            return None
        return control_marker((self.info, memoryview(self.data))).kind is MarkerKind.COMMIT


class NodeLog:
    """A partition with one replica."""

    def __init__(self, kafka: NodeKafka, where: TopicPartition) -> None:
        self._kafka = kafka
        self._where = where
        self._lagging: Fault | None = None

    @property
    def _log(self) -> PartitionLog:
        return self._kafka.parts.topics.log(self._where)

    @property
    def batches(self) -> list[Stored]:
        log, offset = self._log, self._log.log_start_offset
        found: list[Stored] = []
        while offset < log.end_offset:
            read = log.read(offset, 1 << 30, read_committed=False, at_least_one=True)
            found += [Stored(info, bytes(data)) for info, data in scan(bytes(read.records))]
            offset = read.next_offset
        return found

    @property
    def end(self) -> int:
        return self._log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop."""
        return self._log.last_stable_offset

    def append(self, batch: bytes) -> None:
        """A batch of a client that is written without its coordinator's word."""
        self._log.append(batch, now_ms=self._kafka.parts.clock.now_ms())

    # ---- leaders

    def elect(self, epoch: int | None = None) -> None:
        """A new leader that has everything, the next one or so many later."""
        leaders = self._kafka.parts.leaders
        while leaders.elect(self._where) < (epoch or 0):
            pass

    @property
    def lags(self) -> int | None:
        """The high watermark of a new leader that does not know yet how far its followers are; None where it knows."""
        return None if self._lagging is None else self._lagging.end

    @lags.setter
    def lags(self, high_watermark: int | None) -> None:
        if self._lagging is not None:
            self._kafka.release(self._lagging)
        self._lagging = None
        if high_watermark is not None:
            self._lagging = self._kafka.lead(self._where, LeaderFault.LAGGING, high_watermark)

    # ---- what is lost

    def lose_beginning(self, start: int) -> None:
        """Retention: nothing before this offset is left."""
        self._log.delete_records(start)

    def lose_tail(self, end: int) -> None:
        """An unclean election: nothing from this offset on was ever written."""
        self._kafka.parts.leaders.elect(self._where, end)

    def compact(self, *offsets: int) -> None:
        """The batches that begin at these offsets are gone; offsets stay."""
        kept = [each.data for each in self.batches if each.info.base_offset not in offsets]
        end = self.end
        with self._kafka.stopped():
            directory = self._kafka.parts.directory / str(self._where)
            (log,) = directory.glob("*.log")
            for each in directory.iterdir():
                if each != log:
                    each.unlink()
            log.write_bytes(b"".join(kept))
            swap.note(directory, end)
        assert self.end == end, "a cleaner leaves the last batch"


__all__ = ["NodeLog", "Stored"]
