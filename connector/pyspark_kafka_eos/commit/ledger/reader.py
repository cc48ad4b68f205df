"""Reads the ledger's records of one pipeline: its newest decision, a decision without its end, and the notes.

Owns: finding these in one partition, and reading on from where the last reading ended.
Does not know: what follows from them; waiting.
Invariants:
- A decision counts where its transaction is committed or a note states that it is.
- A record of a foreign producer counts for nothing, beside a decision of which it is known that the pipeline made it
  (`writers`).
- Nothing is inferred from a log that was not read to its end.
- Records are read once, except decisions that had no end yet, and decoded once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow.compute as pc

from kafka_core.errors import LedgerUnreadable
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.reading.own_records import own_records
from pyspark_kafka_eos.commit.ledger.joining import decision_in, settled_in
from pyspark_kafka_eos.commit.ledger.notes import (
    Aborted,
    Began,
    Ended,
    Mending,
    Moved,
    Named,
    Renamed,
    Settled,
    SettledInParts,
    from_bytes,
    is_note_of,
    is_part_of,
)
from pyspark_kafka_eos.commit.ledger.parts import parts_before
from pyspark_kafka_eos.commit.ledger.writers import Writers, begins_transaction
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.model.ids import prefix_of
from pyspark_kafka_eos.records import Batch, MarkerKind, control_marker, scan

K = TypeVar("K")
N = TypeVar("N", Aborted, Ended, Mending, Began | Renamed | Moved | Named)
S = TypeVar("S", Began, Renamed, Moved, Named)

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

    @property
    def writer(self) -> int | None:
        """The producer id, None without a transaction."""
        return self.identity.producer_id if self.identity is not None else None


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
    newest record is a tombstone, so there is no such pipeline (any more). `known`: whether a coordinator, or a record
    of a producer that one knows, says who writes for the pipeline; where not, everything counted. `displaced`: nobody
    does, though a coordinator shows that the pipeline has decided. `believed`: something here is of a producer of whom
    nobody can tell whether it writes for the pipeline. `writer`: the producer id of `newest`. `foreign`: the newest
    record under the pipeline's keys that another producer wrote behind `newest`; it counts for nothing.
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
    known: bool = False
    displaced: bool = False
    believed: bool = False
    writer: int | None = None
    foreign: LedgerRecord | None = None

    @property
    def last_commits(self) -> dict[str, ProducerIdentity]:
        """Transactional id -> the identity under which its coordinator shows its last commit, as far as the newest
        decision and the notes behind it say.
        """
        return (self.newest.ends if self.newest is not None else {}) | dict(self.later)


class LedgerReader:
    """One pipeline's records in its partition of the ledger. Not for several threads."""

    def __init__(self, cluster: Cluster, where: TopicPartition, pipeline: str, writers: Writers) -> None:
        self.where = where
        self._cluster = cluster
        self._writers = writers
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
        self._unread_notes: list[LedgerRecord] = []
        """Of producers of which it is not known yet whether they are the pipeline's."""
        self._foreign: LedgerRecord | None = None
        self._ended: dict[Ended, tuple[int, Ended]] = {}
        self._mendings: dict[str, tuple[int, Mending]] = {}
        self._aborted: dict[str, tuple[int, Aborted]] = {}
        self._single: dict[type, tuple[int, Began | Renamed | Moved | Named]] = {}
        """The newest note of each kind that a pipeline has one of, and where it stands."""
        self._mended: set[tuple[str, ProducerIdentity]] = set()

    @property
    def unread(self) -> bool:
        """Whether the log's beginning has to be known for the next reading."""
        return self._position is None

    def read_on(self, begin: int | None, end: int) -> None:
        """Read on to `end`, the high watermark. `begin`: the log's first offset; None where nobody has asked.
        LedgerUnreadable for a record of this pipeline that cannot be read.
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

    def _read_backwards(self, earliest: int, end: int) -> None:
        window, upper = _WINDOW, end
        while upper > earliest:
            lower = max(earliest, upper - window)
            self._read_between(lower, upper)
            # A note may be far behind its decision; every record newer than that decision is behind it too.
            if self._has_newest(lower):
                return
            window, upper = window * 2, lower

    def _has_newest(self, lower: int) -> bool:
        """Whether the newest decision is among what was read down to offset `lower`. One that the pipeline is not known
        to have made may hide it.
        """
        if any(note.offset >= lower for note in self._settled):
            return True
        if self._committed and not self._made(self._writers.producer_ids):
            self._writers.ask_coordinators(again=True)
        known = self._writers.producer_ids
        return bool(self._made(known) if known else self._committed)

    def _made(self, known: Collection[int]) -> list[LedgerRecord]:
        """The committed decisions that the pipeline is known to have made."""
        return [each for each in self._own(known) if each.value is not None]

    def _own(self, known: Collection[int]) -> list[LedgerRecord]:
        """The committed records that the pipeline is known to have written. Whoever writes a tombstone ends it: that
        stops a run, and lets none go on.
        """
        return [each for each in self._committed if each.value is None or each.writer in known]

    def _read_between(self, lower: int, upper: int) -> bool:
        """Add the records between two offsets; False where the log no longer has all of them."""
        pending: dict[int, list[LedgerRecord]] = {}
        offset = lower
        # A marker may be behind `upper`, so reading continues until every relevant transaction has its own.
        while offset < upper or pending:
            read = read_raw(self._cluster, self.where, offset, until=upper)
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
            if following == offset or following >= max(upper, read.high_watermark):
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
        for rows in own_records(self.where, wanted):
            for row in pc.indices_nonzero(pc.starts_with(rows.key, pattern=self._key)).to_pylist():
                at = int(rows.offset[row])
                if not lower <= at < upper:
                    continue
                key, value = rows.key[row].as_py(), rows.value[row].as_py()
                info, _ = wanted[bisect_right(begins, at) - 1]
                own = begins_transaction(info, parts_before(value) if key == self._key else 0)
                identity = ProducerIdentity(info.producer_id, info.producer_epoch) if own else None
                record = LedgerRecord(at, value, identity, self.where)
                if key == self._key:
                    found.setdefault(info.base_offset, []).append(record)
                elif is_note_of(self._key, key) and not is_part_of(self._key, key) and value:
                    if record.writer in self._writers.producer_ids:
                        self._take_note(record)
                    else:
                        self._unread_notes.append(record)
        return found

    def _take_note(self, record: LedgerRecord, *, believed: bool = False) -> None:
        """Keep a note. `believed`: nobody can tell who wrote it, so it says of nobody that he is the pipeline."""
        at = record.offset
        try:
            note = from_bytes(record.value or b"")
            if isinstance(note, SettledInParts):
                writers = {record.writer, *self._writers.producer_ids}
                whole = settled_in(self._cluster, self.where, self._pipeline, at, note, writers)
                note = Settled(note.offset, note.identity, whole)
        except LedgerUnreadable as error:
            raise LedgerUnreadable(error.message, {**error.facts, **self._facts(at)}) from error
        if believed and isinstance(note, Named):
            return
        if isinstance(note, Mending | Aborted) and not note.transactional_id.startswith(prefix_of(self._pipeline)):
            # Who may end transactions would end another pipeline's by it.
            return
        if isinstance(note, Settled):
            self._settled.append(note)
        elif isinstance(note, Ended):
            _keep_newer(self._ended, note, at, note)
        elif isinstance(note, Mending):
            _keep_newer(self._mendings, note.transactional_id, at, note)
            self._mended.add((note.transactional_id, note.identity))
        elif isinstance(note, Aborted):
            _keep_newer(self._aborted, note.transactional_id, at, note)
        elif isinstance(note, Began | Renamed | Moved | Named):
            _keep_newer(self._single, type(note), at, note)

    # ---- the view

    def newest_of(self, known: Collection[int]) -> Decision | None:
        """The newest decision that one of these producers made; LedgerUnreadable where it is none."""
        made = self._made(known)
        noted = max(self._settled, key=lambda note: note.offset, default=None)
        newest = max(made, default=None)
        if noted is not None and (newest is None or noted.offset > newest.offset):
            return noted.decision
        return None if newest is None else self.decision(newest)

    def names(self, known: Collection[int]) -> frozenset[int]:
        """The producer ids that the newest decision of these producers names, and the newest note of them."""
        newest, noted = self.newest_of(known), self.named
        named = newest.writers if newest is not None else ()
        return frozenset((*named, *(noted.producer_ids if noted is not None else ())))

    @property
    def named(self) -> Named | None:
        """The newest note of the pipeline's producer ids, which one of them wrote."""
        return self._newest_note(Named)

    def has_others(self, known: Collection[int]) -> bool:
        """Whether it has a record that none of these producers wrote."""
        return any(
            each.value is not None and each.writer not in known
            for each in (*self._committed, *self._open, *self._unread_notes)
        )

    def _drop_foreign(self, known: Collection[int]) -> None:
        others = [each for each in (*self._committed, *self._unread_notes) if each.value and each.writer not in known]
        self._foreign = max([*others, *([self._foreign] if self._foreign else [])], default=None)
        self._committed = self._own(known)
        self._open = [each for each in self._open if each.writer in known]
        self._unread_notes = [each for each in self._unread_notes if each.writer in known]

    def view(self, known: Collection[int] | None) -> LedgerView:
        """What counts. `known`: the pipeline's producer ids; None where nobody can tell, and everything counts.
        LedgerUnreadable for a record of this pipeline that cannot be read.
        """
        if known is not None:
            self._drop_foreign(known)
        unread, self._unread_notes = self._unread_notes, []
        for each in unread:
            self._take_note(each, believed=known is None)
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
            foreign=self._foreign if self._foreign is not None and self._foreign.offset > since else None,
            moved=self._newest_note(Moved, behind=since),
            writer=newest.writer if newest is not None else None,
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
            decision = decision_in(self._cluster, self.where, self._pipeline, record.offset, value, record.identity)
        except LedgerUnreadable as error:
            raise LedgerUnreadable(error.message, {**error.facts, **facts}) from error
        if decision.pipeline != self._pipeline:
            raise LedgerUnreadable(
                f"the ledger's newest record under this pipeline's key is a decision of pipeline {decision.pipeline!r}; "
                "another client wrote it; nothing was changed; restore this ledger topic or name another one",
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
