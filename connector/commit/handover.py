"""A batch that begins in one process and is committed in another: what the first hands over to the second.

Owns: the take-over before the tasks, the hand-over to the process
that commits or gives up, and which process may still do either.
Does not know: Spark, how the hand-over travels; how a batch is committed, which `driver` has.
Invariants:
- No task is planned before the pipeline is taken over and the ledger read.
- In the plan of a decided batch, only the slots that are proven aborted write.
- Commit and abort reuse the identity acquired at begin, so a process of an older run can do neither.
- Nothing that is decided is aborted.

Why no interleaving does harm. The beginning initialises the driver's id, which fences every older process of
the pipeline. It then reads the ledger, finishes what is decided, and only then plans tasks that write: so no
task initialises a slot whose decided transaction is still open. The commit initialises the driver's id again,
with the identity handed over; the coordinator allows that only while no other process has done so (KIP-360).
The commit then reads the ledger, and what it finds stays true.

- A process of an older run may commit late (a query was stopped in the middle; the
  process continues by itself). If it decides before the new beginning fences it, the
  new run reads its decision and finishes it. If it is fenced first, its slots are
  rewritten under newer epochs, and its own aborts name epochs that are no longer valid.
- An abort beside a commit of the same batch (which cannot be stopped from outside): the abort bumps the
  driver's epoch twice, because the commit may have received the same first answer. The bumps abort what the
  commit has open. Where the commit has decided, the ledger shows that, and nothing is aborted.
- An abort beside a newer run: the abort's identity is no longer the id's, so the abort does nothing.
- With scope=batch the decision is the end of `{pipeline}.batch`, which the abort initialises too. That either
  ends what the commit has open, or comes after the end and finds nothing open.
- Slots that a repair has rewritten are open under a newer epoch than the decided
  one. The proof finds the abort of the decided transaction in the log, and the
  new seals are compared with the decision before they are recorded and ended.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from connector import crash_points, runtime
from connector.client.cluster import Cluster
from connector.commit.driver import CommitReport, PipelineDriver
from connector.commit.plain import PlainDriver
from connector.commit.proof import prove
from connector.commit.shell import Replay
from connector.commit.whole_batch.driver import BatchDriver
from connector.errors import DecisionBroken, ExactlyOnceError, ProducerFenced
from connector.machines.commit.per_task import Verdict
from connector.model import Decision, ProducerIdentity, Seal, TopicPartition
from connector.options import SinkOptions
from connector.slot.plan import ALL_OTHERS, SharedPlan, WritePlan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Handover:
    """What the process that ends a batch needs from the one that began it.

    `identity`: the driver's, unused so far; None with the weaker guarantees, where nothing is taken over.
    `began_at`: seconds of this machine's monotonic clock, which its processes share; the batch's transactions
    are not older. `repair`: the only slots that write, because the broker aborted them after the batch was
    decided (with `ALL_OTHERS` where nothing of the batch is committed); None where the batch is not decided.
    `shared`: the identity that all tasks write under, None where each has its own; `turns_from`: the offset
    from which the tasks take turns, None where an older version began the batch. `ends`, `warnings`: what the
    beginning found, for the decision to record.
    """

    query_id: str
    batch_id: int
    identity: ProducerIdentity | None
    began_at: float
    repair: frozenset[int] | None = None
    shared: ProducerIdentity | None = None
    turns_from: int | None = None
    ends: tuple[tuple[str, ProducerIdentity], ...] = ()
    warnings: tuple[str, ...] = ()


_START_AGAIN = "start the query again from the same checkpoint, and it goes on with this batch"


def begin(
    cluster: Cluster, options: SinkOptions, query_id: str, batch_id: int, source_offsets: Sequence[str]
) -> tuple[WritePlan | SharedPlan, Handover]:
    """Take the pipeline over and plan the batch's tasks. Raises
    what `PipelineDriver.start` raises, with nothing written.

    A batch that is already decided is finished here; in
    its plan, only the slots that the broker aborted write.
    """
    if not options.transactional:
        plain = PlainDriver(cluster, options)
        plain.start(batch_id)
        return plain.plan(batch_id), Handover(query_id, batch_id, None, runtime.monotonic())
    driver = driver_of(cluster, options, query_id)
    crash_points.reached("before-begin")
    only = driver.begin(batch_id, source_offsets)
    plan = driver.plan(batch_id, only)
    crash_points.reached("begun")
    return plan, driver.hand_over(batch_id, only)


def finish(
    cluster: Cluster,
    options: SinkOptions,
    handover: Handover,
    seals: Sequence[Seal],
    source_offsets: Sequence[str],
    group_offsets: Mapping[TopicPartition, int],
    way_on: str = _START_AGAIN,
    tasks: int | None = None,
) -> CommitReport:
    """Decide and end the batch, or complete the repair of a decided one. Raises what `PipelineDriver.commit`
    raises, and ProducerFenced, with nothing changed, where a newer run has taken over.

    `tasks`: how many tasks Spark ran, None where unknown. `way_on`: the user's remedy where slots are aborted
    after the decision; the tasks are over, so the slots cannot be rewritten here.
    """
    if not options.transactional:
        return PlainDriver(cluster, options).commit(handover.batch_id, seals, group_offsets, tasks)
    driver = driver_of(cluster, options, handover.query_id)
    driver.go_on(handover)
    crash_points.reached("gone-on")
    written = _Written(handover, seals, way_on)
    decided = driver.decided(handover.batch_id)
    if decided is not None:
        return driver.repair(decided, written)
    return driver.commit(handover.batch_id, seals, source_offsets, group_offsets, written, tasks)


def give_up(options: SinkOptions, handover: Handover, seals: Sequence[Seal], reason: str) -> bool:
    """Abort what is left open of a batch that will not be committed. False, with
    nothing aborted, where the batch is decided, belongs to a newer run, or cannot be
    judged now. Of a decided batch, only what its repair wrote in vain is aborted.
    Never hides the error that led here: an unreachable broker returns False too."""
    try:
        cluster = Cluster.shared(options.client, options.max_block_ms)
        if not options.transactional:
            PlainDriver(cluster, options).abandon(handover.batch_id, seals, reason)
            return False
        driver = driver_of(cluster, options, handover.query_id)
        driver.wrest(handover)
        crash_points.reached("wrested")
        decided = driver.decided(handover.batch_id)
        if decided is not None:
            log.warning(
                "batch %d is decided, so it is not aborted; the next run finishes it", handover.batch_id
            )
            if driver.not_repaired(decided, handover):
                # Every other slot was ended before the repair began,
                # so every open transaction is the repair's own.
                driver.abandon(handover.batch_id, seals, reason)
            return False
        driver.abandon(handover.batch_id, seals, reason)
    except ProducerFenced:
        log.info("batch %d is not aborted: a newer process has taken the pipeline over", handover.batch_id)
        return False
    except ExactlyOnceError as error:
        # The error that led here is the one to report; the next run ends what is left.
        log.warning("batch %d is not aborted now, the next run ends it: %s", handover.batch_id, error)
        return False
    return True


class HandoverDriver(PipelineDriver):
    """A driver that begins in one process and continues in another."""

    def begin(self, batch_id: int, source_offsets: Sequence[str] | None) -> frozenset[int] | None:
        """Take the pipeline over. None where the batch is not decided. Otherwise
        the batch is finished as far as that is possible without its tasks;
        returns the slots that the broker aborted, which have to be rewritten."""
        try:
            return None if self.start(batch_id, _ask_for_replay, source_offsets) is None else frozenset()
        except _ReplayNeeded as lost:
            return lost.slots

    @property
    def newest(self) -> Decision | None:
        """The pipeline's newest decision when the run began."""
        return self._last

    def hand_over(self, batch_id: int, repair: frozenset[int] | None) -> Handover:
        """The hand-over to the process that ends the batch.
        Call it after `plan`; this driver is done then."""
        return Handover(
            self.query_id,
            batch_id,
            self._producer.identity,
            self._began_at,
            repair,
            ends=tuple(sorted(self._ends.items())),
            warnings=self._warnings,
        )

    def go_on(self, handover: Handover) -> None:
        """Become the driver that began the batch; ProducerFenced where another has begun since."""
        assert handover.identity is not None
        self._adopt(handover.identity)
        self._began_at = handover.began_at
        self._ends, self._warnings = dict(handover.ends), handover.warnings
        self._last = self.ledger.newest(settle=True)

    def wrest(self, handover: Handover) -> None:
        """Become that driver as `go_on` does, and fence any
        process of this run that may be committing the batch."""
        assert handover.identity is not None
        try:
            bumped = self.transactions.init_producer_id(
                self.driver_id, self._producer.transaction_timeout_ms, handover.identity
            )
        except ProducerFenced:
            # If that process had its decision open, this request aborted it and
            # was refused for its epoch. A newer run would have left another state:
            # it initialises first, and aborts only what it gives up itself.
            view = self.transactions.describe([self.driver_id])[self.driver_id]
            mine = view.identity.producer_id == handover.identity.producer_id
            if not mine or view.state != "CompleteAbort":
                raise
            bumped = view.identity
        # Two processes that send the same identity get the same answer: only one more bump separates them.
        self._adopt(bumped)
        self._began_at = handover.began_at
        self._wrest_shared(handover)
        self._last = self.ledger.newest(settle=True)

    def _wrest_shared(self, handover: Handover) -> None:
        """Take over the identity that all tasks wrote under, where they share one."""

    def _adopt(self, identity: ProducerIdentity) -> None:
        self._producer = self._new_producer(identity)
        self._producer.initialize()

    def decided(self, batch_id: int) -> Decision | None:
        """The decision of this batch, where there is one."""
        last = self._last
        mine = last is not None and (last.query_id, last.batch_id) == (self.query_id, batch_id)
        return last if mine else None

    def not_repaired(self, decision: Decision, handover: Handover) -> bool:
        """Whether the decision still names the seals that the broker aborted, not those that replace them."""
        slots = handover.repair or frozenset()
        lost = [seal for seal in decision.seals if seal.slot in slots]
        proofs = prove(self.cluster, lost)
        return bool(lost) and all(proof.verdict is Verdict.ABORTED for proof in proofs.values())

    def repair(self, decision: Decision, replay: Replay) -> CommitReport:
        """Finish a decided batch with the seals of its rewritten slots."""
        return self._finish(decision, replay)


