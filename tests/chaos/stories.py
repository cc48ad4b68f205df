"""Histories whose verdict is known: bad ones that a checker must reject, legal ones that it must let pass.

Owns: a model of a job, its Kafka and its watchers, told in steps (`World`); the two tables of stories; the score.
Does not know: how the checker finds anything.
Invariants: the model works out by itself what a reader sees and shares no code with the checker; a bad story names
every kind that is in it, and words that a message has to contain.

A story is text: `step argument name=value; step ...`; the steps are World's public methods. `b0.s1.r2` is row 2 of slot
1 of batch 0, `out-1@5` a place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.chaos.checker import Kind, check
from tests.chaos.history import (
    Batch,
    Decided,
    EntryKind,
    Fault,
    History,
    Isolation,
    LogEntry,
    OffsetsSeen,
    Partition,
    Read,
    Row,
    Scope,
)

TOPIC = "out"
# Rows of each slot of each batch: slot 1 of batch 1 is empty, and so is batch 2.
SIZES = ((3, 2), (4, 0, 2), (), (2, 3))


@dataclass(eq=False)
class Attempt:
    """A transaction of the model: whose it is, where its data begins in each partition, how it ended."""

    producer_id: int
    epoch: int
    first: dict[int, int] = field(default_factory=dict)
    end: EntryKind | None = None


class World:
    """A job, its Kafka and its watchers. Each step happens as told, right or wrong.

    Row r of a slot goes to partition r % partitions; slot s writes as producer 100 + s. An attempt is called
    `batch.slot` unless it gets a name; `batch` alone means the newest attempts of all its slots.
    """

    def __init__(self, story: str = "", sizes: tuple[tuple[int, ...], ...] = SIZES) -> None:
        self.batches = tuple(
            Batch(
                b,
                tuple(tuple(f"b{b}.s{s}.r{r}" for r in range(rows)) for s, rows in enumerate(slots)),
                # The second source partition is added in batch 1; in batch 2 only that one has news.
                {("in", part): 10 * b + 10 - part for part in (0, 1)[b == 2 : b + 1]},
            )
            for b, slots in enumerate(sizes)
        )
        self.attempts: dict[str, Attempt] = {}
        self._identities: dict[str, tuple[int, int]] = {}
        self._owners: dict[tuple[int, int], Attempt] = {}
        self._group: dict[Partition, int] = {}
        self._reads: list[Read] = []
        self._decisions: list[Decided] = []
        self._offsets_seen: list[OffsetsSeen] = []
        self._listed: tuple[str, ...] = ()
        self._faults: tuple[Fault, ...] = (Fault("kill", "driver", True),)
        self._finished: set[int] = set()
        self._moment = 0
        self.setting()
        self.tell(story)

    def tell(self, story: str) -> World:
        """Do the steps of a story."""
        for step in filter(None, map(str.strip, story.split(";"))):
            verb, *words = step.split()
            named = dict(word.split("=") for word in words if "=" in word)
            getattr(self, verb)(*(word for word in words if "=" not in word), **named)
        return self

    def setting(self, scope: str = "TASK", version: str = "2", partitions: str = "2") -> None:
        """Comes first, if at all. `version` of the transactions: with 2 every marker carries the next epoch."""
        self._scope, self._version = Scope[scope], int(version)
        self._logs: list[list[LogEntry]] = [[] for _ in range(int(partitions))]

    # ---- the job

    def run(self, *batches: str) -> None:
        """Whole batches without faults, looked at in between."""
        for batch in batches:
            self.tell(f"write {batch}; read; decide {batch}")
            for name in self._named(batch):
                self.tell(f"commit {name}; read")

    def write(self, what: str, first: str = "9", name: str = "") -> None:
        """Attempts of tasks: every slot of a batch, or one and of that the first few rows."""
        batch, _, one = what.partition(".")
        for slot, rows in enumerate(self.batches[int(batch)].slots):
            if one in ("", str(slot)):
                self.begin(str(slot), name or f"{batch}.{slot}")
                self.put(name or f"{batch}.{slot}", *rows[: int(first)])

    def write_as_one(self, batch: str, name: str) -> None:
        """Every slot of a batch in one transaction."""
        self.begin("batch", name)
        for rows in self.batches[int(batch)].slots:
            self.put(name, *rows)

    def begin(self, slot: str, name: str) -> None:
        """A new attempt initialises the slot's id: the next epoch but one, as the fence took the next."""
        producer_id, epoch = self._identities.get(slot, (100 + len(self._identities), -2))
        self._identities[slot] = producer_id, epoch + 2
        self.attempts[name] = Attempt(producer_id, epoch + 2)

    def roll_over(self, slot: str) -> None:
        """The slot's epochs are used up, or its transactional id has expired: it gets a new producer id."""
        self._identities[slot] = self._identities[slot][0] + 1000, -2

    def begin_again(self, old: str, name: str) -> None:
        """A second transaction under the identity of another."""
        self.attempts[name] = Attempt(self.attempts[old].producer_id, self.attempts[old].epoch)

    def put(self, name: str, *rows: str, bare: str = "") -> None:
        """Records into an attempt's transaction, whatever has become of that; or outside, under its producer id."""
        attempt = self.attempts[name]
        for index, row in enumerate(rows):
            partition = index % len(self._logs)
            offset = self._append(partition, EntryKind.DATA, attempt, row, not bare)
            if not bare:
                attempt.first.setdefault(partition, offset)
                self._owners[partition, offset] = attempt

    def commit(self, *names: str, also: str = "") -> None:
        """Commit markers where the attempts have data, and in one more partition."""
        self._end(EntryKind.COMMIT, names, also)

    def abort(self, *names: str, also: str = "") -> None:
        """Abort markers: the coordinator's timeout, or the fence of a newer attempt."""
        self._end(EntryKind.ABORT, names, also)

    def flip(self, place: str) -> None:
        """A marker in the log becomes the other kind."""
        partition, offset = _parsed(place)
        entry = self._logs[partition][offset]
        other = EntryKind.ABORT if entry.kind is EntryKind.COMMIT else EntryKind.COMMIT
        self._logs[partition][offset] = replace(entry, kind=other)

    def decide(self, batch: str, repaired: str = "0", offsets: str = "yes") -> None:
        """The driver's transaction: the decision and the source offsets, which a repair does not commit again."""
        self._decisions.append(Decided(self._now(), int(batch), int(repaired)))
        self._finished.add(int(batch))
        if repaired == "0" and offsets == "yes":
            self.commit_offsets(batch)

    def commit_offsets(self, batch: str) -> None:
        """A batch's source offsets alone."""
        self._group |= self.batches[int(batch)].source_offsets

    # ---- the watchers

    def read(self, isolation: str = "COMMITTED") -> None:
        """A reader is given everything up to its end of this moment."""
        rows = tuple(self._rows(Isolation[isolation]))
        self._reads.append(Read(self._now(), Isolation[isolation], rows, dict(self._group)))

    def hide(self, *records: str) -> None:
        """The latest read lacks records."""
        self._reread(*(row for row in self._reads[-1].rows if row.record not in records))

    def show(self, record: str, place: str) -> None:
        """The latest read has a record at a place, beside or instead of what it saw there."""
        row = Row(TOPIC, *_parsed(place), record)
        self._reread(*(each for each in self._reads[-1].rows if each[:3] != row[:3] or each == row), row)

    def see_offsets(self, **changed: str) -> None:
        """The group's offsets are asked for; `p0=7` lets the answer be 7 for partition 0 of the source."""
        self._offsets_seen.append(OffsetsSeen(self._now(), self._answer(changed)))

    def read_offsets(self, **changed: str) -> None:
        """The same for the latest read; a negative offset means none."""
        self._reads[-1] = replace(self._reads[-1], group_offsets=self._answer(changed))

    def listed(self, transactional_id: str) -> None:
        """Kafka's tools list an open transaction at the end."""
        self._listed += (transactional_id,)

    def fault(self, kind: str, name: str, fired: str) -> None:
        """A planned fault."""
        self._faults += (Fault(kind, name, fired == "yes"),)

    def finished(self, batch: str) -> None:
        """Spark's commit log holds a batch for done."""
        self._finished.add(int(batch))

    def history(self) -> History:
        """What has been told."""
        return History(
            self._scope,
            self.batches,
            log=tuple(entry for log in self._logs for entry in log),
            reads=tuple(self._reads),
            decisions=tuple(self._decisions),
            offsets_seen=tuple(self._offsets_seen),
            open_transactions=self._listed,
            faults=self._faults,
            finished=tuple(sorted(self._finished)),
        )

    # ---- the model's own

    def _named(self, name: str) -> list[str]:
        return [name] if name in self.attempts else [each for each in self.attempts if each.startswith(f"{name}.")]

    def _end(self, kind: EntryKind, names: tuple[str, ...], also: str) -> None:
        for attempt in (self.attempts[each] for name in names for each in self._named(name)):
            bumped = self._version == 2 or kind is EntryKind.ABORT
            for partition in sorted({*attempt.first, *map(int, also)}):
                self._append(partition, kind, replace(attempt, epoch=attempt.epoch + bumped))
            attempt.end = kind

    def _append(self, partition: int, kind: EntryKind, by: Attempt, row: str | None = None, inside: bool = True) -> int:
        log = self._logs[partition]
        log.append(LogEntry(TOPIC, partition, len(log), kind, by.producer_id, by.epoch, row, inside))
        return len(log) - 1

    def _rows(self, isolation: Isolation) -> list[Row]:
        rows: list[Row] = []
        for partition, log in enumerate(self._logs):
            owners = {entry.offset: self._owners.get((partition, entry.offset)) for entry in log}
            unended = [each.first[partition] for each in owners.values() if each is not None and each.end is None]
            stable = min(unended, default=len(log))
            for entry in log:
                owner = owners[entry.offset]
                committed = entry.offset < stable and (owner is None or owner.end is EntryKind.COMMIT)
                if entry.kind is EntryKind.DATA and (committed or isolation is Isolation.UNCOMMITTED):
                    rows.append(Row(TOPIC, partition, entry.offset, entry.record))
        return rows

    def _reread(self, *rows: Row) -> None:
        self._reads[-1] = replace(self._reads[-1], rows=rows)

    def _answer(self, changed: dict[str, str]) -> dict[Partition, int]:
        return self._group | {("in", int(name[1:])): int(offset) for name, offset in changed.items()}

    def _now(self) -> int:
        self._moment += 1
        return self._moment


