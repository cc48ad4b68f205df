"""One partition's log in memory: real record batches, and what it remembers of its producers.

Owns: offsets, the last stable offset, markers, losing records at either end.
Does not know: coordinators, requests. What may be written is judged by `machines.producer_state`, as in the embedded broker.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from embedded_kafka.log.producer_state import (
    DataBatch,
    Duplicate,
    Marker,
    ProducerState,
    Refusal,
    after_batch,
    after_marker,
    judge,
)
from embedded_kafka.log.records import EndMarker, encode_marker
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.records import BatchInfo, MarkerKind, control_marker, scan

_PLACE = struct.Struct(">q")


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


class MemoryLog:
    """A partition with one replica."""

    def __init__(self) -> None:
        self.batches: list[Stored] = []
        self.start = 0
        self.end = 0
        self.producers: dict[int, ProducerState] = {}
        self.epoch = 0
        """The leader's."""
        self.lags: int | None = None
        """The high watermark of a new leader that does not know yet how far its followers are; None where it knows."""

    @property
    def high_watermark(self) -> int:
        """Where readers of all records stop."""
        return self.end if self.lags is None else self.lags

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop."""
        opened = [state.open_since for state in self.producers.values() if state.open_since is not None]
        return min([*opened, self.high_watermark])

    def has_open(self, info: BatchInfo) -> bool:
        """Whether the batch goes on with a transaction that is open here."""
        state = self.producers.get(info.producer_id)
        return state is not None and state.open_since is not None and state.epoch == info.producer_epoch

    def append(self, batch: bytes, *, now_ms: int, transaction_version: int) -> tuple[Code, int]:
        """Write a client's batch; the code, and where it stands (of a duplicate: where it stood before)."""
        ((info, _),) = scan(batch)
        if info.producer_id >= 0:
            state = self.producers.get(info.producer_id, ProducerState(info.producer_id))
            verdict = judge(
                state, _data_batch(info, self.end), now_ms, transaction_version=transaction_version
            )
            if isinstance(verdict, Refusal):
                return Code[verdict.reason.name], -1
            if isinstance(verdict, Duplicate):
                return Code.NONE, verdict.batch.first_offset
            self.producers[info.producer_id] = verdict.state
        return Code.NONE, self._store(batch)

    def mark(self, producer_id: int, epoch: int, *, commit: bool, now_ms: int) -> None:
        """Write the marker that ends a producer's transaction here."""
        state = self.producers.get(producer_id, ProducerState(producer_id))
        self.producers[producer_id] = after_marker(state, Marker(epoch, 0, self.end, now_ms), now_ms)
        self._store(bytes(encode_marker(producer_id, epoch, EndMarker(commit, 0), timestamp_ms=now_ms)))

    def read(self, offset: int, max_bytes: int, *, committed: bool) -> bytes | None:
        """Whole batches from an offset on, one at least where there is one; None where the offset is out of range."""
        if not self.start <= offset <= self.end:
            return None
        limit = self.last_stable_offset if committed else self.high_watermark
        found: list[bytes] = []
        size = 0
        for each in self.batches:
            if each.info.last_offset < offset or each.info.base_offset >= limit:
                continue
            if found and size + len(each.data) > max_bytes:
                break
            found.append(each.data)
            size += len(each.data)
        return b"".join(found)

    def since(self, time_ms: int, end: int) -> int:
        """The first batch before `end` that has a record or a marker of that time or later; -1 where none has."""
        found = (each.info for each in self.batches if each.info.max_timestamp_ms >= time_ms)
        return next((info.base_offset for info in found if info.base_offset < end), -1)

    # ---- what happens to logs

    def lose_beginning(self, start: int) -> None:
        """Retention: nothing before this offset is left."""
        self.start = start
        self.batches = [each for each in self.batches if each.info.last_offset >= start]

    def lose_tail(self, end: int) -> None:
        """An unclean election: nothing from this offset on was ever written."""
        self.epoch += 1
        kept = [each for each in self.batches if each.info.last_offset < end]
        self.batches, self.end, self.producers = [], end, {}
        for each in kept:
            self._replay(each)

    def compact(self, *offsets: int) -> None:
        """The batches that begin at these offsets are gone; offsets stay."""
        self.batches = [each for each in self.batches if each.info.base_offset not in offsets]

    def _replay(self, each: Stored) -> None:
        info, state = (
            each.info,
            self.producers.get(each.info.producer_id, ProducerState(each.info.producer_id)),
        )
        self.batches.append(each)
        if info.control:
            ended = Marker(info.producer_epoch, 0, info.base_offset, info.max_timestamp_ms)
            self.producers[info.producer_id] = after_marker(state, ended, 0)
        elif info.producer_id >= 0:
            self.producers[info.producer_id] = after_batch(state, _data_batch(info, info.base_offset), 0)

    def _store(self, batch: bytes) -> int:
        placed = _PLACE.pack(self.end) + batch[_PLACE.size :]
        ((info, _),) = scan(placed)
        self.batches.append(Stored(info, placed))
        self.end = info.last_offset + 1
        return info.base_offset


def _data_batch(info: BatchInfo, first_offset: int) -> DataBatch:
    last = first_offset + info.last_offset - info.base_offset
    return DataBatch(
        info.producer_epoch,
        info.base_sequence,
        first_offset,
        last,
        info.max_timestamp_ms,
        info.transactional,
    )


__all__ = ["MemoryLog", "Stored"]
