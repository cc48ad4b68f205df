"""Reads the ledger's records of one pipeline: its newest decision, a decision without its end, and the notes.

Owns: finding these in one partition, and reading on from where the last reading ended.
Does not know: what follows from them; waiting.
Invariants:
- A decision counts where its transaction is committed or a note states that it is.
- Nothing is inferred from a log that was not read to its end.
- Records are read once, except decisions that had no end yet, and decoded once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow.compute as pc

from kafka_core.errors import LedgerUnreadable
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.commit.ledger.joining import decision_in, settled_in
from pyspark_kafka_eos.commit.ledger.notes import (
    Aborted,
    Began,
    Ended,
    Mending,
    Moved,
    Renamed,
    Settled,
    SettledInParts,
    from_bytes,
    is_note_of,
    is_part_of,
)
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.records import Batch, MarkerKind, control_marker, decode_chunks, scan

K = TypeVar("K")
N = TypeVar("N", Aborted, Ended, Mending, Began | Renamed | Moved)
S = TypeVar("S", Began, Renamed, Moved)

_WINDOW = 500
"""Offsets read at first when looking for the newest decision, backwards from the end; doubled each time."""


_NOWHERE = TopicPartition("", -1)


@dataclass(frozen=True, order=True)
class LedgerRecord:
    """A record under the pipeline's key, in one partition. `identity`: the producer of its transaction, None where it
    is in none. `value`: None of a tombstone.
    """

    offset: int
    value: bytes | None
    identity: ProducerIdentity | None = field(default=None, compare=False)
    where: TopicPartition = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True)
class LedgerView:
    """What the ledger contains of a pipeline at one moment.

    `newest` is the newest committed decision; `ended`: whether a note states its end; `driver`: the identity of the
    driver's id at that end, None where no note names it. `open` is a decision without a marker; `settled`: whether a
    note states that it is committed all the same (then it may be `newest` too). `all_open`: every decision without a
    marker that the producer of `open` wrote, `open` first; the next marker of that producer ends them all. `mendings`:
    the newest note for each transactional id;
    `unfinished`: those among them that may still be open, because they are younger than a decision that is not ended.
    `mended_at`: where in the ledger each of `mendings` stands. `aborted`: id -> the newest identity that a note states
    to be aborted. `later`: id -> the identity of its newest mending, where that is younger than the newest decision.
    `mended`: every mending that a note states. `ends`: every end that a note states. `began`: the newest note of a
    first start. `where`: the partition that has `newest`. `renamed`: the newest note that the query goes on under
    another name. `moved`: the note behind `newest` that a later decision may be in another partition. `forgotten`: the
    newest record is a tombstone, so there is no such pipeline (any more).
    """

    newest: Decision | None = None
    ended: bool = False
    driver: ProducerIdentity | None = None
    open: LedgerRecord | None = None
    settled: bool = False
    all_open: tuple[LedgerRecord, ...] = ()
    ends: frozenset[Ended] = frozenset()
    mendings: Mapping[str, Mending] = field(default_factory=dict)
    mended_at: Mapping[str, tuple[TopicPartition, int]] = field(default_factory=dict)
    aborted: Mapping[str, ProducerIdentity] = field(default_factory=dict)
    unfinished: tuple[Mending, ...] = ()
    began: Began | None = None
    renamed: Renamed | None = None
    later: Mapping[str, ProducerIdentity] = field(default_factory=dict)
    mended: frozenset[tuple[str, ProducerIdentity]] = frozenset()
    where: TopicPartition | None = None
    moved: Moved | None = None
    forgotten: bool = False

    @property
    def last_commits(self) -> dict[str, ProducerIdentity]:
        """Transactional id -> the identity under which its coordinator shows its last commit, as far as the newest
        decision and the notes behind it say.
        """
        return (self.newest.ends if self.newest is not None else {}) | dict(self.later)


class LedgerReader:
    """One pipeline's records in its partition of the ledger. Not for several threads."""

    def __init__(self, cluster: Cluster, where: TopicPartition, pipeline: str) -> None:
        self.where = where
        self._cluster = cluster
        self._pipeline = pipeline
        self._key = pipeline.encode()
        self._position: int | None = None
        self._decoded: tuple[LedgerRecord, Decision] | None = None
        """The decision that was put together last. A view is made for each question, and one of 10,000 tasks takes 0.3
        s to decode.
        """
        self._clear()

    def _clear(self) -> None:
        self._committed: list[LedgerRecord] = []
        self._open: list[LedgerRecord] = []
        self._settled: list[Settled] = []
        self._ended: dict[Ended, tuple[int, Ended]] = {}
        self._mendings: dict[str, tuple[int, Mending]] = {}
        self._aborted: dict[str, tuple[int, Aborted]] = {}
        self._single: dict[type, tuple[int, Began | Renamed | Moved]] = {}
        """The newest note of each kind that a pipeline has one of, and where it stands."""
        self._mended: set[tuple[str, ProducerIdentity]] = set()

    @property
    def unread(self) -> bool:
        """Whether the log's beginning has to be known for the next reading."""
        return self._position is None

    def read_on(self, begin: int | None, end: int) -> LedgerView:
        """Read on to `end`, the high watermark. `begin`: the log's first offset; None where nobody has asked.
        LedgerUnreadable for a record under this pipeline's keys that cannot be read.
        """
        if self._position is not None and self._position <= end:
            lower = min([self._position, *(record.offset for record in self._open)])
            self._open = []
            if not self._read_between(lower, end):
                self._position = None
        else:
            self._position = None
        if self._position is None:
            self._clear()
            if begin is None:
                begin = Offsets(self._cluster).earliest([self.where])[self.where]
            self._read_backwards(begin, end)
        self._position = end
        return self._view()

    def _read_backwards(self, earliest: int, end: int) -> None:
        window, upper = _WINDOW, end
        while upper > earliest:
            lower = max(earliest, upper - window)
            self._read_between(lower, upper)
            # A note may be far behind its decision; every record newer than that decision is behind it too.
            if self._committed or any(note.offset >= lower for note in self._settled):
                return
            window, upper = window * 2, lower

    def _read_between(self, lower: int, upper: int) -> bool:
        """Add the records between two offsets; False where the log no longer has all of them."""
        pending: dict[int, list[LedgerRecord]] = {}
        offset = lower
        # A marker may be behind `upper`, so reading continues until every relevant transaction has its own.
        while offset < upper or pending:
            read = read_raw(self._cluster, self.where, offset)
            if read.out_of_range:
                return False
            following = offset
            batches = list(scan(bytes(read.records)))
            found = self._ours(batches, lower, upper)
            for info, data in batches:
                following = max(following, info.last_offset + 1)
                if info.control:
                    # Nearly all markers end another pipeline's decision.
                    if info.producer_id in pending:
                        self._committed += _committed_by((info, data), pending)
                elif ours := found.get(info.base_offset):
                    if info.transactional:
                        pending.setdefault(info.producer_id, []).extend(ours)
                    else:
                        # Not written by a driver: a foreign record, which `Decision.from_bytes` judges.
                        self._committed += ours
            # Where the log ends, the broker would hold a further request in vain.
            if following == offset or following >= read.high_watermark:
                break
            offset = following
        self._open += [record for records in pending.values() for record in records]
        return True

    def _ours(self, batches: Sequence[Batch], lower: int, upper: int) -> dict[int, list[LedgerRecord]]:
        """The records under the pipeline's own key, by their batch's base offset. Keeps the pipeline's notes as a side
        effect.

        All batches are decoded together: nearly all are other pipelines', of one record each, and the cost of a call is
        many times that of a record.
        """
        wanted = [batch for batch in batches if not batch[0].control and batch[0].base_offset < upper]
        begins = [info.base_offset for info, _ in wanted]
        found: dict[int, list[LedgerRecord]] = {}
        for rows in decode_chunks(wanted, include_headers=False):
            for row in pc.indices_nonzero(pc.starts_with(rows.key, pattern=self._key)).to_pylist():
                at = int(rows.offset[row])
                if not lower <= at < upper:
                    continue
                key, value = rows.key[row].as_py(), rows.value[row].as_py()
                if key == self._key:
                    info, _ = wanted[bisect_right(begins, at) - 1]
                    identity = ProducerIdentity(info.producer_id, info.producer_epoch) if info.transactional else None
                    found.setdefault(info.base_offset, []).append(LedgerRecord(at, value, identity, self.where))
                elif is_note_of(self._key, key) and not is_part_of(self._key, key) and value:
                    self._take_note(at, value)
        return found

    def _take_note(self, at: int, value: bytes) -> None:
        try:
            note = from_bytes(value)
            if isinstance(note, SettledInParts):
                whole = settled_in(self._cluster, self.where, self._pipeline, at, note)
                note = Settled(note.offset, note.identity, whole)
        except LedgerUnreadable as error:
            raise LedgerUnreadable(error.message, {**error.facts, **self._facts(at)}) from error
        if isinstance(note, Settled):
            self._settled.append(note)
        elif isinstance(note, Ended):
            _keep_newer(self._ended, note, at, note)
        elif isinstance(note, Mending):
            _keep_newer(self._mendings, note.transactional_id, at, note)
            self._mended.add((note.transactional_id, note.identity))
        elif isinstance(note, Aborted):
            _keep_newer(self._aborted, note.transactional_id, at, note)
        elif isinstance(note, Began | Renamed | Moved):
            _keep_newer(self._single, type(note), at, note)

    # ---- the view

    def _view(self) -> LedgerView:
        settled = {(note.offset, note.identity): note for note in self._settled}
        newest = max(self._committed, default=None)
        gone = newest is not None and newest.value is None
        decision = self.decision(newest) if newest is not None and not gone else None
        for note in self._settled:
            if newest is None or note.offset > newest.offset:
                gone = False
                newest, decision = LedgerRecord(note.offset, b"", note.identity, self.where), note.decision
        if newest is not None and gone:
            self._forget(newest.offset)
        # Records older than the newest decision can no longer change the view.
        self._committed = [] if newest is None else [each for each in self._committed if each >= newest][-1:]
        open_ = min(self._open, default=None)
        since = newest.offset if newest is not None else -1
        # Ends older than that are of decisions that the view has no more. A reader lives as long as its run.
        oldest = since if open_ is None else min(since, open_.offset)
        self._ended = {name: kept for name, kept in self._ended.items() if kept[0] >= oldest}
        _, end = self._ended.get(Ended.of_decision(decision), (-1, None)) if decision is not None else (-1, None)
        ended = end is not None
        return LedgerView(
            newest=decision,
            ended=ended,
            driver=end.driver if end is not None else None,
            open=open_,
            settled=open_ is not None and (open_.offset, open_.identity) in settled,
            all_open=tuple(each for each in sorted(self._open) if _same_producer(each, open_)),
            ends=frozenset(self._ended),
            mendings={name: note for name, (_, note) in self._mendings.items()},
            mended_at={name: (self.where, at) for name, (at, _) in self._mendings.items()},
            aborted={name: note.identity for name, (_, note) in self._aborted.items()},
            unfinished=tuple(note for at, note in self._mendings.values() if at > since and not ended),
            began=self._newest_note(Began),
            renamed=self._newest_note(Renamed),
            later={name: note.identity for name, (at, note) in self._mendings.items() if at > since},
            mended=frozenset(self._mended),
            where=self.where if decision is not None else None,
            forgotten=gone,
            moved=self._newest_note(Moved, behind=since),
        )

    def _forget(self, tombstone: int) -> None:
        """What is older than a tombstone is of a pipeline that there is no more."""
        self._mendings = {name: kept for name, kept in self._mendings.items() if kept[0] > tombstone}
        self._mended = {(name, note.identity) for name, (_, note) in self._mendings.items()}
        self._aborted = {name: kept for name, kept in self._aborted.items() if kept[0] > tombstone}
        self._settled = [note for note in self._settled if note.offset > tombstone]
        if self._newest_note(Began, behind=tombstone) is None:
            self._single.pop(Began, None)

    def _newest_note(self, kind: type[S], behind: int = -1) -> S | None:
        at, note = self._single.get(kind, (-1, None))
        return note if isinstance(note, kind) and at > behind else None

    def decision(self, record: LedgerRecord) -> Decision:
        """The decision of a record of the view, put together where it is in parts; LedgerUnreadable where it is none of
        this pipeline's.
        """
        # Equal records have the same bytes, and a manifest's have the digest of all parts.
        if self._decoded is not None and self._decoded[0] == record:
            return self._decoded[1]
        facts = self._facts(record.offset)
        try:
            value = record.value or b""
            decision = decision_in(self._cluster, self.where, self._pipeline, record.offset, value)
        except LedgerUnreadable as error:
            raise LedgerUnreadable(error.message, {**error.facts, **facts}) from error
        if decision.pipeline != self._pipeline:
            raise LedgerUnreadable(
                f"the ledger's newest record under this pipeline's key is a decision of pipeline {decision.pipeline!r}; "
                "another client wrote it; nothing was changed; write the last correct record again or name another "
                "ledger topic",
                facts,
            )
        self._decoded = (record, decision)
        return decision

    def _facts(self, offset: int) -> dict[str, str | int]:
        return {"ledger": str(self.where), "offset": offset, "pipeline": self._pipeline}


def _keep_newer(kept: dict[K, tuple[int, N]], key: K, at: int, note: N) -> None:
    """Windows are read backwards: a note that is read later may be older."""
    known = kept.get(key)
    if known is None or at >= known[0]:
        kept[key] = (at, note)


def _same_producer(record: LedgerRecord, other: LedgerRecord | None) -> bool:
    if other is None or record.identity is None or other.identity is None:
        return record == other
    return record.identity.producer_id == other.identity.producer_id


def _committed_by(marker: Batch, pending: dict[int, list[LedgerRecord]]) -> Iterable[LedgerRecord]:
    """The pending records that a marker commits. A commit or abort marker removes its producer from `pending`."""
    kind = control_marker(marker).kind
    if kind is MarkerKind.OTHER:
        return []
    records = pending.pop(marker[0].producer_id, [])
    return records if kind is MarkerKind.COMMIT else []
