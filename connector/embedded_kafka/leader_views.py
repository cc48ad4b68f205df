"""A partition as the broker that is asked answers for it: as it is, or as an older or lagging leader would.

Owns: what each of these leaders knows: its epoch, its ends, its producers, which records it returns; the refusal of a
broker that does not lead the partition.
Does not know: requests, when a fault fires (`faults`), when a broker is cut off (`cluster.outlook`).
Invariants:
- The present leader's view adds nothing and leaves nothing out.
- An older leader is one and the same, whether a fault names it or the broker is cut off.
- No view has records or producers that the log does not have.
Sources: KIP-207 (OFFSET_NOT_AVAILABLE), KIP-320 (a leader's epoch), Kafka's Partition.fetchOffsetForTimestamp and
UnifiedLog.read (what a leader answers whose high watermark is behind its log's end).
"""

from __future__ import annotations

from embedded_kafka.cluster.outlook import Stand
from embedded_kafka.context import Context
from embedded_kafka.faults.fault import Fault, LeaderFault
from embedded_kafka.log.values import ActiveProducer, ReadResult
from embedded_kafka.parts import Parts, Shared
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition


class View:
    """The partition as its leader has it. Refused where the partition does not exist."""

    def __init__(self, parts: Parts, where: TopicPartition) -> None:
        self._parts, self._where = parts, where
        self._log = parts.topics.log(where)

    @property
    def epoch(self) -> int:
        """The leader's epoch."""
        return self._parts.leaders.epoch(self._where)

    @property
    def high_watermark(self) -> int:
        """Where readers of all records stop."""
        return self._log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop."""
        return self._log.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        """The first offset."""
        return self._log.log_start_offset

    def check(self, epoch: int) -> None:
        """Refuse a client that knows another leader; see `Leaders.check`."""
        self._parts.leaders.check(self._where, epoch)

    def latest(self, committed: bool) -> int:
        """ListOffsets' "latest"; Refused where the leader cannot tell it yet."""
        return self.last_stable_offset if committed else self.high_watermark

    def end_of(self, epoch: int) -> tuple[int, int]:
        """See `Leaders.end_of`."""
        return self._parts.leaders.end_of(self._where, epoch)

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote the record at this offset; at the end, the leader's."""
        return self._parts.leaders.epoch_at(self._where, offset)

    def producers(self) -> list[ActiveProducer]:
        """The producers in the leader's state."""
        return self._log.producers()

    def read(self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool) -> ReadResult:
        """See `PartitionLog.read`."""
        return self._log.read(offset, max_bytes, read_committed=committed, at_least_one=at_least_one)

    def offset_for_timestamp(self, timestamp_ms: int, committed: bool) -> tuple[int, int] | None:
        """See `PartitionLog.offset_for_timestamp`."""
        return self._log.offset_for_timestamp(timestamp_ms, read_committed=committed)

    def offset_of_max_timestamp(self, committed: bool) -> tuple[int, int] | None:
        """See `PartitionLog.offset_of_max_timestamp`."""
        return self._log.offset_of_max_timestamp(read_committed=committed)


class _Behind(View):
    """A leader whose high watermark is before the end of the log."""

    def __init__(self, parts: Parts, where: TopicPartition, stand: Stand) -> None:
        super().__init__(parts, where)
        self._end, self._epoch = stand.end, stand.epoch

    @property
    def high_watermark(self) -> int:
        return min(self._end, self._log.end_offset)

    @property
    def last_stable_offset(self) -> int:
        return min(self._end, self._log.last_stable_offset)

    def read(self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool) -> ReadResult:
        limit = self.last_stable_offset if committed else self.high_watermark
        return self._log.read(offset, max_bytes, read_committed=committed, at_least_one=at_least_one, until=limit)

    def offset_for_timestamp(self, timestamp_ms: int, committed: bool) -> tuple[int, int] | None:
        return self._readable(self._log.offset_for_timestamp(timestamp_ms, read_committed=False), committed)

    def offset_of_max_timestamp(self, committed: bool) -> tuple[int, int] | None:
        return self._readable(self._log.offset_of_max_timestamp(read_committed=False), committed)

    def _readable(self, found: tuple[int, int] | None, committed: bool) -> tuple[int, int] | None:
        limit = self.last_stable_offset if committed else self.high_watermark
        return found if found is not None and found[0] < limit else None


