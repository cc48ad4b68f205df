"""Judges a history: every way in which it shows that exactly once was not kept.

Owns: the kinds of anomaly, and what proves each (Jepsen's names where it has one: G1a is ABORTED_READ).
Does not know: how a history was collected.
Invariants: pure; the order of the answer depends on the history alone; reported is only what no legal run can show. So
what was seen during the run is judged by what became of it: an EndTxn is decided when the coordinator has prepared it,
and its markers reach the ledger, the group and each output partition later, in any order.

"Visible" is what a committed read showed, or what the log holds as committed: a reader that hides a record and a log
that lacks it are caught alike. Rows are looked up by record and place, never counted by offsets, which markers take
too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from tests.chaos.history import (
    FIRST_WRITING,
    Evidence,
    Fate,
    History,
    LogEntry,
    Offsets,
    Part,
    Partition,
    Read,
    Row,
    Scope,
    at_place,
    without_none,
)


class Kind(Enum):
    """What is wrong. The value says it for a report."""

    ABORTED_READ = "a committed reader saw a record whose transaction was aborted or never ended"
    DIRTY_READ = "a record of a batch that was never decided is visible"
    LOST_WRITE = "a record of a decided batch is not in the last read"
    DUPLICATE = "a record is visible more than once"
    PHANTOM = "something is visible that nobody asked to write"
    TORN_BATCH = "part of a batch is visible where it must be all or nothing"
    NON_MONOTONIC_READ = "what a committed reader saw is gone, changed, or came in behind it"
    NOT_IN_LOG = "a reader saw a record at a place where the log has no such record"
    REORDERED_ROWS = "the rows of one slot changed their order within a partition"
    OUTSIDE_TRANSACTION = "a record of a batch was written outside any transaction"
    SPLIT_TRANSACTION = "a slot's rows are not one transaction with one end"
    WRONG_EPOCH_ORDER = "a producer wrote under an epoch that was over"
    OPEN_TRANSACTION = "a transaction is open at the end"
    INCONSISTENT_OFFSETS = "the group's offsets are not those of the output"
    SKIPPED_BATCH = "a batch was passed over without a decision"
    DECISION_ORDER = "a batch was decided again, or after a later one"
    FAULT_NOT_FIRED = "a planned fault did not happen, so nothing is proven about it"


@dataclass(frozen=True)
class Anomaly:
    """One finding. The message names the record, batch, partition and offset that it is about."""

    kind: Kind
    message: str

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.message}"


# ---- the rules: each yields messages


def aborted_reads(evidence: Evidence) -> Iterator[str]:
    for at, row in _first_seen(evidence.reads):
        fate = evidence.fate.get(row[:3])
        if fate in (Fate.ABORTED, Fate.OPEN) and evidence.in_log[row[:3]] == row.record:
            yield f"record {row.record!r} at {at_place(*row[:3])}, read at moment {at}, is {fate.value}"


def reads_not_in_log(evidence: Evidence) -> Iterator[str]:
    for at, row in _first_seen(evidence.history.reads):
        if row[:3] not in evidence.in_log:
            yield f"record {row.record!r} was read at {at_place(*row[:3])} at moment {at}; the log has no record there"
        elif evidence.in_log[row[:3]] != row.record:
            yield f"record {row.record!r} was read at {at_place(*row[:3])} at moment {at}; the log has {evidence.in_log[row[:3]]!r}"


def dirty_reads(evidence: Evidence) -> Iterator[str]:
    for record, places in evidence.sightings.items():
        origin = evidence.origin.get(record)
        if origin is not None and origin.batch.id not in evidence.decided:
            yield f"record {record!r} of batch {origin.batch.id}, never decided, is visible at {at_place(*places[0])}"


def lost_writes(evidence: Evidence) -> Iterator[str]:
    shown = {row.record for row in evidence.history.final.rows}
    written: defaultdict[str | None, list[str]] = defaultdict(list)
    for place, fate in evidence.fate.items():
        written[evidence.in_log[place]].append(f"{fate.value} at {at_place(*place)}")
    for record, origin in evidence.origin.items():
        if origin.batch.id in evidence.decided and record not in shown:
            log = ", ".join(written[record]) or "no such record"
            yield f"record {record!r} of batch {origin.batch.id} slot {origin.slot} is not in the last read; the log: {log}"


def duplicates(evidence: Evidence) -> Iterator[str]:
    twice: dict[Row, int] = {}
    for read in evidence.reads:
        if len(set(read.rows)) < len(read.rows):
            for row, count in Counter(read.rows).items():
                if count > 1 and twice.setdefault(row, read.at) == read.at:
                    yield f"record {row.record!r} at {at_place(*row[:3])} was given {count} times to the read at moment {read.at}"
    for record, places in evidence.sightings.items():
        if record in evidence.origin and len(places) > 1:
            batch = evidence.origin[record].batch.id
            yield f"record {record!r} of batch {batch} is visible at {', '.join(at_place(*place) for place in places)}"


def phantoms(evidence: Evidence) -> Iterator[str]:
    """What is aborted may be anything: a plan that is not deterministic writes other rows, and is then refused."""
    for record, places in evidence.sightings.items():
        if record not in evidence.origin:
            yield f"record {record!r} at {', '.join(at_place(*place) for place in places)} belongs to no batch"
    asked = {batch.id for batch in evidence.history.batches}
    yield from (
        f"batch {batch} was decided; the job was never asked for it" for batch in sorted(evidence.decided - asked)
    )


def torn_batches(evidence: Evidence) -> Iterator[str]:
    reads = evidence.reads if evidence.history.scope is Scope.BATCH else evidence.reads[-1:]
    sizes = {batch.id: sum(map(len, batch.slots)) for batch in evidence.history.batches}
    reported: set[int] = set()
    for read in reads:
        records = {row.record for row in read.rows} & evidence.origin.keys()
        shown = Counter(evidence.origin[record].batch.id for record in records)
        for batch, count in sorted(shown.items()):
            if count < sizes[batch] and batch not in reported:
                reported.add(batch)
                yield f"batch {batch}: {count} of {sizes[batch]} records are in the read at moment {read.at}"


def non_monotonic_reads(evidence: Evidence) -> Iterator[str]:
    for earlier, later in pairwise(evidence.reads):
        before, after = set(earlier.rows), set(later.rows)
        span = f"between moments {earlier.at} and {later.at}"
        instead = {row[:3]: row.record for row in after - before}
        for row in sorted(before - after, key=lambda row: row[:3]):
            became = f"became {instead[row[:3]]!r}" if row[:3] in instead else "disappeared"
            yield f"record {row.record!r} at {at_place(*row[:3])} {became} {span}"
        # A committed reader passes an offset only when the transaction there has ended, so nothing can fill a gap.
        furthest: dict[Partition, int] = {}
        for row in before:
            furthest[row[:2]] = max(row.offset, furthest.get(row[:2], -1))
        held = {row[:3] for row in before}
        for place in sorted(instead.keys() - held):
            if place[2] < furthest.get(place[:2], -1):
                yield f"record {instead[place]!r} came in at {at_place(*place)}, behind offset {furthest[place[:2]]} already read, {span}"


def reordered_rows(evidence: Evidence) -> Iterator[str]:
    """Committed transactions only: an attempt that was given up proves nothing about what readers get."""
    for part in evidence.parts:
        if part.fate is not Fate.COMMITTED:
            continue
        furthest: dict[tuple[int, int], tuple[int, LogEntry]] = {}
        seen: set[str | None] = set()
        for entry in part.entries:
            origin = evidence.origin.get(entry.record)
            # A record that comes a second time is a duplicate, and no news about the order.
            if origin is None or entry.record in seen:
                continue
            seen.add(entry.record)
            slot = origin.batch.id, origin.slot
            index, before = furthest.setdefault(slot, (origin.index, entry))
            if origin.index < index:
                yield (
                    f"record {entry.record!r} of batch {slot[0]} slot {slot[1]} stands at "
                    f"{at_place(*part.where, entry.offset)}, behind {before.record!r} at offset {before.offset}, "
                    "which the slot wrote later"
                )
            else:
                furthest[slot] = origin.index, entry


def outside_transactions(evidence: Evidence) -> Iterator[str]:
    for part in evidence.parts:
        if part.fate is Fate.BARE and part.entries[0].record in evidence.origin:
            yield f"record {part.entries[0].record!r} at {at_place(*part.where, part.entries[0].offset)}"


def split_transactions(evidence: Evidence) -> Iterator[str]:
    fates: defaultdict[tuple[int, int, int], dict[Fate, Part]] = defaultdict(dict)
    units: defaultdict[tuple[int, int, int], dict[tuple[int, int], str]] = defaultdict(dict)
    carriers: defaultdict[tuple[int, int], defaultdict[tuple[int, int, int], set[str | None]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for part in evidence.parts:
        if part.fate is Fate.BARE:
            continue
        fates[part.transaction].setdefault(part.fate, part)
        for entry in part.entries:
            if part.fate is Fate.COMMITTED and entry.record in evidence.origin:
                unit = evidence.origin[entry.record].unit(evidence.history.scope)
                units[part.transaction].setdefault(unit, f"{entry.record!r} at {at_place(*part.where, entry.offset)}")
                carriers[unit][part.transaction].add(entry.record)
    for transaction, ends in fates.items():
        if Fate.COMMITTED in ends and Fate.ABORTED in ends:
            committed, aborted = (
                at_place(*ends[fate].where, ends[fate].entries[0].offset) for fate in (Fate.COMMITTED, Fate.ABORTED)
            )
            yield f"{_transaction(transaction)} is committed at {committed} and aborted at {aborted}"
    for transaction, carried in units.items():
        if len(carried) > 1:
            rows = ", ".join(f"{_unit(unit)} ({row})" for unit, row in sorted(carried.items()))
            yield f"{_transaction(transaction)} carries rows of {rows}"
    for unit, found in sorted(carriers.items()):
        # Where the same rows are in both, the slot was written twice, and DUPLICATE says so.
        if len(found) > 1 and sum(map(len, found.values())) == len(set().union(*found.values())):
            yield f"{_unit(unit)} was committed by {' and '.join(map(_transaction, sorted(found)))}"


def open_transactions(evidence: Evidence) -> Iterator[str]:
    for transactional_id in evidence.history.open_transactions:
        yield f"Kafka lists {transactional_id!r}"
    for part in evidence.parts:
        if part.fate is Fate.OPEN:
            yield (
                f"{_transaction(part.transaction)} has no marker after its {len(part.entries)} records from "
                f"{at_place(*part.where, part.entries[0].offset)}"
            )


def inconsistent_offsets(evidence: Evidence) -> Iterator[str]:
    ahead, expected = _expected_offsets(evidence)
    newest = max(evidence.decided, default=None)
    before: dict[Partition, int] = {}
    for at, offsets in evidence.observed_offsets:
        behind = sorted(where for where, offset in before.items() if offsets.get(where, -1) < offset)
        for where in behind:
            yield f"{at_place(*where)} went from {before[where]} back to {offsets.get(where)} at moment {at}"
        if offsets not in expected.values():
            whose = next((f"batch {batch}, never decided" for batch, state in ahead.items() if state == offsets), None)
            yield f"{_named(offsets)} at moment {at} are those of {whose or 'no batch'}"
        before = offsets
    last = evidence.history.final.group_offsets
    if last is None:
        return
    if without_none(last) != expected[newest] and without_none(last) in expected.values():
        yield f"{_named(last)} at the end are not those of the newest decided batch, {newest}: {_named(expected[newest])}"
    for batch in evidence.history.batches:
        records = list(batch.records())
        if batch.id not in evidence.decided or not records or not batch.source_offsets:
            continue
        passed = all(last.get(where, -1) >= offset for where, offset in batch.source_offsets.items())
        if passed and evidence.sightings.keys().isdisjoint(records):
            yield f"{_named(last)} at the end have passed batch {batch.id}, but none of its {len(records)} records is there"


def skipped_batches(evidence: Evidence) -> Iterator[str]:
    newest = max(evidence.decided, default=-1)
    for batch in evidence.history.batches:
        if batch.id < newest and batch.id not in evidence.decided:
            yield f"batch {batch.id} was never decided, batch {newest} was"
    for finished in sorted(set(evidence.history.finished) - evidence.decided):
        yield f"Spark holds batch {finished} for done, it was never decided"


def decision_orders(evidence: Evidence) -> Iterator[str]:
    newest, repaired = -1, FIRST_WRITING
    for decision in evidence.history.decisions:
        if decision.batch_id < newest:
            yield f"batch {decision.batch_id} was decided after batch {newest}, seen at moment {decision.at}"
        elif decision.batch_id == newest and decision.repaired <= repaired:
            yield f"batch {decision.batch_id} was decided again without a repair, seen at moment {decision.at}"
        newest, repaired = max((newest, repaired), (decision.batch_id, decision.repaired))


def faults_not_fired(evidence: Evidence) -> Iterator[str]:
    return (f"{fault.kind} {fault.name!r}" for fault in evidence.history.faults if not fault.fired)


RULES: Mapping[Kind, Callable[[Evidence], Iterator[str]]] = {
    Kind.ABORTED_READ: aborted_reads,
    Kind.DIRTY_READ: dirty_reads,
    Kind.LOST_WRITE: lost_writes,
    Kind.DUPLICATE: duplicates,
    Kind.PHANTOM: phantoms,
    Kind.TORN_BATCH: torn_batches,
    Kind.NON_MONOTONIC_READ: non_monotonic_reads,
    Kind.NOT_IN_LOG: reads_not_in_log,
    Kind.REORDERED_ROWS: reordered_rows,
    Kind.OUTSIDE_TRANSACTION: outside_transactions,
    Kind.SPLIT_TRANSACTION: split_transactions,
    Kind.WRONG_EPOCH_ORDER: lambda evidence: iter(evidence.epoch_faults),
    Kind.OPEN_TRANSACTION: open_transactions,
    Kind.INCONSISTENT_OFFSETS: inconsistent_offsets,
    Kind.SKIPPED_BATCH: skipped_batches,
    Kind.DECISION_ORDER: decision_orders,
    Kind.FAULT_NOT_FIRED: faults_not_fired,
}


def check(history: History) -> tuple[Anomaly, ...]:
    """Everything that is wrong with a history, kind by kind; () where it is legal."""
    evidence = Evidence(history)
    return tuple(Anomaly(kind, message) for kind, rule in RULES.items() for message in rule(evidence))


def verdict_by_kind(anomalies: Iterable[Anomaly]) -> dict[Kind, int]:
    """How many anomalies of each kind, zeros included: the rows of a report."""
    counts = Counter(anomaly.kind for anomaly in anomalies)
    return {kind: counts[kind] for kind in Kind}


# ---- what the rules share


def _first_seen(reads: Iterable[Read]) -> Iterator[tuple[int, Row]]:
    """(moment, row): each row of the reads once, where it was read first."""
    seen: set[Row] = set()
    for read in reads:
        for row in read.rows:
            if row not in seen:
                seen.add(row)
                yield read.at, row


def _expected_offsets(
    evidence: Evidence,
) -> tuple[dict[int, dict[Partition, int]], dict[int | None, dict[Partition, int]]]:
    """(undecided batch -> the offsets it would have left, decided batch -> the offsets it left); None: before any
    batch.
    """
    ahead: dict[int, dict[Partition, int]] = {}
    expected: dict[int | None, dict[Partition, int]] = {None: {}}
    state: dict[Partition, int] = {}
    for batch in evidence.history.batches:
        following = state | without_none(batch.source_offsets)
        if batch.id in evidence.decided:
            expected[batch.id] = state = following
        else:
            ahead[batch.id] = following
    # A decided batch that nobody asked for is reported as such; its offsets are not known.
    for unknown in evidence.decided - expected.keys():
        expected[unknown] = state
    return ahead, expected


def _named(offsets: Offsets) -> str:
    named = [f"{at_place(*where)}: {offset}" for where, offset in sorted(offsets.items())]
    return "offsets " + (", ".join(named) or "(none)")


def _transaction(transaction: tuple[int, int, int]) -> str:
    return f"the transaction of producer {transaction[0]} epoch {transaction[1]}"


def _unit(unit: tuple[int, int]) -> str:
    return f"batch {unit[0]}" + (f" slot {unit[1]}" if unit[1] >= 0 else "")