def _parsed(place: str) -> tuple[int, int]:
    partition, _, offset = place.removeprefix(f"{TOPIC}-").partition("@")
    return int(partition), int(offset)


class Story(NamedTuple):
    """One history: the kinds that are in it, and words of one of the messages; none of both where it is legal."""

    name: str
    kinds: frozenset[Kind]
    words: str
    steps: str

    def history(self) -> History:
        """The story, told."""
        return World(self.steps).history()


def _stories(text: str) -> tuple[Story, ...]:
    """Read stories: a line `name | kinds | words`, and under it, indented, the steps."""
    stories: list[Story] = []
    for line in filter(None, text.splitlines()):
        if line.startswith(" "):
            stories[-1] = stories[-1]._replace(steps=f"{stories[-1].steps}; {line}")
        else:
            name, kinds, words = (*map(str.strip, line.split("|")), "", "")[:3]
            stories.append(Story(name, frozenset(map(Kind.__getitem__, kinds.split())), words, ""))
    return tuple(stories)


BAD = _stories("""
a reader lacks one record | LOST_WRITE TORN_BATCH | 'b0.s1.r1' of batch 0 slot 1
    write 0; decide 0; commit 0; read; hide b0.s1.r1
a reader lacks a whole slot | LOST_WRITE TORN_BATCH | 3 of 5 records
    write 0; decide 0; commit 0; read; hide b0.s1.r0 b0.s1.r1
a reader lacks a whole batch that the log has | LOST_WRITE | committed at out-0@2
    write 0; decide 0; commit 0; read; hide b0.s0.r0 b0.s0.r1 b0.s0.r2 b0.s1.r0 b0.s1.r1
a reader is given one row twice | DUPLICATE | at out-0@0 was given 2 times
    run 0; read; show b0.s0.r0 out-0@0
a reader is given a row of an attempt that was retried | ABORTED_READ DUPLICATE | out-0@2, read at moment 2, is aborted
    write 0; abort 0.1; write 0.1; decide 0; commit 0; read; show b0.s1.r0 out-0@2
a reader is given another row than the aborted one of that place | NOT_IN_LOG DUPLICATE | the log has 'b0.s1.r0'
    write 0; abort 0.1; write 0.1; decide 0; commit 0; read; show b0.s1.r1 out-0@2
a reader is given a row of a batch that was given up | ABORTED_READ DIRTY_READ TORN_BATCH | 'b1.s0.r0' of batch 1
    run 0; write 1; abort 1; read; show b1.s0.r0 out-0@5
a reader sees into a transaction that is aborted later | ABORTED_READ DUPLICATE NON_MONOTONIC_READ | disappeared
    write 0; read; show b0.s0.r0 out-0@0; abort 0; write 0; decide 0; commit 0; read
a reader sees into a transaction that never ends | ABORTED_READ DIRTY_READ OPEN_TRANSACTION TORN_BATCH | never ended
    run 0; write 1.0; read; show b1.s0.r0 out-0@5
a reader is given a record where the log has a marker | NOT_IN_LOG DUPLICATE | no record there
    run 0; read; show b0.s0.r0 out-0@3
a reader is given another text than the log has | NOT_IN_LOG PHANTOM LOST_WRITE TORN_BATCH | the log has 'b0.s0.r0'
    write 0; decide 0; commit 0; read; show b0.s0.rX out-0@0
an uncommitted reader is given what the log lost | NOT_IN_LOG | out-1@9
    write 0; read UNCOMMITTED; show b0.s0.r0 out-1@9; decide 0; commit 0; read
a record is seen and gone at the end | NON_MONOTONIC_READ LOST_WRITE TORN_BATCH | out-0@2 disappeared
    run 0; read; hide b0.s1.r0
a record is seen, gone for a while and back | NON_MONOTONIC_READ | came in at out-0@0
    run 0; read; hide b0.s0.r0; read
a record comes in behind what was read | NON_MONOTONIC_READ | behind offset 2
    write 0; decide 0; commit 0; read; hide b0.s0.r0; read
an offset changes its record | NON_MONOTONIC_READ NOT_IN_LOG DUPLICATE | became 'b0.s0.r0'
    write 0; decide 0; commit 0; read; show b0.s1.r0 out-0@0; read
a slot is committed before a decision that never comes | DIRTY_READ TORN_BATCH | batch 1, never decided
    run 0; write 1; commit 1.0; abort 1.2; read
a whole batch is committed without a decision | DIRTY_READ | b1.s2.r1
    run 0; write 1; commit 1; read
offsets are committed for a batch that is given up | INCONSISTENT_OFFSETS | batch 1, never decided
    run 0; write 1; abort 1; commit_offsets 1; read
a decided slot is timed out and not written again | LOST_WRITE TORN_BATCH | the log: aborted at out-0@7
    run 0; write 1; decide 1; commit 1.0; abort 1.2; read
every slot of a decided batch is timed out | LOST_WRITE INCONSISTENT_OFFSETS | none of its 6 records is there
    run 0; write 1; decide 1; abort 1; read
a decided slot is never ended | OPEN_TRANSACTION LOST_WRITE TORN_BATCH | producer 101 epoch 0 has no marker
    write 0; decide 0; commit 0.0; read
a slot that is committed is written again as a repair | DUPLICATE | is visible at out-0@2, out-0@5
    write 0; decide 0; commit 0; write 0.1; decide 0 repaired=1; commit 0.1; read
a repair writes fewer rows | LOST_WRITE TORN_BATCH | b0.s1.r1
    write 0; decide 0; commit 0.0; abort 0.1; write 0.1 first=1; decide 0 repaired=1; commit 0.1; read
a repair writes another row | PHANTOM LOST_WRITE TORN_BATCH | 'other' at out-1@4
    write 0; decide 0; commit 0.0; abort 0.1; begin 1 name=x; put x b0.s1.r0 other; decide 0 repaired=1; commit x; read
a decided batch is written whole again by the next run | DUPLICATE | b0.s0.r2
    run 0; write 0; commit 0; read
an older attempt is not fenced and commits too | DUPLICATE WRONG_EPOCH_ORDER | COMMIT at out-0@5 by producer 100 epoch 1
    write 0.0 name=older; write 0; decide 0; commit older 0; read
another program commits to the topic | PHANTOM | 'foreign' at out-0@5
    run 0; begin x name=x; put x foreign foreign; commit x; read
another program writes without a transaction | PHANTOM | belongs to no batch
    run 0; begin x name=x; put x foreign bare=yes; read
a slot is written without a transaction | OUTSIDE_TRANSACTION | 'b0.s0.r1' at out-1@0
    begin 0 name=x; put x b0.s0.r0 b0.s0.r1 b0.s0.r2 bare=yes; write 0.1; decide 0; commit 0.1; read
a row outside transactions, not decided, is not shown | OUTSIDE_TRANSACTION DIRTY_READ | batch 1, never decided
    run 0; begin 0 name=x; put x b1.s0.r0 bare=yes; read; hide b1.s0.r0
the rows of a slot change their order | REORDERED_ROWS | 'b0.s0.r0' of batch 0 slot 0 stands at out-0@1, behind 'b0.s0.r2'
    begin 0 name=x; put x b0.s0.r2 b0.s0.r1 b0.s0.r0; write 0.1; decide 0; commit x 0.1; read
a batch is written twice within one transaction | DUPLICATE | b0.s0.r0
    write 0; put 0.0 b0.s0.r0 b0.s0.r1 b0.s0.r2; decide 0; commit 0; read
a transaction is committed in one partition, aborted in another | SPLIT_TRANSACTION LOST_WRITE TORN_BATCH | aborted at out-1@0
    write 0; decide 0; commit 0; flip out-1@2; read; hide b0.s0.r1
two slots share a transaction | SPLIT_TRANSACTION | carries rows of batch 0 slot 0
    write_as_one 0 name=x; decide 0; commit x; read
two batches share a transaction | SPLIT_TRANSACTION | batch 1 slot 0 ('b1.s0.r0' at out-0@
    write 0; write 1.2; put 0.0 b1.s0.r0 b1.s0.r1 b1.s0.r2 b1.s0.r3; decide 0; decide 1; commit 0 1.2; read
a slot is committed half by half | SPLIT_TRANSACTION | batch 0 slot 0 was committed by
    write 0.1; begin 0 name=x; put x b0.s0.r0 b0.s0.r1; begin 9 name=y; put y b0.s0.r2; decide 0; commit 0.1 x y; read
a zombie writes after its successor | WRONG_EPOCH_ORDER | DATA at out-0@8 by producer 100 epoch 0 stands after epoch 3
    write 0.0 name=zombie; abort zombie; write 0; decide 0; commit 0; put zombie b0.s0.r0; abort zombie; read
a zombie's marker comes after its successor's | WRONG_EPOCH_ORDER | ABORT at out-1@
    write 0.0 name=zombie; abort zombie; write 0; decide 0; commit 0; abort zombie; read
an identity is used for a second transaction | WRONG_EPOCH_ORDER | after the end of that epoch's transaction
    setting version=1; write 0; decide 0; commit 0; begin_again 0.0 name=x; put x b0.s0.r0; abort x; read
a batch that is given up leaves a slot open | OPEN_TRANSACTION | 1 records from out-0@7
    run 0; write 1; abort 1.0; read
Kafka's tools list a hanging transaction | OPEN_TRANSACTION | 'pipe:7'
    run 0; listed pipe:7; read
the offsets stay behind the newest batch | INCONSISTENT_OFFSETS | not those of the newest decided batch, 1
    run 0; write 1; decide 1 offsets=no; commit 1; read
no offsets are ever committed | INCONSISTENT_OFFSETS | offsets (none) at the end
    write 0; decide 0 offsets=no; commit 0; read
the offsets advance partition by partition | INCONSISTENT_OFFSETS | in-0: 20 at moment 5 are those of no batch
    run 0; see_offsets p0=20; run 1; read
the offsets go backwards for a while | INCONSISTENT_OFFSETS | in-0 went from 20 back to 10
    run 0 1; see_offsets; see_offsets p0=10 p1=-1; read
the offsets are gone at the end | INCONSISTENT_OFFSETS | in-0 went from 10 back to None
    run 0; read; read_offsets p0=-1001
a batch is passed over | SKIPPED_BATCH | batch 1 was never decided, batch 3 was
    run 0; write 1; abort 1; run 2 3; read
Spark takes a batch for done that was not decided | SKIPPED_BATCH | Spark holds batch 1 for done
    run 0; write 1; abort 1; finished 1; read
a batch is decided twice | DECISION_ORDER | batch 0 was decided again
    run 0; decide 0; read
a repair is recorded twice | DECISION_ORDER | without a repair
    write 0; decide 0; abort 0.1; write 0.1; decide 0 repaired=1; decide 0 repaired=1; commit 0; read
an earlier batch is decided after a later one | DECISION_ORDER | batch 0 was decided after batch 1
    run 0 1; decide 0 repaired=1; read
a batch is decided that nobody began | PHANTOM | batch 4 was decided
    run 0 1 2 3; decide 4 offsets=no; read
a fault does not fire | FAULT_NOT_FIRED | kill 'broker-1'
    run 0; fault kill broker-1 no; read
scope=batch: a reader sees a part that is whole later | TORN_BATCH | 4 of 5 records are in the read at moment 2
    setting scope=BATCH; write_as_one 0 name=x; decide 0; commit x; read; hide b0.s1.r1; read
scope=batch: every slot has a transaction of its own | SPLIT_TRANSACTION | batch 0 was committed by
    setting scope=BATCH; write 0; decide 0; commit 0; read
""")

