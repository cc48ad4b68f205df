"""What a run under faults was asked to do, and what independent witnesses saw of it.

Owns: the shapes of a history, refusing one that nobody can judge, the transactions that a log consists of, and finding
a record's origin, fate and places.
Does not know: how it was collected, what is right or wrong with it (`checker`).
Invariants: a History that exists can be judged: ids and moments rise, records are unique, the last read is a committed
one, taken after everything else was seen.

`at` is a moment: a number that rises over the whole run, one counter for all watchers; it has no unit. An observation
carries the moment at which it was complete.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias, TypeVar

_Item = TypeVar("_Item")

Partition: TypeAlias = tuple[str, int]
"""(topic, partition number)."""

Place: TypeAlias = tuple[str, int, int]
"""(topic, partition number, offset)."""

Offsets: TypeAlias = Mapping[Partition, int]
"""Source partition -> the next offset to read. A negative offset means none, as in Kafka's own answers."""

FIRST_WRITING = 0


class Scope(Enum):
    """What one Kafka transaction carries."""

    TASK = "one slot of one batch"
    BATCH = "one batch"


class Isolation(Enum):
    """Kafka's isolation.level of a reader."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class EntryKind(Enum):
    """What stands at an offset."""

    DATA = "DATA"
    COMMIT = "COMMIT"
    ABORT = "ABORT"


@dataclass(frozen=True)
class Batch:
    """One micro-batch that the job was asked to write, whether or not it got that far.

    slots[s] are the rows of slot s, in the order in which its task writes them; an empty slot is (). A record is its
    text, unique in the whole history. `source_offsets` are where the sources stand after this batch; a source partition
    that is not named stays where the batches before it left it.
    """

    id: int
    slots: tuple[tuple[str, ...], ...]
    source_offsets: Offsets

    def records(self) -> Iterator[str]:
        """Every record of the batch, slot by slot."""
        for rows in self.slots:
            yield from rows


@dataclass(frozen=True)
class LogEntry:
    """One offset of a partition as it stands in the leader's segment files: a record or a transaction's marker.

    Outside transactions `transactional` is False, and without an idempotent producer the id and the epoch are -1.
    `record` is None for a marker and for a null value. The epoch of a marker may be one above that of its data (an
    aborting fence, and every end on transaction version 2: KIP-890).
    """

    topic: str
    partition: int
    offset: int
    kind: EntryKind
    producer_id: int
    epoch: int
    record: str | None = None
    transactional: bool = True

    @property
    def where(self) -> Partition:
        """The partition it stands in."""
        return self.topic, self.partition


class Row(NamedTuple):
    """A record that a reader was given, and where."""

    topic: str
    partition: int
    offset: int
    record: str | None


@dataclass(frozen=True)
class Read:
    """Everything that a reader was given from the first offset of every output partition to its end of that moment.

    The end is the last stable offset, or the high watermark for read_uncommitted. `group_offsets`: the offsets
    committed for the pipeline's group, None where nobody asked. With Scope.BATCH a committed read must not be taken
    while markers are on their way: Kafka writes them partition by partition, so a reader of several sees part of any
    transaction then.
    """

    at: int
    isolation: Isolation
    rows: tuple[Row, ...]
    group_offsets: Offsets | None = None


@dataclass(frozen=True)
class Decided:
    """A committed decision in the ledger, first seen at `at`, which may be long after it was made.

    A repair of lost slots records its batch once more; `repaired` counts those repairs and is then higher than before.
    """

    at: int
    batch_id: int
    repaired: int = FIRST_WRITING


@dataclass(frozen=True)
class OffsetsSeen:
    """The offsets committed for the pipeline's group."""

    at: int
    offsets: Offsets


@dataclass(frozen=True)
class Fault:
    """A fault that was planned, and whether it proved that it happened. `kind` is its class, `name` the one
    instance.
    """

    kind: str
    name: str
    fired: bool