class Lagging(_Behind):
    """`LeaderFault.LAGGING`, until it has appended something: that is acknowledged once its followers have it, and what
    is before it.
    """

    def __init__(self, parts: Parts, where: TopicPartition, stand: Stand) -> None:
        end = parts.topics.log(where).end_offset
        appended = end > parts.leaders.start_of_epoch(where)
        super().__init__(parts, where, stand._replace(end=end) if appended else stand)

    def latest(self, committed: bool) -> int:
        if self._parts.leaders.start_of_epoch(self._where) > self.high_watermark:
            raise Refused(
                Code.OFFSET_NOT_AVAILABLE,
                f"the high watermark {self.high_watermark} is behind the start of the leader's epoch",
            )
        return super().latest(committed)

    def _readable(self, found: tuple[int, int] | None, committed: bool) -> tuple[int, int] | None:
        readable = super()._readable(found, committed)
        if readable is None:
            self.latest(committed)
        return readable


class Stale(_Behind):
    """`LeaderFault.STALE`."""

    def __init__(self, parts: Parts, where: TopicPartition, stand: Stand) -> None:
        super().__init__(parts, where, stand)
        self._producers = self._log.producers_at(self.high_watermark, parts.clock.now_ms())

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def last_stable_offset(self) -> int:
        unstable = self._producers.first_unstable()
        return self.high_watermark if unstable is None else unstable

    def check(self, epoch: int) -> None:
        if 0 <= epoch < self.epoch:
            raise Refused(Code.FENCED_LEADER_EPOCH, f"the leader's epoch is {self.epoch}, not {epoch}")
        if epoch > self.epoch:
            raise Refused(Code.UNKNOWN_LEADER_EPOCH, f"the leader's epoch is {self.epoch}, not {epoch}")

    def end_of(self, epoch: int) -> tuple[int, int]:
        if epoch == self.epoch:
            return epoch, self.high_watermark
        if epoch > self.epoch:
            return -1, -1
        found, end = super().end_of(epoch)
        return found, min(end, self.high_watermark)

    def epoch_at(self, offset: int) -> int:
        return self.epoch if offset >= self.high_watermark else min(self.epoch, super().epoch_at(offset))

    def producers(self) -> list[ActiveProducer]:
        return self._producers.shown()

    def read(self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool) -> ReadResult:
        if offset > self.high_watermark:
            raise Refused(Code.OFFSET_OUT_OF_RANGE, f"offset {offset} is behind the log's end {self.high_watermark}")
        return super().read(offset, max_bytes, committed=committed, at_least_one=at_least_one)


_VIEWS: dict[LeaderFault, type[_Behind]] = {LeaderFault.STALE: Stale, LeaderFault.LAGGING: Lagging}


def view(parts: Parts, where: TopicPartition, api_key: int, context: Context, *, replica: bool = False) -> View:
    """The partition as this broker answers a request of this API. Refused where it does not exist, or the broker does
    not lead it; `replica`: one that follows may answer, too."""
    return view_by(parts, where, parts.faults.leading(where, api_key, context.client_id), replica=replica)


def view_by(parts: Parts, where: TopicPartition, fault: Fault | None, *, replica: bool = False) -> View:
    """The partition as the leader of a fault answers, without one as this broker does."""
    if fault is not None:
        assert isinstance(fault.action, LeaderFault) and fault.end is not None
        return _VIEWS[fault.action](parts, where, Stand(fault.end, fault.leader_epoch))
    replaced = parts.outlook.stand_of(where, replica=replica)
    return View(parts, where) if replaced is None else Stale(parts, where, replaced)


def epoch_in_metadata(parts: Parts, where: TopicPartition, api_key: int, context: Context) -> int:
    """The epoch of the leader that metadata name. Opens no log."""
    fault = parts.faults.leading(where, api_key, context.client_id)
    stale = fault is not None and fault.action is LeaderFault.STALE
    return fault.leader_epoch if fault is not None and stale else parts.outlook.epoch(where)


def take_stand(parts: Shared, fault: Fault) -> Fault:
    """Fill in what the leader of a fault knows: it ends at `end` (None: where the log ends now). A LAGGING one is
    elected by this. Refused for an unknown partition, ValueError for an offset outside of the log; nothing has changed
    then.
    """
    assert fault.topic is not None and fault.partition is not None, "a Fault of a leader has both"
    where = TopicPartition(fault.topic, fault.partition)
    log = parts.topics.log(where)
    end = log.end_offset if fault.end is None else fault.end
    if not log.log_start_offset <= end <= log.end_offset:
        raise ValueError(f"{where} reaches from offset {log.log_start_offset} to {log.end_offset}, not to {end}")
    if fault.action is LeaderFault.LAGGING:
        parts.controller.elect(where)
    fault.end, fault.leader_epoch = end, parts.leaders.epoch_at(where, max(0, end - 1))
    return fault
