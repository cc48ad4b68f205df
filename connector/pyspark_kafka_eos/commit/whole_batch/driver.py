"""The commit of scope=batch: the whole micro-batch, its ledger record and its source offsets in one Kafka transaction.

Owns: the identity that all tasks of a batch write under, when it is replaced, how often a batch is repeated.
Does not know: Spark; what may happen when in a try, which `machine.whole_batch` does.
Invariants:
- One identity carries one try of one batch: it is replaced before each try, except where EndTxn has just returned a
  fresh one.
- Replacing the identity fences every process that still writes under it.
- The driver's own id is initialised first, and its holder owns the pipeline. So a run that finds its identity
  fenced and still owns that id may take the batch's id again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from kafka_core import runtime
from kafka_core.errors import (
    AbortableError,
    AttemptRefused,
    BrokerUnavailable,
    ExactlyOnceError,
    IllegalMove,
    OutcomeUnknown,
    ProducerFenced,
    RetriableError,
    TransactionTooOld,
)
from kafka_core.table import unhandled
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.requests.transactions import TransactionView
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.session import SessionState
from pyspark_kafka_eos.commit.decision import BATCH_IS_RETRIED, Deciding, DecisionEvent, write_decision
from pyspark_kafka_eos.commit.gone.recreated import recreated
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.machine import whole_batch as bm
from pyspark_kafka_eos.commit.open_parts import leaders_of, log_starts, partitions_of, states_of
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import CountTasks, Handover, Run, Write
from pyspark_kafka_eos.commit.shell import Replay
from pyspark_kafka_eos.commit.whole_batch.merging import (
    is_as_sealed,
    merge,
    mismatch,
    require_every_slot,
    require_whole,
)
from pyspark_kafka_eos.commit.whole_batch.turns_end import end_turns
from pyspark_kafka_eos.model import Decision, Seal, batch_transactional_id
from pyspark_kafka_eos.model.group_offset import GroupOffsets
from pyspark_kafka_eos.slot.plan import SharedPlan, TurnsBegin, WritePlan, turns_key
from pyspark_kafka_eos.slot.turn_log import prepare_turns, turns_begin, turns_topic

log = logging.getLogger(__name__)

RESTED_S = 60.0
"""From this age on an identity that EndTxn returned is replaced before it is used: the coordinator forgets
idle ids (transactional.id.expiration.ms, by default 7 days), and the tasks would fail on that one by one. At
half, a query with a batch a minute would send needless requests; at double, only a shorter setting is missed,
and the batch is repeated then."""

_MOST_TRIES = 3
"""Tries of one batch in one run. A lost executor costs one; at double, a persistent fault is reported late
and keeps a cluster busy meanwhile."""


class WholeBatch:
    """One run's batches, each of which is one transaction. Not for several threads."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.batch_id = batch_transactional_id(run.options.pipeline)
        # A pipeline may change its scope between runs, so decisions of scope=task are finished here, too.
        self.per_task = PerTask(run)
        self._identity: ProducerIdentity | None = None
        self._fresh = False
        self._taken_at = 0.0
        self._turns: TopicPartition | None = None
        self._turns_begin: TurnsBegin | None = None

    def start(
        self, batch_id: int, replay: Replay | None = None, source_offsets: Sequence[str] | None = None
    ) -> CommitReport | None:
        """As in scope=task."""
        report = self.per_task.start(batch_id, replay, source_offsets)
        self._turns = self._prepare_turns()
        return report

    def begin(self, batch_id: int, source_offsets: Sequence[str] | None) -> frozenset[int] | None:
        """As in scope=task."""
        slots = self.per_task.begin(batch_id, source_offsets)
        self._turns = self._prepare_turns()
        return slots

    def _prepare_turns(self) -> TopicPartition:
        options = self.run.options
        return prepare_turns(self.run.cluster, turns_topic(options.ledger_topic), options.pipeline)

    # ---- from one process to another

    def hand_over(self, batch_id: int, repair: frozenset[int] | None) -> Handover:
        """The hand-over to the process that ends the batch. Call it after `plan`; this object is done then."""
        return self.run.hand_over(batch_id, repair, self._identity, self._turns_begin)

    def resume(self, handover: Handover) -> None:
        """Go on with a batch that another process began; ProducerFenced where another run has begun since."""
        self.run.resume(handover)
        self._identity, self._turns_begin = handover.shared, handover.turns

    def fence_and_resume(self, handover: Handover) -> None:
        """The same, and fence any process of that run that may be committing the batch."""
        self.run.fence_and_resume(handover)
        # Before the ledger is read: the batch's own decision may be open there, and no other process ends it.
        # A decision that is already made is not undone by this.
        self._identity = handover.shared
        self.replace_identity()
        self.run.read_newest()

    # ---- the identity of a try

    def _renew(self) -> ProducerIdentity:
        """An identity that no process has written under. Fences processes that still write under the old one, and
        aborts their records.
        """
        crash_points.reached("before-init-producer-id")
        # Ownership is checked first: the coordinator aborts an open transaction for any request with its producer id,
        # whatever the epoch, and only then refuses. A run that is over would abort a newer run's transaction.
        self.run.require_ownership()
        identity: ProducerIdentity | None = None
        if self._identity is not None:
            try:
                identity = self._initialize(self._identity)
            except ProducerFenced:
                # The coordinator itself raises the epoch of a transaction that timed out. Or a newer run
                # raised it; that run then owns the driver's id.
                self.run.require_ownership()
        if identity is None:
            identity = self._initialize(None)
            self.run.require_ownership()
        self._identity, self._fresh, self._taken_at = identity, True, runtime.monotonic()
        crash_points.reached("after-init-producer-id")
        return identity

    def _initialize(self, current: ProducerIdentity | None) -> ProducerIdentity:
        run = self.run
        return run.transactions.init_producer_id(self.batch_id, run.timeout_ms, current, two_phase=run.two_phase)

    # ---- one batch

    def plan(self, batch_id: int, only_slots: frozenset[int] | None = None) -> WritePlan | SharedPlan:
        """The plan for the tasks of a try. `only_slots`: as in scope=task, for a batch that a run of that scope
        decided.
        """
        writing = self.per_task.plan(batch_id, only_slots)
        if only_slots is not None:
            return writing
        rested = runtime.monotonic() - self._taken_at >= RESTED_S
        if not self._fresh or self._identity is None or rested:
            self._renew()
        assert self._identity is not None
        self._turns = turns = self._turns or self._prepare_turns()
        self._fresh = False
        self._turns_begin = turns_begin(self.run.cluster, turns)
        return SharedPlan(writing, self._identity, self.run.cluster.transaction_version, self._turns_begin)

    def process(
        self,
        batch_id: int,
        write: Write,
        source_offsets: Sequence[str],
        group_offsets: GroupOffsets,
        tasks: CountTasks = lambda: None,
    ) -> CommitReport:
        """Write and commit one batch; see `commit` for what an error means for the data.

        A try that failed before its EndTxn was sent is aborted, and the batch is repeated under a new epoch: at most
        twice, and once where its time ran out, because a second repetition would meet the same timeout.
        """
        tries = 0
        while True:
            tries += 1
            try:
                seals = write(None)
            except (AbortableError, RetriableError, OutcomeUnknown, ProducerFenced) as error:
                self._go_on_after(batch_id, error, last=tries == _MOST_TRIES)
                continue
            try:
                report = self.commit(batch_id, seals, source_offsets, group_offsets, None, tasks())
                return replace(report, redone=tries - 1)
            except (TransactionTooOld, AttemptRefused) as error:
                self._go_on_after(batch_id, error, last=tries > 1)

    def _go_on_after(self, batch_id: int, error: ExactlyOnceError, *, last: bool) -> None:
        self.run.require_ownership()
        if last:
            raise error
        log.warning("batch %d is retried: %s", batch_id, error)
        if self.run.ledger.look().open is not None:
            self._settle_last()
        self.run.clear_hanging()
        self.run.asks_anew = True
        # Clearing may have initialised the id.
        self._fresh = False

    def _settle_last(self) -> None:
        """The last decision lacks its marker. It is noted, and the marker is written where no try is open under the
        batch's id.
        """
        run = self.run
        run.mender.settle_decision(run.driver_id, run.options.offsets_group)
        if run.ledger.look().open is not None:
            # The failed try is open there. Its abort erases what the coordinator knows of the decision, and the note
            # keeps that.
            self.replace_identity()
            run.mender.settle_decision(run.driver_id, run.options.offsets_group)

    def abandon(self, batch_id: int, seals: Sequence[Seal], reason: str) -> None:
        """Abort an undecided try, and fence its tasks that may still be running. Best effort."""
        _Try(self, self.run.decision(batch_id, (), ()), {}).run(bm.BatchCommit().handle(ev.TasksFailed(reason)))

    def commit(
        self,
        batch_id: int,
        seals: Sequence[Seal],
        source_offsets: Sequence[str],
        group_offsets: GroupOffsets,
        replay: Replay | None = None,
        tasks: int | None = None,
    ) -> CommitReport:
        """Commit a try whose tasks are all done. Returns when every partition has its marker. `tasks`: as in
        scope=task.

        On an error nothing of the batch is visible, unless the error is OutcomeUnknown: then the next run determines
        the outcome.
        """
        run, began = self.run, runtime.perf_counter()
        seal = self._merged(seals, tasks)
        run.ledger.written_by(self._identity)
        decision = run.decision(batch_id, (seal,), source_offsets)
        idle = frozenset(each.slot for each in seals if each.identity is None)
        shell = _Try(self, decision, group_offsets, idle)
        shell.run(bm.BatchCommit().handle(bm.Written(seal)))
        return run.note_end(decision, began, shell.ended_at, resumed=False)

    def _merged(self, seals: Sequence[Seal], tasks: int | None) -> Seal:
        try:
            require_every_slot(seals, tasks)
            return merge(
                seals,
                transactional_id=self.batch_id,
                identity=self._identity,
                transaction_version=self.run.cluster.transaction_version,
                two_phase=self.run.two_phase,
            )
        except (AttemptRefused, IllegalMove) as error:
            self.abandon(-1, seals, str(error))
            raise

    # ---- what a try needs of its batch

    def replace_identity(self) -> None:
        """Fence and abort, as far as the coordinator can be reached; otherwise the next try, run or timeout does."""
        try:
            self._renew()
        except (BrokerUnavailable, OutcomeUnknown, ProducerFenced) as error:
            log.warning("the transaction of an undecided batch may still be open: %s", error)

    def end_turns(self, idle: Collection[int]) -> int | None:
        """Prevent every further start of a task from writing; see `turns_end.end_turns`."""
        if not idle:
            return None
        # Where the tasks of this try take them, whatever partition the topic's number of partitions gives by now.
        assert self._identity is not None and self._turns_begin is not None
        key = turns_key(self.batch_id, self._identity)
        return end_turns(self.run.cluster, self._turns_begin, key, idle)

    def view_of(self, seal: Seal) -> TransactionView:
        """The coordinator's view of the batch's transaction, which should be open as it was sealed."""
        return self.run.transactions.describe([self.batch_id], expected=lambda view: is_as_sealed(seal, view))[
            self.batch_id
        ]

    def take_next(self, identity: ProducerIdentity | None) -> None:
        """Keep the identity for after a commit: the fresh one of EndTxn, or None where the used one must be
        replaced.
        """
        if identity is not None:
            self._identity, self._fresh, self._taken_at = identity, True, runtime.monotonic()

    def forget_identity(self) -> None:
        """Drop the identity: another component has initialised the id on this driver's behalf."""
        self._identity, self._fresh = None, False


