"""Every decision that the ledger topic still holds, of all pipelines: for people and their tools.

Owns: reading the topic backwards, a window at a time.
Does not know: what follows from a decision; a run itself reads only its newest one (`ledger`).
Invariants:
- Nothing is written, fenced or waited for.
- A record that cannot be read is returned as unreadable and hides no other.
- A decision whose transaction has no end yet is returned as open, never as made, unless a note says that it is made, as
  a run judges it. One that lives on in such a note only is returned from there.
- What is in front of a tombstone of its pipeline is not returned: there is no such pipeline any more.
- What somebody else wrote, where that is known, is foreign: it takes no place of a pipeline's own entries, and says
  nothing of them.
- The newest entries of one pipeline are found without reading older records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka_core.errors import LedgerUnreadable
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.client.reading.own_records import own_records
from pyspark_kafka_eos.client.requests.admin import no_such_topic
from pyspark_kafka_eos.commit.ledger.joining import decision_in, settled_in
from pyspark_kafka_eos.commit.ledger.notes import ENDED, SETTLED, Ended, Settled, SettledInParts, from_bytes
from pyspark_kafka_eos.commit.ledger.parts import parts_before
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.ledger.writers import begins_transaction
from pyspark_kafka_eos.model import Decision, Seal
from pyspark_kafka_eos.records import Batch, MarkerKind, control_marker, scan

_WINDOW = 200
"""Offsets read first, at the end of a partition; doubled from window to window, so that the first decisions appear at
once and a long history takes few requests. Half saves a millisecond; ten times as many delay the first line noticeably.
"""

_LONGEST_WINDOW = 6400
"""Some 2,000 decisions, less than a second's work; a longer window makes a display stutter."""


@dataclass(frozen=True)
class LedgerEntry:
    """One record of the ledger: its place, and its decision or why it cannot be read.

    `open`: its transaction is neither committed nor aborted, so it is no decision yet. `writer`: the producer id of its
    transaction, None where it is in none. `foreign`: another producer than the pipeline's own wrote it, so it counts
    for nothing, and is not read.
    """

    pipeline: str
    where: TopicPartition
    offset: int
    written_ms: int
    decision: Decision | None
    problem: str = ""
    open: bool = False
    writer: int | None = None
    foreign: bool = False

    @property
    def status(self) -> str:
        """foreign, unreadable, open or decided."""
        return "foreign" if self.foreign else "unreadable" if self.problem else "open" if self.open else "decided"


def slot_of(seal: Seal) -> dict[str, Any]:
    """A decision's slot, by the names under which people and programs see it."""
    return {
        "slot": seal.slot,
        "transactional_id": seal.transactional_id,
        "producer_id": seal.identity.producer_id if seal.identity else None,
        "producer_epoch": seal.identity.epoch if seal.identity else None,
        "transaction_version": seal.transaction_version,
        "two_phase": seal.two_phase,
        "records": seal.records,
        "bytes": seal.bytes,
        "digest": f"{seal.digest:016x}",
        "partitions": [
            {
                "topic": part.topic,
                "partition": part.partition,
                "first_offset": part.first_offset,
                "records": part.records,
            }
            for part in seal.partitions
        ],
    }


KnownOf = Callable[[str], Collection[int] | None]
"""Pipeline -> its producer ids; None where nobody can tell."""


def newest_first(
    cluster: Cluster,
    topic: str,
    pipeline: str | None = None,
    keep: int | None = None,
    known_of: KnownOf = lambda _: None,
) -> Iterator[list[LedgerEntry]]:
    """The ledger's records of one pipeline or of all, page by page; at most `keep` of each pipeline, its newest, and as
    many foreign ones beside these.

    A page has records of one partition, by pipeline and then the newest first, and those of the next pages of that
    partition are older. Aborted ones are left out. UnknownTopic where there is no such topic, AuthorizationFailed where
    it may not be read.
    """
    kept: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    writers: dict[str, set[int] | None] = {}
    for where, begin, end in _places(cluster, topic, pipeline):
        behind = _Behind(writers)
        for lower, upper in _windows(begin, end):
            if pipeline is not None and keep is not None and kept[pipeline] >= keep:
                return
            page: list[LedgerEntry] = []
            for record in reversed(_window(cluster, where, lower, upper)):
                if pipeline not in (None, record.pipeline):
                    continue
                if keep is not None and kept[record.pipeline] >= keep:
                    continue
                if record.pipeline not in writers:
                    known = known_of(record.pipeline)
                    writers[record.pipeline] = None if known is None else set(known)
                entry = behind.entry(cluster, record)
                if entry is None or (entry.foreign and keep is not None and foreign[record.pipeline] >= keep):
                    continue
                if entry.foreign:
                    foreign[record.pipeline] += 1
                elif behind.is_own(entry):
                    kept[record.pipeline] += 1
                page.append(entry)
            yield sorted(page, key=lambda each: each.pipeline)