LEGAL = _stories("""
nothing goes wrong
    run 0 1 2; see_offsets; run 3; see_offsets; read UNCOMMITTED; read
nothing is written at all
    read
the group has no offsets at first
    read; read_offsets p0=-1001; see_offsets p0=-1; run 0; read
the last batch is given up
    run 0 1 2; write 3; read; abort 3; read
a task is retried in the middle
    write 0.0 first=1; read UNCOMMITTED; abort 0.0; write 0; read; decide 0; read; commit 0; read UNCOMMITTED; read
an attempt with another order is given up
    begin 0 name=x; put x b0.s0.r2 b0.s0.r1 b0.s0.r0; abort x; run 0; read
an attempt with rows of other slots is given up
    begin 0 name=x; put x b0.s0.r0 b0.s1.r0 b1.s0.r0; abort x; run 0 1; read
the driver is killed before the decision
    run 0; write 1; read; abort 1; write 1; decide 1; commit 1; read
the driver is killed after the decision, the next run ends the slots
    write 0; decide 0; read; see_offsets; commit 0.1; read; see_offsets; commit 0.0; run 1; read
the driver is killed before an empty batch is decided
    run 0 1; write 2; read; run 2; run 3; read
a decided slot is timed out and repaired
    write 0; decide 0; commit 0.0; read; abort 0.1; read; write 0.1; decide 0 repaired=1; read; commit 0.1; run 1; read
a repair is lost and repaired
    write 0; decide 0; commit 0.0; abort 0.1; write 0.1; decide 0 repaired=1; abort 0.1; read
    write 0.1; decide 0 repaired=2; commit 0.1; run 1; read
every slot is repaired
    write 0; decide 0; abort 0; write 0; decide 0 repaired=1; commit 0.1; read; commit 0.0; read
a repair with other rows is refused, the next one is right
    write 0; decide 0; commit 0.0; abort 0.1; begin 1 name=x; put x b0.s1.r0 other; abort x; read
    write 0.1; decide 0 repaired=1; commit 0.1; read
a partition ends in aborted rows and markers, some without data and some sent twice
    write 0; decide 0; commit 0 also=1; commit 0; read; write 1; abort 1 also=0; abort 1; read
a slot gets a new producer id
    run 0; roll_over 0; run 1; write 3.0; abort 3.0; roll_over 0; run 2 3; read
transaction version 1
    setting version=1; write 0; abort 0.1; write 0.1; decide 0; commit 0; run 1 2; write 3; abort 3; run 3; read
one partition, in which an open transaction hides the end of a committed one
    setting partitions=1; begin 0 name=0.0; put 0.0 b0.s0.r0; write 0.1; put 0.0 b0.s0.r1 b0.s0.r2
    decide 0; commit 0.0; read; commit 0.1; read
more partitions than rows
    setting partitions=9; run 0 1 2 3; read
the ledger shows the decisions after the output does
    write 0; commit 0; read; write 1; commit 1; read; decide 0; decide 1; read
the group shows the offsets after the output does
    write 0; decide 0 offsets=no; commit 0; see_offsets; read; commit_offsets 0; read
scope=batch: with an attempt that is given up
    setting scope=BATCH partitions=3; write_as_one 0 name=x; read; decide 0; commit x; read
    write_as_one 1 name=y; read; abort y; write_as_one 1 name=y; decide 1; commit y; read
""")


def score() -> tuple[int, int]:
    """(bad histories rejected for exactly their reasons, bad histories)."""
    rejected = sum({each.kind for each in check(story.history())} == story.kinds for story in BAD)
    return rejected, len(BAD)