class SharedHandoverDriver(HandoverDriver, BatchDriver):
    """The same where the batch is one transaction."""

    def hand_over(self, batch_id: int, repair: frozenset[int] | None) -> Handover:
        begun = super().hand_over(batch_id, repair)
        return replace(begun, shared=self._identity, turns_from=self._turns_from)

    def go_on(self, handover: Handover) -> None:
        super().go_on(handover)
        self._identity, self._turns_from = handover.shared, handover.turns_from

    def _wrest_shared(self, handover: Handover) -> None:
        # Before the ledger is read: the batch's own decision may be open there, and no other process ends it.
        # A decision that is already made is not undone by this.
        self._identity = handover.shared
        self.replace_identity()


def driver_of(cluster: Cluster, options: SinkOptions, query_id: str) -> HandoverDriver:
    """The driver for the scope that the options name."""
    kind = SharedHandoverDriver if options.scope == "batch" else HandoverDriver
    return kind(cluster, options, query_id)


class _ReplayNeeded(Exception):
    """Carries the slots that the broker aborted out of the start, where no task can write them yet."""

    def __init__(self, slots: frozenset[int]) -> None:
        super().__init__(sorted(slots))
        self.slots = slots


def _ask_for_replay(slots: frozenset[int]) -> Sequence[Seal]:
    raise _ReplayNeeded(slots)


class _Written:
    """The replay of a batch whose tasks are over: it returns
    the seals of their repair, once, and nothing else."""

    def __init__(self, handover: Handover, seals: Sequence[Seal], way_on: str) -> None:
        self._handover = handover
        self._seals: Sequence[Seal] | None = seals
        self._way_on = way_on

    def __call__(self, slots: frozenset[int]) -> Sequence[Seal]:
        seals, self._seals = self._seals, None
        if seals is None or self._handover.repair is None or not slots <= self._handover.repair:
            batch_id = self._handover.batch_id
            lost = tuple(sorted(slots - {ALL_OTHERS}))
            raise DecisionBroken(
                f"slots {list(lost)} of batch {batch_id} were aborted by the broker after the batch was decided; its other "
                f"slots are committed and nothing is skipped; {self._way_on}",
                {"batch": batch_id, "slots": lost},
            )
        return seals


__all__ = ["Handover", "HandoverDriver", "begin", "driver_of", "finish", "give_up"]