class _Try:
    """One try: effects in, events out. `idle`: the tasks that had no rows."""

    def __init__(
        self,
        batch: WholeBatch,
        decision: Decision,
        group_offsets: GroupOffsets,
        idle: Collection[int] = (),
    ) -> None:
        run = batch.run
        self._batch = batch
        self._run = run
        self._decision = decision
        self._group_offsets = group_offsets
        self._idle = idle
        self._deciding = Deciding(run)
        self._producer: Producer | None = None
        self._led: dict[TopicPartition, int] = {}
        self.ended_at = 0.0
        """When the end was answered, in seconds of `time.perf_counter`."""

    def run(self, start: tuple[bm.BatchCommit, Sequence[bm.Effect]]) -> None:
        """Carry the try to its end; raises why it was aborted or stopped."""
        self._deciding.carry_out(start, self.carry_out, self._decision.batch_id)

    def carry_out(self, effect: bm.Effect) -> Sequence[bm.Event]:
        """One effect; the events that came of it."""
        if isinstance(effect, ev.CheckAlive):
            (seal,) = effect.seals
            return self._check(seal)
        if isinstance(effect, ev.RecordDecision):
            (seal,) = effect.seals
            return self._decide(seal)
        if isinstance(effect, ev.AskDecision):
            assert self._producer is not None
            return self._answered(self._deciding.ask(self._producer, "the batch's"))
        if isinstance(effect, bm.AwaitVisible):
            if self._run.mender.await_markers([effect.seal], commit=True):
                self._batch.forget_identity()
            require_whole(self._run.cluster, effect.seal, self._led, self._facts())
            return [bm.Shown()]
        if isinstance(effect, bm.AbortBatch):
            self._batch.replace_identity()
            return [ev.AbortFinished()]
        if isinstance(effect, ev.StopUnknown):
            self._deciding.failure = OutcomeUnknown(
                f"the outcome of the batch is unknown: {effect.reason}; the batch is either fully committed or not committed at "
                "all; the next run asks again before it does anything else",
                self._facts(),
            )
            return []
        raise unhandled(effect)

    def _facts(self) -> dict[str, str | int]:
        return {"pipeline": self._run.options.pipeline, "batch": self._decision.batch_id}

    def _check(self, seal: Seal) -> Sequence[bm.Event]:
        run, batch = self._run, self._batch
        assert seal.identity is not None
        crash_points.reached("before-check")
        # Coordinator, leaders and turns are asked at the same time: a commit waits for the slowest of them only.
        with runtime.workers(3) as beside:
            where = partitions_of([seal])
            asked = beside.submit(states_of, run.cluster, where | {run.ledger.partition}, [seal])
            starts = beside.submit(log_starts, run.cluster, where)
            late = beside.submit(batch.end_turns, self._idle)
            view, states = batch.view_of(seal), asked.result()
            found = (
                mismatch(seal, view, states, starts.result())
                or self._deciding.unmarked(batch.batch_id, seal.identity.producer_id, states)
                or self._deciding.passed([seal], states)
            )
            found = recreated(run.cluster, [seal], states, run.newest, found)
            task = late.result()
        self._led = leaders_of(run.cluster, [seal])
        if found is None and task is not None:
            found = (
                f"task {task} was sealed without rows, and another attempt of it may have begun to write; {BATCH_IS_RETRIED}",
                {"task": task},
            )
        return self._deciding.checked(found)

    def _decide(self, seal: Seal) -> Sequence[bm.Event]:
        run = self._run
        assert seal.identity is not None
        self._producer = producer = Producer(
            run.cluster,
            self._batch.batch_id,
            transaction_timeout_ms=run.timeout_ms,
            delivery_timeout_ms=run.options.delivery_timeout_ms,
            two_phase=run.two_phase,
            transaction_version=seal.transaction_version,
        )
        producer.join(seal.identity)
        group = run.options.offsets_group

        def write() -> None:
            write_decision(producer, run.ledger, self._decision, group, self._group_offsets)

        return self._answered(self._deciding.record(producer, write, producer.stop))

    def _answered(self, event: DecisionEvent) -> Sequence[bm.Event]:
        if isinstance(event, ev.DecisionDurable):
            assert self._producer is not None
            self.ended_at = runtime.perf_counter()
            session = self._producer.session
            self._batch.take_next(session.identity if session.state is SessionState.READY else None)
            crash_points.reached("after-decision")
        return [event]