def counted(entries: Sequence[LedgerEntry], known: Collection[int] | None) -> list[LedgerEntry]:
    """The entries of a pipeline, oldest first, that a run would not pass over. `known`: the pipeline's producer ids,
    None where nobody can tell. Older ones than its newest decision may be of ids that were replaced: those that have
    their place, by their number, between the decisions of known ids.
    """
    if known is None:
        return list(entries)
    writers = set(known)
    own: dict[int, LedgerEntry] = {}
    for at in reversed(range(len(entries))):
        if entries[at].writer in writers:
            own[at] = entries[at]
            writers |= _named_by(entries[at])
    numbers = {at: each.decision.number for at, each in own.items() if each.decision is not None}

    def fits(at: int, each: LedgerEntry) -> bool:
        if each.decision is None or each.writer is None:
            return False
        behind = min((number for place, number in numbers.items() if place > at), default=-1)
        before = max((number for place, number in numbers.items() if place < at), default=-1)
        return before < each.decision.number < behind

    return [each for at, each in enumerate(entries) if at in own or fits(at, each)]


def _named_by(entry: LedgerEntry) -> set[int]:
    return set(entry.decision.writers) if entry.decision is not None else set()


def newest_of_each(pages: Iterable[list[LedgerEntry]]) -> dict[str, list[LedgerEntry]]:
    """Pipeline -> its entries of these pages, oldest first. Where several partitions have some (the ledger got more
    partitions), the ones with the newest decision come last.
    """
    found: dict[str, dict[TopicPartition, list[LedgerEntry]]] = {}
    for page in pages:
        for entry in page:
            found.setdefault(entry.pipeline, {}).setdefault(entry.where, []).append(entry)
    return {
        name: [entry for part in sorted(found[name].values(), key=_newest_number) for entry in part[::-1]]
        for name in sorted(found)
    }


def _newest_number(entries: Iterable[LedgerEntry]) -> int:
    return max((each.decision.number for each in entries if each.decision is not None), default=-1)


def pipelines_of(cluster: Cluster, topic: str) -> set[str]:
    """The names that the ledger has a record of, whatever its contents, but for those that were forgotten."""
    names: set[str] = set()
    for where, begin, end in _places(cluster, topic, None):
        forgotten: set[str] = set()
        for lower, upper in _windows(begin, end):
            for record in reversed(_window(cluster, where, lower, upper)):
                if record.tombstone:
                    forgotten.add(record.pipeline)
                elif record.kind != ENDED and record.pipeline not in forgotten:
                    names.add(record.pipeline)
    return names


def _places(cluster: Cluster, topic: str, pipeline: str | None) -> Iterator[tuple[TopicPartition, int, int]]:
    """The partitions with the first and the next offset of each; the pipeline's own comes first."""
    if not absence.topics_there(cluster, [topic]):
        raise no_such_topic(topic)
    offsets = Offsets(cluster)
    partitions = [TopicPartition(topic, number) for number in range(len(cluster.topic(topic).leaders))]
    begins = offsets.earliest(partitions)
    ends = offsets.latest(partitions, READ_UNCOMMITTED)
    own = Ledger(cluster, topic, pipeline).partition if pipeline is not None else None
    for where in sorted(partitions, key=lambda each: (each != own, each)):
        yield where, begins[where], ends[where]


def _windows(begin: int, end: int) -> Iterator[tuple[int, int]]:
    size, upper = _WINDOW, end
    while upper > begin:
        lower = max(begin, upper - size)
        yield lower, upper
        size, upper = min(2 * size, _LONGEST_WINDOW), lower


# ---- one window


@dataclass(frozen=True)
class _Record:
    """A record under a pipeline's key, not yet read. `kind`: of a note, empty of a decision. `value`: None where it is
    deleted.
    """

    pipeline: str
    where: TopicPartition
    offset: int
    written_ms: int
    value: bytes | None
    open: bool
    kind: str = ""
    identity: ProducerIdentity | None = None

    @property
    def writer(self) -> int | None:
        """The producer id of its transaction, None where it is in none."""
        return self.identity.producer_id if self.identity is not None else None

    @property
    def tombstone(self) -> bool:
        """Whether it says that there is no such pipeline."""
        return self.value is None and not self.open and not self.kind

    def entry(self, cluster: Cluster) -> LedgerEntry:
        decision: Decision | None = None
        problem = ""
        try:
            said = decision_in(cluster, self.where, self.pipeline, self.offset, self.value or b"", self.identity)
            if said.pipeline == self.pipeline:
                decision = said
            else:
                problem = f"it is a decision of pipeline {said.pipeline!r}"
        except LedgerUnreadable as error:
            problem = error.message
        place = (self.pipeline, self.where, self.offset, self.written_ms)
        return LedgerEntry(*place, decision, problem, open=self.open, writer=self.writer)


