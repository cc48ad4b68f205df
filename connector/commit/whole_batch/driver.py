"""The driver of scope=batch: the whole micro-batch, its ledger record and its source offsets in one Kafka transaction.

Owns: the identity that all tasks of a batch write under, when it is replaced, how often a batch is repeated.
Does not know: Spark; what may happen when in a try, which `machines.commit.whole_batch` does.
Invariants:
- One identity carries one try of one batch: it is replaced before
  each try, except where EndTxn has just returned a fresh one.
- Replacing the identity fences every process that still writes under it.
- The driver's own id is initialised first, and its holder owns the pipeline. So a run that finds its identity
  fenced and still owns that id may take the batch's id again.

Longer than 400 lines until the decision, which both scopes share, has a shell of its own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from connector import crash_points, runtime
from connector.client.cluster import Cluster
from connector.client.producer import Producer
from connector.client.producer_states import States
from connector.client.transactions import TransactionView
from connector.commit.decision import ask_decision, unmarked, write_decision
from connector.commit.driver import CommitReport, CountTasks, PipelineDriver, Write
from connector.commit.markers import partitions_of, states_of
from connector.commit.shell import Replay
from connector.commit.whole_batch.merging import astray, merge, require_every_slot
from connector.commit.whole_batch.turns_end import end_turns
from connector.errors import (
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
from connector.machines.commit import whole_batch as bm
from connector.machines.commit.events import (
    AbortFinished,
    AllAlive,
    AskDecision,
    CheckAlive,
    DecisionDurable,
    DecisionRefused,
    DecisionUnanswered,
    NotAlive,
    RecordDecision,
    TasksFailed,
)
from connector.machines.producer.session import State as Session
from connector.machines.table import Story, unhandled
from connector.model import Decision, ProducerIdentity, Seal, TopicPartition, batch_transactional_id
from connector.options import SinkOptions
from connector.slot.plan import SharedPlan, WritePlan, turns_key
from connector.slot.turn_log import prepare_turns, turns_begin, turns_topic

log = logging.getLogger(__name__)

RESTED_S = 60.0
"""From this age on an identity that EndTxn returned is replaced before it is used: the coordinator forgets
idle ids (transactional.id.expiration.ms, by default 7 days), and the tasks would fail on that one by one. At
half, a query with a batch a minute would send needless requests; at double, only a shorter setting is missed,
and the batch is repeated then."""

_MOST_TRIES = 3
"""Tries of one batch in one run. A lost executor costs one; at double, a persistent fault is reported late
and keeps a cluster busy meanwhile."""


class BatchDriver(PipelineDriver):
    """One run of one query whose batches are one transaction each. Not for several threads."""

    def __init__(self, cluster: Cluster, options: SinkOptions, query_id: str) -> None:
        super().__init__(cluster, options, query_id)
        self.batch_id = batch_transactional_id(options.pipeline)
        self._identity: ProducerIdentity | None = None
        self._fresh = False
        self._taken_at = 0.0
        self._turns: TopicPartition | None = None
        self._turns_from: int | None = None

    def start(
        self, batch_id: int, replay: Replay | None = None, source_offsets: Sequence[str] | None = None
    ) -> CommitReport | None:
        """As in scope=task. Finishes decisions of that scope too,
        because a pipeline may change its scope between runs."""
        report = super().start(batch_id, replay, source_offsets)
        self._turns = self._prepare_turns()
        return report

    def _prepare_turns(self) -> TopicPartition:
        return prepare_turns(self.cluster, turns_topic(self.options.ledger_topic), self.options.pipeline)

    # ---- the identity of a try

    def _renew(self) -> ProducerIdentity:
        """An identity that no process has written under. Fences processes
        that still write under the old one, and aborts their records."""
        crash_points.reached("before-init-producer-id")
        # Ownership is checked first: the coordinator aborts an open transaction
        # for any request with its producer id, whatever the epoch, and only then
        # refuses. A run that is over would abort a newer run's transaction.
        self._require_ownership()
        identity: ProducerIdentity | None = None
        if self._identity is not None:
            try:
                identity = self._initialize(self._identity)
            except ProducerFenced:
                # The coordinator itself raises the epoch of a transaction that timed out. Or a newer run
                # raised it; that run then owns the driver's id.
                self._require_ownership()
        if identity is None:
            identity = self._initialize(None)
            self._require_ownership()
        self._identity, self._fresh, self._taken_at = identity, True, runtime.monotonic()
        crash_points.reached("after-init-producer-id")
        return identity

    def _initialize(self, current: ProducerIdentity | None) -> ProducerIdentity:
        return self.transactions.init_producer_id(
            self.batch_id, self._timeout_ms, current, two_phase=self.two_phase
        )

    # ---- one batch

    def plan(self, batch_id: int, only_slots: frozenset[int] | None = None) -> WritePlan | SharedPlan:  # type: ignore[override]
        """The plan for the tasks of a try. `only_slots`: as in
        scope=task, for a batch that a run of that scope decided."""
        writing = super().plan(batch_id, only_slots)
        if only_slots is not None:
            return writing
        rested = runtime.monotonic() - self._taken_at >= RESTED_S
        if not self._fresh or self._identity is None or rested:
            self._renew()
        assert self._identity is not None
        assert self._turns is not None
        self._fresh = False
        self._turns_from = begin = turns_begin(self.cluster, self._turns)
        return SharedPlan(writing, self._identity, self.cluster.transaction_version, self._turns, begin)

    def process(
        self,
        batch_id: int,
        write: Write,
        source_offsets: Sequence[str],
        group_offsets: Mapping[TopicPartition, int],
        tasks: CountTasks = lambda: None,
    ) -> CommitReport:
        """Write and commit one batch; see `commit` for what an error means for the data.

        A try that failed before its EndTxn was sent is aborted, and the batch
        is repeated under a new epoch: at most twice, and once where its time
        ran out, because a second repetition would meet the same timeout.
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
        self._require_ownership()
        if last:
            raise error
        log.warning("batch %d is retried: %s", batch_id, error)
        if self.ledger.look().open is not None:
            # The last decision lacks its marker. It is written under the batch's id, which the next try initialises.
            self.mender.settle_decision(self.driver_id, self.options.offsets_group)
        self._clear_hanging()
        # Clearing may have initialised the id.
        self._fresh = False

    def abandon(self, batch_id: int, seals: Sequence[Seal], reason: str) -> None:
        """Abort an undecided try, and fence its tasks that may still be running. Best effort."""
        self._run(bm.BatchCommit().handle(TasksFailed(reason)), self._decision(batch_id, (), ()), {})

    def commit(
        self,
        batch_id: int,
        seals: Sequence[Seal],
        source_offsets: Sequence[str],
        group_offsets: Mapping[TopicPartition, int],
        replay: Replay | None = None,
        tasks: int | None = None,
    ) -> CommitReport:
        """Commit a try whose tasks are all done. Returns when every partition has its marker. `tasks`: as in scope=task.

        On an error nothing of the batch is visible, unless the error
        is OutcomeUnknown: then the next run determines the outcome.
        """
        began = runtime.perf_counter()
        seal = self._merged(seals, tasks)
        decision = self._decision(batch_id, (seal,), source_offsets)
        # The one seal is no slot of scope=task.
        decision = replace(decision, highest_slot=self._last.highest_slot if self._last is not None else -1)
        idle = frozenset(each.slot for each in seals if each.identity is None)
        ended_at = self._run(bm.BatchCommit().handle(bm.Written(seal)), decision, group_offsets, idle)
        self._last = decision
        report = self._report(decision, began, ended_at, resumed=False)
        self.note_end(decision)
        return report

    def _merged(self, seals: Sequence[Seal], tasks: int | None) -> Seal:
        try:
            require_every_slot(seals, tasks)
            return merge(
                seals,
                transactional_id=self.batch_id,
                identity=self._identity,
                transaction_version=self.cluster.transaction_version,
                two_phase=self.two_phase,
            )
        except (AttemptRefused, IllegalMove) as error:
            self.abandon(-1, seals, str(error))
            raise

    # ---- carrying a try out

    def _run(
        self,
        start: tuple[bm.BatchCommit, Sequence[bm.Effect]],
        decision: Decision,
        group_offsets: Mapping[TopicPartition, int],
        idle: Collection[int] = (),
    ) -> float:
        """Carry a try to its end. Returns the time of the end's
        answer (`time.perf_counter`); raises why it was aborted."""
        shell = _Try(self, decision, group_offsets, idle)
        commit, effects = start
        queue = deque(effects)
        story = Story()
        try:
            while queue:
                for event in shell.carry_out(queue.popleft()):
                    commit, more = story.step(commit, event)
                    queue.extend(more)
        except ExactlyOnceError:
            log.info("batch %d stopped in %s after: %s", decision.batch_id, commit.state.name, story)
            raise
        if commit.state is bm.State.ABORTED and shell.failure is not None:
            raise shell.failure
        return shell.ended_at

    def replace_identity(self) -> None:
        """Fence and abort, as far as the coordinator can be
        reached; otherwise the next try, run or timeout does."""
        try:
            self._renew()
        except (BrokerUnavailable, OutcomeUnknown, ProducerFenced) as error:
            log.warning("the transaction of an undecided batch may still be open: %s", error)

    def end_turns(self, idle: Collection[int]) -> int | None:
        """Prevent every further start of a task from writing; see `turns_end.end_turns`."""
        if not idle:
            return None
        assert self._identity is not None
        where = self._turns or self._prepare_turns()
        key = turns_key(self.batch_id, self._identity)
        return end_turns(self.cluster, where, key, self._turns_from, idle)

    def view(self) -> TransactionView:
        """The coordinator's view of the batch's transaction."""
        return self.transactions.describe([self.batch_id])[self.batch_id]

    def take_next(self, identity: ProducerIdentity | None) -> None:
        """Keep the identity for after a commit: the fresh one of
        EndTxn, or None where the used one must be replaced."""
        if identity is not None:
            self._identity, self._fresh, self._taken_at = identity, True, runtime.monotonic()

    def forget_identity(self) -> None:
        """Drop the identity: another component has initialised the id on this driver's behalf."""
        self._identity, self._fresh = None, False