@dataclass(frozen=True)
class History:
    """One run of one query under one pipeline, all restarts included, watched to its end.

    batches: by rising id; all that were begun.  log: every output partition from its first offset to its end, one
    replica each, in any order.  reads: by rising moment; the last is committed and the last observation of all.
    decisions: all of the pipeline in the ledger's own order; several may be seen at one moment.  offsets_seen: by
    rising moment.
    open_transactions: the transactional ids that Kafka's tools still list as open or hanging at the end.
    finished: batches that Spark's commit log holds for done.
    """

    scope: Scope
    batches: tuple[Batch, ...]
    log: tuple[LogEntry, ...]
    reads: tuple[Read, ...]
    decisions: tuple[Decided, ...]
    offsets_seen: tuple[OffsetsSeen, ...] = ()
    open_transactions: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    finished: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ValueError("not a history that can be judged: " + "; ".join(problems))

    @property
    def final(self) -> Read:
        """The last read."""
        return self.reads[-1]

    def _problems(self) -> Iterator[str]:
        if not _rising([batch.id for batch in self.batches]):
            yield "the ids of the batches do not rise"
        # Without unique records nobody could tell a duplicate from two equal rows.
        yield from (
            f"record {record!r} is asked for {count} times"
            for record, count in _repeated(record for batch in self.batches for record in batch.records())
        )
        yield from (
            f"the log has {count} entries at {topic}-{partition}@{offset}"
            for (topic, partition, offset), count in _repeated((*entry.where, entry.offset) for entry in self.log)
        )
        moments = [read.at for read in self.reads]
        seen = [each.at for each in self.offsets_seen]
        decided = [decision.at for decision in self.decisions]
        if not _rising(moments) or not _rising(seen) or sorted(decided) != decided:
            yield "moments do not rise"
        if set(moments) & set(seen):
            yield "two observations of the group's offsets share a moment"
        if not self.reads or self.final.isolation is not Isolation.COMMITTED:
            yield "the last read is not a committed one"
            return
        # Anything seen later could be of a batch that the last read was too early for.
        if any(at >= self.final.at for at in (*seen, *decided)):
            yield "something was seen after the last read"
        if self.final.group_offsets is None and any(batch.source_offsets for batch in self.batches):
            yield "the last read has no offsets of the group"


def _rising(numbers: list[int]) -> bool:
    return all(left < right for left, right in pairwise(numbers))


def _repeated(items: Iterable[_Item]) -> Iterator[tuple[_Item, int]]:
    return ((item, count) for item, count in Counter(items).items() if count > 1)


# ---- the transactions of a log


