"""Looks at the broker's logs after everything that is written to them, for the whole history.

Owns: what a reader of committed records has been given at each moment, which process uses which identity; the rules
that hold at every moment, not only at the end.
Does not know: decisions and offsets (`decisions`), what is asked of the end (`judge`), which faults strike.
Invariants: a look changes nothing: no step of the world, nothing drawn, nothing sent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark_kafka_eos.client.requests.transactions
import pyspark_kafka_eos.slot.writer
from embedded_kafka.log.segments import files
from embedded_kafka.topics.topics import Topics
from kafka_core.table import Story
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.requests.ends import EndAnswer, EndRequest
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import parse_transactional_id
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from pyspark_kafka_eos.records import MarkerKind
from tests.chaos.history import Fate, Isolation, Read, Row
from tests.simulation.decisions import Decisions, Identity, pair
from tests.simulation.job import rows_of
from tests.simulation.tail import Entry, News, Partition, Tail

if TYPE_CHECKING:
    from tests.simulation.play import Scene

OUTPUT = "out"
MOST_PROBLEMS = 5
"""A history that is wrong is wrong at every look; the first ones tell why."""


class Watch:
    """The looks at one history. `install` begins them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.problems: list[str] = []
        self.partitions: dict[int, Partition] = {}
        self.decisions = Decisions(self)
        self.reads: list[Read] = []
        self.in_one_transaction = scene.job.options.get("transaction.scope") == "batch"
        self.last_fault_s = 0.0
        self.repairs_begun = 0
        self.written_s: dict[Identity, float] = {}
        """When the first record was written under an identity."""
        self.aborted_s: dict[Identity, float] = {}
        """When the first abort marker ended what was written under it."""
        self.looks = 0
        self._moment = 0
        self._tails: defaultdict[str, Tail] = defaultdict(Tail)
        self._committed: Counter[str] = Counter()
        self._spent: dict[int, int] = {}
        self._handed_out: dict[ProducerIdentity, ProducerIdentity | None] = {}
        """What InitProducerId gave -> the identity that was sent for it."""
        self._writers: dict[Identity, int] = {}

    # ---- taking part

    def install(self) -> None:
        """Look from now on, until the scene is over."""
        scene = self.scene
        append = files.LogFile.append

        def appended(file: files.LogFile, buffers: Sequence[Any], *, sync: bool = False) -> None:
            append(file, buffers, sync=sync)
            if file.path.suffix == ".log":
                self._safely(self._look, file.path)

        cut = Topics.cut

        def shortened(topics: Topics, where: TopicPartition, offset: int) -> Any:
            log = cut(topics, where, offset)
            self._safely(self._cut, where, offset, Path(log.directory))
            return log

        self._replace(files.LogFile, "append", appended)
        self._replace(Topics, "cut", shortened)
        reached = crash_points.reached

        def at_point(name: str) -> None:
            rule = {
                "before-check": self.decisions.check_begins,
                "decision-written": self.decisions.written,
                "before-rewrite": self._repair_begins,
            }.get(name)
            if rule is not None:
                self._safely(rule)
            reached(name)

        scene.at_crash_points(at_point)
        initialize, stamper = Transactions.init_producer_id, pyspark_kafka_eos.slot.writer.stamper
        end_many = pyspark_kafka_eos.client.requests.transactions.end_many

        def initialized(
            transactions: Transactions,
            name: str,
            timeout_ms: int,
            current: ProducerIdentity | None = None,
            **more: Any,
        ) -> ProducerIdentity:
            identity = initialize(transactions, name, timeout_ms, current, **more)
            self._safely(self._identity_given, identity, current)
            return identity

        def ended(cluster: Any, requests: Sequence[EndRequest], *more: Any, **named: Any) -> list[EndAnswer]:
            self._safely(self._ends_asked, requests)
            return end_many(cluster, requests, *more, **named)

        def stamping(batch: Any, identity: ProducerIdentity) -> Any:
            self._safely(self._written_by, identity.producer_id, identity.epoch)
            return stamper(batch, identity)

        step = Story.step

        def stepped(story: Story, machine: Any, event: object) -> Any:
            self._safely(self.decisions.told, event)
            return step(story, machine, event)

        self._replace(Story, "step", stepped)
        self._replace(Transactions, "init_producer_id", initialized)
        self._replace(pyspark_kafka_eos.client.requests.transactions, "end_many", ended)
        self._replace(pyspark_kafka_eos.slot.writer, "stamper", stamping)
        scene.world.fired = _Timed(self, scene.world.fired)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name)
        setattr(owner, name, value)
        self.scene.stack.callback(setattr, owner, name, before)

    def _safely(self, rule: Any, *arguments: Any) -> None:
        # An exception would strike the broker or the driver in whose thread a rule is asked.
        try:
            rule(*arguments)
        except Exception as error:  # noqa: BLE001 -- it is the history's problem
            self.problem(f"a look failed: {type(error).__name__}: {error}")

    def problem(self, what: str) -> None:
        """Hold it against the history."""
        if len(self.problems) < MOST_PROBLEMS and what not in self.problems:
            self.problems.append(what)

    def moment(self) -> int:
        """The number of the next observation."""
        self._moment += 1
        return self._moment

    def expected_of(self, batch: int) -> frozenset[str]:
        """The rows of a batch."""
        job = self.scene.job
        return frozenset(row for slot in range(job.slots) for row in rows_of(batch, slot, job.rows_in(batch, slot)))

    # ---- looks

    def _look(self, path: Path) -> None:
        self.looks += 1
        topic, _, number = path.parent.name.rpartition("-")
        if topic == OUTPUT:
            self._look_at_output(path, int(number))
            return
        look = {
            DEFAULT_LEDGER_TOPIC: self.decisions.ledger,
            "__transaction_state": self.decisions.coordinated,
            "__consumer_offsets": self.decisions.group_log,
        }.get(topic)
        if look is not None:
            for batch in self._tails[path.parent.name].take(path):
                look(batch)

    def _cut(self, where: TopicPartition, offset: int, directory: Path) -> None:
        """A leader without the end of the log was elected: nobody has read what is gone, or it is a row of
        `scene.lost`.
        """
        if where.topic == OUTPUT:
            self.partitions.setdefault(where.partition, Partition(OUTPUT, where.partition)).cut(offset, directory)
            return
        self._tails[directory.name].cut(directory)
        if where.topic == DEFAULT_LEDGER_TOPIC:
            self.decisions.cut(offset)

    def _look_at_output(self, path: Path, number: int) -> None:
        partition = self.partitions.setdefault(number, Partition(OUTPUT, number))
        for news in partition.take(path):
            for problem in partition.faults:
                self.problem(problem)
            self._written(partition, news)
            self._ended(partition, news)
            if news.given:
                self._given(partition, news.given)

    # ---- the output

    def _written(self, partition: Partition, news: News) -> None:
        for entry in news.written:
            self.written_s.setdefault(entry.identity, self.scene.world.now)
            if entry.fate is not Fate.BARE and entry.epoch <= self._spent.get(entry.producer_id, -1):
                self.problem(
                    f"{partition}@{entry.offset}: {entry.record!r} is written under producer {entry.producer_id} epoch "
                    f"{entry.epoch}, which has committed before"
                )

    def _ended(self, partition: Partition, news: News) -> None:
        if news.marker is MarkerKind.ABORT:
            for entry in news.ended:
                self.aborted_s.setdefault(entry.identity, self.scene.world.now)
            return
        for entry in news.ended:
            self._committed[entry.record] += 1
            self._spent[entry.producer_id] = max(self._spent.get(entry.producer_id, -1), entry.epoch)
            batch = batch_of(entry.record)
            if batch not in self.decisions.newest:
                self.problem(
                    f"{entry.record!r} at {partition}@{entry.offset} is committed, and batch {batch} is not decided"
                )
            elif entry.identity not in self.decisions.named[batch]:
                self.problem(
                    f"{entry.record!r} at {partition}@{entry.offset} is committed under producer {entry.producer_id} epoch "
                    f"{entry.epoch}, which no decision of batch {batch} names"
                )

    def _given(self, partition: Partition, given: tuple[Entry, ...]) -> None:
        whole = self.in_one_transaction
        for batch in {batch_of(entry.record) for entry in given}:
            self._in_order(partition, batch)
            if whole:
                self._all_or_nothing(partition, batch)
        # While markers are on their way a reader of several partitions sees part of any transaction.
        if not (whole and self._partly_given()):
            rows = [row for each in self.partitions.values() for row in each.rows()]
            self.reads.append(Read(self.moment(), Isolation.COMMITTED, tuple(rows)))

    def _in_order(self, partition: Partition, batch: int) -> None:
        """What a slot has in a partition is given in the order in which it was written, from its first row on."""
        written: defaultdict[int, list[int]] = defaultdict(list)
        given: defaultdict[int, list[int]] = defaultdict(list)
        for entry in partition.entries:
            if entry.fate is Fate.COMMITTED and batch_of(entry.record) == batch:
                _, slot, row = parts_of(entry.record)
                written[slot].append(row)
        for entry in partition.given:
            if batch_of(entry.record) == batch:
                _, slot, row = parts_of(entry.record)
                given[slot].append(row)
        for slot, rows in given.items():
            if rows != sorted(set(written[slot]))[: len(rows)]:
                self.problem(
                    f"{partition} gives the rows {rows} of batch {batch} slot {slot}, of {sorted(written[slot])}"
                )

    def _all_or_nothing(self, partition: Partition, batch: int) -> None:
        """scope=batch: in one partition the batch is given at one instant, and the rest of it is as sure as this
        part.
        """
        given = [entry for entry in partition.given if batch_of(entry.record) == batch]
        identities = {entry.identity for entry in given}
        rest = [entry for entry in partition.entries if entry.identity in identities]
        if len(rest) != len(given) or len(identities) != 1:
            self.problem(
                f"{partition} gives {len(given)} of {len(rest)} rows of batch {batch}, under {sorted(identities)}"
            )
        there = {
            entry.record
            for each in self.partitions.values()
            for entry in each.entries
            if entry.identity in self.decisions.named[batch] and entry.fate is not Fate.ABORTED
        }
        missing = self.expected_of(batch) - there
        # A mending that times out aborts what it was to commit; the batch is then repaired.
        mended = {producer_id for producer_id, _ in self.decisions.noted} & {
            producer_id for producer_id, _ in identities
        }
        if missing and not mended:
            self.problem(
                f"a part of batch {batch} is given, and {sorted(missing)} is aborted or was never in its transaction"
            )

    def _partly_given(self) -> bool:
        given = Counter(batch_of(entry.record) for each in self.partitions.values() for entry in each.given)
        return any(count < len(self.expected_of(batch)) for batch, count in given.items())

    def final_rows(self) -> tuple[Row, ...]:
        """What a reader has been given in the end."""
        return tuple(row for each in self.partitions.values() for row in each.rows())

    def not_committed(self, batches: int) -> list[str]:
        """The rows of the first batches that no commit marker has ended so far."""
        return [row for batch in range(batches) for row in self.expected_of(batch) if not self._committed[row]]

    # ---- what processes ask for

    def _repair_begins(self) -> None:
        """A repair needs an abort marker of a transaction that a decision names."""
        self.repairs_begun += 1
        named = set().union(*self.decisions.named.values())
        aborted = (
            entry.fate is Fate.ABORTED and entry.identity in named
            for each in self.partitions.values()
            for entry in each.entries
        )
        if not any(aborted):
            self.problem("a repair begins although nothing that is decided was aborted")

    def _ends_asked(self, requests: Sequence[EndRequest]) -> None:
        for request in requests:
            name = parse_transactional_id(request.transactional_id)
            if name is None or name.slot is None:
                continue
            identity, who = pair(request.identity), f"{request.transactional_id} under {request.identity}"
            decided = self.decisions.names(identity)
            if request.commit and not decided and identity not in self.decisions.noted:
                self.problem(f"EndTxn(commit) of {who}, which no decision names")
            if not request.commit and decided and self.decisions.current.get(request.transactional_id) == identity:
                self.problem(f"EndTxn(abort) of {who}, which is decided")
            hanging = (
                entry
                for partition in self.partitions.values()
                for entry in partition.open_of(request.identity.producer_id)
            )
            # A process that was fenced long ago may ask for anything: the coordinator refuses its epoch.
            fenced = any(
                each.producer_id == request.identity.producer_id and each.epoch > request.identity.epoch
                for each in self._handed_out
            )
            if not request.commit and not fenced and any(entry.sure for entry in hanging):
                self.problem(f"EndTxn(abort) of {who} aborts records whose commit lacks its marker")

    def _identity_given(self, identity: ProducerIdentity, sent: ProducerIdentity | None) -> None:
        # The coordinator repeats its answer to a request that repeats the identity (KIP-360). After a hand-over two
        # processes may send the same one, the one that commits and the one that gives up; `_written_by` sees whether
        # both write.
        if identity in self._handed_out and (sent is None or self._handed_out[identity] != sent):
            self.problem(f"InitProducerId gave {identity} twice")
        self._handed_out[identity] = sent

    def _written_by(self, producer_id: int, epoch: int) -> None:
        process = self.scene.world.current
        if process is not None and self._writers.setdefault((producer_id, epoch), process.number) != process.number:
            self.problem(f"two processes write under producer {producer_id} epoch {epoch}")


class _Timed(Counter[str]):
    """The world's counts of faults, with the time of the newest."""

    def __init__(self, watch: Watch, counts: Counter[str]) -> None:
        self._watch: Watch | None = None
        super().__init__(counts)
        self._watch = watch

    def __setitem__(self, kind: str, count: int) -> None:
        super().__setitem__(kind, count)
        if self._watch is not None:
            self._watch.last_fault_s = self._watch.scene.world.now


def parts_of(record: str) -> tuple[int, int, int]:
    """(batch, slot, row) of a record of the job."""
    batch, slot, row = record.split(".")
    return int(batch[1:]), int(slot[1:]), int(row[1:])


def batch_of(record: str) -> int:
    """The batch of a record of the job."""
    return parts_of(record)[0]