class _Behind:
    """What stands behind the records that are still to come of one partition, which is read backwards: tombstones and
    notes.
    """

    def __init__(self, writers: Mapping[str, set[int] | None]) -> None:
        """`writers`: pipeline -> its producer ids, None where nobody can tell; grows by those that its decisions
        name.
        """
        self._writers = writers
        self._least: dict[str, int] = {}
        """Pipeline -> the number of the oldest one of its decisions that stand behind."""
        self._numbers: set[tuple[str, int]] = set()
        """Of those, and of decisions that may be a pipeline's: no two have one number."""
        self._forgotten: set[str] = set()
        self._settled: set[tuple[str, int]] = set()
        self._ended: set[tuple[str, Ended]] = set()

    def entry(self, cluster: Cluster, record: _Record) -> LedgerEntry | None:
        """The entry of the next older record; None where it has none of its own."""
        name = record.pipeline
        if record.tombstone:
            self._forgotten.add(name)
        if name in self._forgotten:
            return None
        known, least = self._writers[name], self._least.get(name, 0)
        own = known is None or record.writer in known
        # In front of a decision of the pipeline one may be of an id that was replaced since.
        may_be = own or (record.writer is not None and least > 0 and not record.kind)
        entry = self._own_entry(cluster, record) if may_be else None
        decision = entry.decision if entry is not None else None
        number = decision.number if decision is not None else least
        if not own and (number >= least or (name, number) in self._numbers):
            place = (name, record.where, record.offset, record.written_ms)
            found = LedgerEntry(*place, None, open=record.open, writer=record.writer, foreign=True)
            return None if record.kind else found
        if known is not None and decision is not None:
            self._numbers.add((name, number))
            if own:
                self._least[name] = number
                known.update(decision.writers)
        return entry

    def is_own(self, entry: LedgerEntry) -> bool:
        """Whether it counts as one of the pipeline's, as far as anybody can tell."""
        known = self._writers[entry.pipeline]
        return known is None or entry.writer in known

    def _own_entry(self, cluster: Cluster, record: _Record) -> LedgerEntry | None:
        name = record.pipeline
        if record.kind:
            return self._of_a_note(cluster, record)
        if (name, record.offset) in self._settled:
            return None
        entry = record.entry(cluster)
        if entry.open and entry.decision is not None and (name, Ended.of_decision(entry.decision)) in self._ended:
            # The broker forgot its marker; every slot's end was seen, and ends come after the decision only.
            return replace(entry, open=False)
        return entry

    def _of_a_note(self, cluster: Cluster, record: _Record) -> LedgerEntry | None:
        place = (record.pipeline, record.where, record.offset, record.written_ms)
        if not record.value or record.open:
            return None
        try:
            note = from_bytes(record.value)
            if isinstance(note, Ended):
                self._ended.add((record.pipeline, note))
                return None
            if not isinstance(note, Settled | SettledInParts):
                return LedgerEntry(*place, None, "it is another note than its key says", writer=record.writer)
            self._settled.add((record.pipeline, note.offset))
            decision = settled_in(cluster, record.where, record.pipeline, record.offset, note, [record.writer])
        except LedgerUnreadable as error:
            return LedgerEntry(*place, None, error.message, writer=record.writer)
        place = (record.pipeline, record.where, note.offset, record.written_ms)
        return LedgerEntry(*place, decision, writer=record.writer)


def _window(cluster: Cluster, where: TopicPartition, lower: int, upper: int) -> list[_Record]:
    """The records between two offsets that are committed, or not yet ended, in the order of their offsets."""
    pending: dict[int, list[Batch]] = {}
    ended: list[Batch] = []
    offset = lower
    # A marker may be behind `upper`: reading continues until every transaction has its own, or the log ends.
    while offset < upper or pending:
        following = offset
        for info, data in scan(bytes(read_raw(cluster, where, offset, until=upper).records)):
            following = max(following, info.last_offset + 1)
            if info.base_offset >= upper and not pending:
                break
            if info.control:
                kind = control_marker((info, data)).kind
                batches = pending.pop(info.producer_id, []) if kind is not MarkerKind.OTHER else []
                ended += batches if kind is MarkerKind.COMMIT else []
            elif info.base_offset < upper and info.transactional:
                pending.setdefault(info.producer_id, []).append((info, data))
            elif info.base_offset < upper:
                ended.append((info, data))
        if following == offset:
            break
        offset = following
    unended = [batch for batches in pending.values() for batch in batches]
    found = [*_records(where, ended, lower, upper, False), *_records(where, unended, lower, upper, True)]
    return sorted(found, key=lambda each: each.offset)


def _records(where: TopicPartition, batches: list[Batch], lower: int, upper: int, unended: bool) -> Iterator[_Record]:
    ordered = sorted(batches, key=lambda each: each[0].base_offset)
    begins = [info.base_offset for info, _ in ordered]
    for rows in own_records(where, ordered):
        columns = zip(
            rows.key.to_pylist(), rows.value.to_pylist(), rows.offset.tolist(), rows.timestamp_ms, strict=True
        )
        for key, value, offset, written_ms in columns:
            if not lower <= offset < upper:
                continue
            pipeline, _, kind = (key or b"").decode("utf-8", "replace").partition("/")
            if kind in ("", ENDED, SETTLED):
                info, _ = ordered[bisect_right(begins, offset) - 1]
                own = begins_transaction(info, 0 if kind else parts_before(value))
                identity = ProducerIdentity(info.producer_id, info.producer_epoch) if own else None
                yield _Record(pipeline, where, offset, int(written_ms), value, unended, kind, identity)