class Fate(Enum):
    """What became of a record in the log."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "in a transaction that never ended"
    BARE = "written outside any transaction"


@dataclass
class Part:
    """What one transaction put into one partition, in the order of offsets.

    `again` counts earlier transactions under the same producer id and epoch in the partition; a healthy log has 0 only.
    """

    where: Partition
    producer_id: int
    epoch: int
    again: int
    entries: list[LogEntry] = field(default_factory=list)
    fate: Fate = Fate.OPEN

    @property
    def transaction(self) -> tuple[int, int, int]:
        """The same for all parts of a transaction: one producer id and epoch carry one transaction."""
        return self.producer_id, self.epoch, self.again


def transactions_in(log: Iterable[LogEntry]) -> tuple[list[Part], list[str]]:
    """The parts of all transactions, partition by partition, and what was written under an epoch that was over."""
    parts: list[Part] = []
    stale: list[str] = []
    by_place = sorted(log, key=lambda entry: (*entry.where, entry.offset))
    for where, entries in groupby(by_place, key=lambda entry: entry.where):
        _walk(where, entries, parts, stale)
    return parts, stale


def _walk(where: Partition, entries: Iterable[LogEntry], parts: list[Part], stale: list[str]) -> None:
    open_parts: defaultdict[int, dict[int, Part]] = defaultdict(dict)
    ended: Counter[tuple[int, int]] = Counter()
    highest: dict[int, int] = {}
    for entry in entries:
        identity = entry.producer_id, entry.epoch
        if not entry.transactional:
            parts.append(Part(where, *identity, 0, [entry], Fate.BARE))
            continue
        what = f"{entry.kind.name} at {at_place(*where, entry.offset)} by producer {identity[0]} epoch {identity[1]}"
        newest = highest.get(entry.producer_id, entry.epoch)
        highest[entry.producer_id] = max(newest, entry.epoch)
        if entry.epoch < newest:
            stale.append(f"{what} stands after epoch {newest}")
        if entry.kind is not EntryKind.DATA:
            # A marker ends all that its producer has open here, whatever its own epoch.  One without data is legal: a
            # partition may be added and then get nothing, and a new coordinator sends its markers again.
            for over in open_parts.pop(entry.producer_id, {}).values():
                over.fate = Fate.COMMITTED if entry.kind is EntryKind.COMMIT else Fate.ABORTED
                ended[over.producer_id, over.epoch] += 1
            continue
        part = open_parts[entry.producer_id].get(entry.epoch)
        if part is None:
            if ended[identity] and entry.epoch == newest:
                stale.append(f"{what} stands after the end of that epoch's transaction")
            part = Part(where, *identity, ended[identity])
            open_parts[entry.producer_id][entry.epoch] = part
            parts.append(part)
        part.entries.append(entry)


def at_place(topic: str, partition: int, offset: int | None = None) -> str:
    """A partition, or a place in it, as messages name it."""
    return f"{topic}-{partition}" if offset is None else f"{topic}-{partition}@{offset}"


def without_none(offsets: Offsets) -> dict[Partition, int]:
    """Offsets that are there; Kafka says a negative one for none."""
    return {where: offset for where, offset in offsets.items() if offset >= 0}


# ---- what a judge looks up


@dataclass(frozen=True)
class Origin:
    """Where a record was asked for: batch, slot, index of the row in the slot."""

    batch: Batch
    slot: int
    index: int

    def unit(self, scope: Scope) -> tuple[int, int]:
        """What must be one transaction: (batch id, slot), or the whole batch as (batch id, -1)."""
        return self.batch.id, self.slot if scope is Scope.TASK else -1


class Evidence:
    """A history with what every rule looks up."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.origin: dict[str | None, Origin] = {
            record: Origin(batch, slot, index)
            for batch in history.batches
            for slot, rows in enumerate(batch.slots)
            for index, record in enumerate(rows)
        }
        self.decided = {decision.batch_id for decision in history.decisions}
        self.reads = [read for read in history.reads if read.isolation is Isolation.COMMITTED]
        self.parts, self.epoch_faults = transactions_in(history.log)
        self.fate = {(*part.where, entry.offset): part.fate for part in self.parts for entry in part.entries}
        self.in_log = {(*part.where, each.offset): each.record for part in self.parts for each in part.entries}

    @cached_property
    def sightings(self) -> dict[str | None, list[Place]]:
        """Record -> every place where it is visible, lowest first."""
        places: defaultdict[str | None, set[Place]] = defaultdict(set)
        for row in {row for read in self.reads for row in read.rows}:
            places[row.record].add(row[:3])
        for place, fate in self.fate.items():
            if fate in (Fate.COMMITTED, Fate.BARE):
                places[self.in_log[place]].add(place)
        return {record: sorted(found) for record, found in places.items()}

    @cached_property
    def observed_offsets(self) -> list[tuple[int, dict[Partition, int]]]:
        """(moment, the group's offsets) by rising moment, from both kinds of watchers; without partitions that have
        none.
        """
        found = [(each.at, each.offsets) for each in self.history.offsets_seen]
        found += [(read.at, read.group_offsets) for read in self.history.reads if read.group_offsets is not None]
        return [(at, without_none(offsets)) for at, offsets in sorted(found, key=lambda each: each[0])]