class _Try:
    """The I/O of one try: effects in, events out."""

    def __init__(
        self,
        driver: BatchDriver,
        decision: Decision,
        group_offsets: Mapping[TopicPartition, int],
        idle: Collection[int] = (),
    ) -> None:
        """`idle`: the tasks that had no rows."""
        self._driver = driver
        self._decision = decision
        self._group_offsets = group_offsets
        self._idle = idle
        self._producer: Producer | None = None
        self.failure: ExactlyOnceError | None = None
        self.ended_at = 0.0

    def carry_out(self, effect: bm.Effect) -> Sequence[bm.Event]:
        if isinstance(effect, CheckAlive):
            (seal,) = effect.seals
            return self._check(seal)
        if isinstance(effect, RecordDecision):
            (seal,) = effect.seals
            return self._decide(seal)
        if isinstance(effect, AskDecision):
            return self._ask()
        if isinstance(effect, bm.AwaitVisible):
            self._await_visible(effect.seal)
            return []
        if isinstance(effect, bm.AbortBatch):
            self._driver.replace_identity()
            return [AbortFinished()]
        raise unhandled(effect)

    def _check(self, seal: Seal) -> Sequence[bm.Event]:
        driver = self._driver
        crash_points.reached("before-check")
        # Coordinator, leaders and turns are asked at the same time: a commit waits for the slowest of them only.
        with runtime.workers(2) as beside:
            where = partitions_of([seal]) | {driver.ledger.partition}
            states = beside.submit(states_of, driver.cluster, where)
            late = beside.submit(driver.end_turns, self._idle)
            found = astray(seal, driver.view(), states.result()) or self._unmarked(seal, states.result())
            task = late.result()
        if found is not None:
            return self._not_alive(*found)
        if task is not None:
            return self._not_alive(
                f"task {task} was sealed without rows, and another attempt of it may have begun to write; no record of the batch "
                "is visible, and the batch is retried",
                {"task": task},
            )
        left_ms, margin_ms = driver._left_ms(), driver.options.transaction_margin_ms
        if left_ms < margin_ms:
            return self._not_alive(
                "the transaction is too close to its timeout to decide the batch safely; no record of the batch is visible, and the "
                "batch is retried; make batches smaller or raise kafka.transaction.timeout.ms",
                {"left_ms": round(left_ms), "margin_ms": margin_ms, "timeout_ms": driver._timeout_ms},
            )
        return [AllAlive()]

    def _unmarked(self, seal: Seal, states: States | None) -> tuple[str, dict[str, str | int | float]] | None:
        """The last decision of the batch's id where the broker left it without its marker: the next one's would end both."""
        driver = self._driver
        assert seal.identity is not None
        missing = driver.mender.misses_marker(driver.batch_id, seal.identity.producer_id, states)
        return unmarked(driver.ledger.partition) if missing else None

    def _not_alive(self, message: str, facts: dict[str, str | int | float]) -> Sequence[bm.Event]:
        self.failure = TransactionTooOld(message, facts)
        return [NotAlive(message)]

    def _decide(self, seal: Seal) -> Sequence[bm.Event]:
        driver = self._driver
        assert seal.identity is not None
        crash_points.reached("before-decision")
        self._producer = producer = Producer(
            driver.cluster,
            driver.batch_id,
            transaction_timeout_ms=driver._timeout_ms,
            delivery_timeout_ms=driver.options.delivery_timeout_ms,
            two_phase=driver.two_phase,
            transaction_version=seal.transaction_version,
        )
        producer.join(seal.identity)
        try:
            write_decision(
                producer, driver.ledger, self._decision, driver.options.offsets_group, self._group_offsets
            )
        except ExactlyOnceError as error:
            # EndTxn was not sent, so the batch is definitely not decided, whatever else is unclear.
            producer.stop()
            return self._refused(error)
        crash_points.reached("decision-written")
        try:
            producer.commit()
        except OutcomeUnknown as error:
            self.failure = error
            return [DecisionUnanswered(str(error))]
        except ExactlyOnceError as error:
            return self._refused(error)
        return self._durable()

    def _refused(self, error: ExactlyOnceError) -> Sequence[bm.Event]:
        self.failure = error
        return [DecisionRefused(str(error))]

    def _durable(self) -> Sequence[bm.Event]:
        assert self._producer is not None
        self.ended_at = runtime.perf_counter()
        self.failure = None
        session = self._producer.session
        self._driver.take_next(session.identity if session.state is Session.READY else None)
        crash_points.reached("after-decision")
        return [DecisionDurable()]

    def _ask(self) -> Sequence[bm.Event]:
        driver = self._driver
        assert self._producer is not None
        committed = ask_decision(driver.cluster, driver.ledger, self._producer)
        facts = {
            "pipeline": driver.options.pipeline,
            "producer": str(self._producer.session.identity),
            "ledger": str(driver.ledger.partition),
        }
        if committed is None:
            why = self._producer.session.reason
            raise OutcomeUnknown(
                f"the outcome of the batch is unknown: {why}; the batch is either fully committed or not committed at all; the next "
                "run asks again before it does anything else",
                facts,
            )
        if committed:
            return self._durable()
        self.failure = TransactionTooOld(
            "the batch's transaction was aborted by the broker; no record of the batch is visible, and the batch is retried",
            facts,
        )
        return [DecisionRefused(self.failure.message)]

    def _await_visible(self, seal: Seal) -> None:
        driver = self._driver
        if driver.mender.await_markers([seal], commit=True):
            driver.forget_identity()
