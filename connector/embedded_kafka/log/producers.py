"""The producers of one partition: their states and open transactions.

Owns: which producers are known, the first unstable offset.
Does not know: what may be written (`producer_state` does), files.
Invariants:
- `open` is ordered by offset, because transactions open at ascending offsets.
- States are ordered by the time of the last write, so the producers that expire come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from embedded_kafka.log.producer_state import (
    Accepted,
    AppendRefusal,
    DataBatch,
    Duplicate,
    Marker,
    ProducerStateEntry,
    after_batch,
    after_marker,
    expired,
)
from embedded_kafka.log.records import BatchHeader, EndMarker
from embedded_kafka.log.segments.aborted import AbortedTransaction
from embedded_kafka.log.values import ActiveProducer
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code


class Producers:
    """States by producer id."""

    def __init__(self, states: Iterable[ProducerStateEntry] = ()) -> None:
        self._states = {state.producer_id: state for state in sorted(states, key=lambda state: state.last_seen_ms)}
        opened = (state for state in self._states.values() if state.open_since is not None)
        self._open = {state.producer_id: state.open_since or 0 for state in sorted(opened, key=_open_since)}

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerStateEntry:
        """The producer's state; that of an unknown one where there is none."""
        return self._states.get(producer_id) or ProducerStateEntry(producer_id)

    def put(self, state: ProducerStateEntry) -> None:
        """The producer's batch is in the log."""
        self._seen(state)
        if state.open_since is not None:
            self._open.setdefault(state.producer_id, state.open_since)

    def end_transaction(self, state: ProducerStateEntry, marker_offset: int, opened_at: int | None, *, commit: bool) -> AbortedTransaction | None:  # fmt: skip
        """The producer's marker is in the log; returns an aborted transaction's entry for the index."""
        self._seen(state)
        self._open.pop(state.producer_id, None)
        if opened_at is None or commit:
            return None
        unstable = self.first_unstable()
        stable = marker_offset + 1 if unstable is None else unstable
        return AbortedTransaction(state.producer_id, opened_at, marker_offset, stable)

    def replay(self, header: BatchHeader, marker: EndMarker | None, now_ms: int) -> AbortedTransaction | None:
        """Apply a batch of the log without checking it; like `end` where it is a marker."""
        if header.producer_id < 0 or (header.control and marker is None):
            return None
        state = self.get(header.producer_id)
        if marker is None:
            self.put(after_batch(state, data_batch(header, header.base_offset), now_ms))
            return None
        ended = Marker(header.producer_epoch, marker.coordinator_epoch, header.base_offset, header.max_timestamp_ms)
        return self.end_transaction(
            after_marker(state, ended, now_ms), header.base_offset, state.open_since, commit=marker.commit
        )

    def shown(self) -> list[ActiveProducer]:
        """Every state in the form of DescribeProducers."""
        return [shown(state) for state in self]

    def first_unstable(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open.values()), None)

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Remove idle producers; returns their number. Examines only these, and the open transactions."""
        gone = []
        for state in self._states.values():
            if expired(state, now_ms, after_ms):
                gone.append(state.producer_id)
            elif state.open_since is None:
                break
        for producer_id in gone:
            del self._states[producer_id]
        return len(gone)

    def _seen(self, state: ProducerStateEntry) -> None:
        self._states.pop(state.producer_id, None)
        self._states[state.producer_id] = state


def data_batch(header: BatchHeader, base_offset: int, max_timestamp_ms: int | None = None) -> DataBatch:
    """The state machine's view of a batch that is, or is to be, at `base_offset`."""
    return DataBatch(
        header.producer_epoch,
        header.base_sequence,
        base_offset,
        base_offset + header.last_offset_delta,
        header.max_timestamp_ms if max_timestamp_ms is None else max_timestamp_ms,
        header.transactional,
    )


def accepted_or_refused(verdict: Accepted | Duplicate | AppendRefusal) -> Accepted:
    """The verdict, or Refused with the code of that name."""
    if isinstance(verdict, AppendRefusal):
        place = "" if verdict.place is None else f" ({verdict.place.name}: {verdict.place.value})"
        raise Refused(Code[verdict.reason.name], verdict.message + place)
    assert isinstance(verdict, Accepted), "duplicates are answered before"
    return verdict


def shown(state: ProducerStateEntry) -> ActiveProducer:
    """The state in the form of DescribeProducers."""
    return ActiveProducer(
        state.producer_id,
        state.epoch,
        state.last_sequence,
        state.last_timestamp_ms,
        state.coordinator_epoch,
        -1 if state.open_since is None else state.open_since,
    )


def _open_since(state: ProducerStateEntry) -> int:
    return state.open_since or 0
