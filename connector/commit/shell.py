"""Carries out what `machines.commit.per_task` decides: asks coordinators, writes the ledger, ends and rewrites slots.

Owns: the order of effects and answers of one commit, and which error a failed one raises.
Does not know: what may happen when (the machine does), Spark, the start of a run.
Invariants:
- Every answer goes back into the machine as an event.
- Nothing is ended or aborted unless an effect requires it.

Longer than 400 lines until the decision, which both scopes share, has a shell of its own.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from connector import crash_points, runtime
from connector.client.cluster import Cluster
from connector.client.ends import EndAnswer, EndRequest
from connector.client.producer import Producer
from connector.client.producer_states import States
from connector.client.transactions import Transactions
from connector.commit.decision import (
    BATCH_IS_RETRIED,
    ask_decision,
    broken_part,
    kept_of,
    moved_rows,
    unmarked,
)
from connector.commit.forgotten import put_decision
from connector.commit.ledger.topic import Ledger
from connector.commit.markers import Mender, never_ended, partitions_of, states_of
from connector.commit.proof import Proof, prove
from connector.commit.stops import stop_error
from connector.errors import (
    AuthorizationFailed,
    ExactlyOnceError,
    OutcomeUnknown,
    ProducerFenced,
    RetriableError,
    TransactionTooOld,
)
from connector.machines.commit import per_task as cm
from connector.machines.table import Story
from connector.model import Decision, Seal, TopicPartition
from connector.slot.plan import ALL_OTHERS

log = logging.getLogger(__name__)

_ABORT_DEADLINE_MS = 10_000
"""Aborting an undecided batch is a courtesy to readers; the next run fences what is left. A longer deadline
would only delay the error that led here."""

_MOST_TRIES = 5
"""Rounds of end and proof for one slot, each of which waits for a definite answer up to its own deadline. A
slot that stays open this often does not do so by chance."""

Replay = Callable[[frozenset[int]], Sequence[Seal]]
"""Runs the batch again: these slots write (`ALL_OTHERS`: every other one too), and the others measure what
they would write. Returns the seals of all."""


@dataclass(frozen=True)
class Deadline:
    """How much of the transactions' time is left, and how much must be left for a decision. Milliseconds."""

    left_ms: Callable[[], float]
    margin_ms: float
    timeout_ms: float


class RunOfPipeline(Protocol):
    """What a commit needs from the run that it belongs to."""

    def clean_up(self) -> None:
        """After a batch was given up: abort what else its tasks
        left open, unless a newer run owns that by now."""

    def fenced_by_timeout(self) -> bool:
        """Whether the coordinator raised the driver's epoch
        because its transaction timed out, with no newer run."""

    def narrow_repair(self, torn: Mapping[int, frozenset[TopicPartition]]) -> None:
        """Let the next replay's slots send to these partitions
        only: their records in the others are committed."""


class CommitShell:
    """One commit, or the finishing of one that an earlier run decided. Use once."""

    def __init__(
        self,
        cluster: Cluster,
        producer: Producer,
        ledger: Ledger,
        *,
        decision: Decision,
        group: str,
        group_offsets: Mapping[TopicPartition, int],
        deadline: Deadline,
        mender: Mender,
        replay: Replay | None,
        run: RunOfPipeline,
        on_trust: bool = False,
    ) -> None:
        """`on_trust`: the user has confirmed that an outcome
        which can no longer be proven counts as committed."""
        self.cluster = cluster
        self.producer = producer
        self.ledger = ledger
        self.transactions = Transactions(cluster)
        self.decision = decision
        self._group = group
        self._group_offsets = group_offsets
        self._deadline = deadline
        self._mender = mender
        self._replay = replay
        self._run = run
        self._on_trust = on_trust
        self._torn: dict[int, frozenset[TopicPartition]] = {}
        self.ended_at = 0.0
        self._failure: ExactlyOnceError | None = None
        self._tries: dict[int, int] = {}

    def run(self, start: tuple[cm.Commit, Sequence[cm.Effect]]) -> None:
        """Carry a commit to its end. Returns when it is DONE; raises what stopped it, and after an abort the reason."""
        commit, effects = start
        queue = deque(effects)
        story = Story()
        try:
            while queue:
                for event in self._carry_out(queue.popleft()):
                    commit, more = story.step(commit, event)
                    queue.extend(more)
        except ExactlyOnceError:
            log.info("batch %d stopped in %s after: %s", self.decision.batch_id, commit.state.name, story)
            raise
        if commit.state is cm.State.ABORTED and self._failure is not None:
            raise self._failure

    def _carry_out(self, effect: cm.Effect) -> Sequence[cm.Event]:
        if isinstance(effect, cm.CheckAlive):
            return self._check_alive(effect.seals)
        if isinstance(effect, cm.RecordDecision):
            return self._record()
        if isinstance(effect, cm.RecordRepair):
            self.decision = replace(self.decision, seals=effect.seals, repaired=self.decision.repaired + 1)
            return self._record()
        if isinstance(effect, cm.AskDecision):
            return self._ask_decision()
        if isinstance(effect, cm.EndSlots):
            return self._end(effect.seals)
        if isinstance(effect, cm.ProveSlots):
            return self._prove(effect.seals)
        if isinstance(effect, cm.AbortSlots):
            self._abort(effect.seals)
            return [cm.AbortFinished()]
        if isinstance(effect, cm.RewriteSlots):
            return self._rewrite(effect.lost)
        if isinstance(effect, cm.DropSlots):
            self._drop(effect.seals)
            return []
        raise stop_error(effect, {"pipeline": self.ledger.pipeline, "batch": self.decision.batch_id})

    # ---- before the decision

    def _check_alive(self, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        crash_points.reached("before-check")
        # Coordinators and leaders are asked at the same time: a commit waits for the slower of them only.
        with runtime.workers(1) as beside:
            where = partitions_of(seals) | {self.ledger.partition}
            states = beside.submit(states_of, self.cluster, where)
            views = self.transactions.describe([seal.transactional_id for seal in seals])
            broken = broken_part(seals, states.result()) or self._unmarked(states.result())
        for seal in seals:
            view = views[seal.transactional_id]
            if view.state != "Ongoing" or view.identity != seal.identity:
                return self._not_alive(
                    f"slot {seal.slot} is no longer open under {seal.identity} (its coordinator has {view.state} under "
                    f"{view.identity}): it timed out or a newer attempt took it over; no record of the batch is visible, "
                    "and the batch is retried; raise kafka.transaction.timeout.ms if this repeats",
                    {"slot": seal.slot, "state": view.state},
                )
        if broken is not None:
            return self._not_alive(*broken)
        left_ms = self._deadline.left_ms()
        if left_ms < self._deadline.margin_ms:
            return self._not_alive(
                "the transactions are too close to their timeout to decide the batch safely; no record of the batch is visible, "
                "and the batch is retried; make batches smaller or raise kafka.transaction.timeout.ms",
                {
                    "left_ms": round(left_ms),
                    "margin_ms": self._deadline.margin_ms,
                    "timeout_ms": self._deadline.timeout_ms,
                },
            )
        return [cm.AllAlive()]

    def _unmarked(
        self, states: States | None, follows: str = BATCH_IS_RETRIED
    ) -> tuple[str, dict[str, str | int | float]] | None:
        """The run's last decision where the broker left it without its marker. The marker of the next
        decision would end both, and an abort would take what Spark has counted as done."""
        name, mine = self.producer.transactional_id, self.producer.identity.producer_id
        if name is None or not self._mender.misses_marker(name, mine, states):
            return None
        return unmarked(self.ledger.partition, follows)

    def _not_alive(self, message: str, facts: dict[str, str | int | float]) -> Sequence[cm.Event]:
        self._failure = TransactionTooOld(message, facts)
        return [cm.NotAlive(message)]

    def _abort(self, seals: Sequence[Seal]) -> None:
        try:
            self.transactions.end_many(_ends(seals, commit=False), deadline_ms=_ABORT_DEADLINE_MS)
            self._run.clean_up()
        except ExactlyOnceError as error:
            # Nothing is decided, so nothing can become visible: what is still open is fenced by the next run. Whatever failed
            # here, the error that led here is the one to raise.
            log.warning("some transactions of an undecided batch are still open: %s", error)

    # ---- the decision, and its repair

    def _record(self) -> Sequence[cm.Event]:
        producer = self.producer
        crash_points.reached("before-decision")
        try:
            put_decision(producer, self.ledger, self.decision, self._group, self._group_offsets)
        except ProducerFenced as error:
            return self._refused(self._driver_timed_out() or error)
        except ExactlyOnceError as error:
            # EndTxn was not sent, so the decision is definitely not made, whatever else is unclear.
            return self._refused(error)
        crash_points.reached("decision-written")
        try:
            producer.commit()
        except OutcomeUnknown as error:
            self._failure = error
            return [cm.DecisionUnanswered(str(error))]
        except ExactlyOnceError as error:
            return self._refused(error)
        crash_points.reached("after-decision")
        return [cm.DecisionDurable()]

    def _refused(self, error: ExactlyOnceError) -> Sequence[cm.Event]:
        self.producer.abort()
        self._failure = error
        return [cm.DecisionRefused(str(error))]

    def _driver_timed_out(self) -> TransactionTooOld | None:
        """The error to raise where the driver's own transaction
        timed out; None where a newer run fenced the driver."""
        if not self._run.fenced_by_timeout():
            return None
        return TransactionTooOld(
            "the driver was held up for longer than its own transaction may take, so the coordinator aborted the decision; "
            "no record of the batch is visible, and the batch is retried",
            {"pipeline": self.ledger.pipeline, "batch": self.decision.batch_id},
        )

    def _ask_decision(self) -> Sequence[cm.Event]:
        committed = ask_decision(self.cluster, self.ledger, self.producer)
        where = self.ledger.partition
        if committed is None:
            why = self.producer.session.reason
            raise OutcomeUnknown(
                f"whether the batch is decided is unknown: {why}; no slot was ended; the next run asks again "
                "before it does anything else",
                {
                    "pipeline": self.ledger.pipeline,
                    "producer_id": self.producer.identity.producer_id,
                    "ledger": str(where),
                },
            )
        if committed:
            self._failure = None
            return [cm.DecisionDurable()]
        self._failure = TransactionTooOld(
            "the decision's transaction was aborted by the broker; no record of the batch is visible, and the batch is retried",
            {"pipeline": self.ledger.pipeline, "ledger": str(where)},
        )
        return [cm.DecisionRefused(self._failure.message)]

    # ---- after the decision

    def _end(self, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        requests = _ends(seals, commit=True)
        crash_points.reached("before-end")
        answers = self.transactions.end_many(requests)
        crash_points.reached("after-end")
        for seal, answer in zip(seals, answers, strict=True):
            if not answer.definite:
                self._count_try(seal, answer)
        self.ended_at = runtime.perf_counter()
        ended = [seal for seal, answer in zip(seals, answers, strict=True) if answer.definite]
        # Where markers were missing and had to be written, only the log shows the outcome of the slots.
        sure = not self._mender.await_markers(ended, commit=True)
        return [
            cm.SlotEnded(seal.slot) if answer.definite and sure else cm.SlotUnanswered(seal.slot)
            for seal, answer in zip(seals, answers, strict=True)
        ]

    def _prove(self, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        try:
            return self._proven(seals)
        except ExactlyOnceError as error:
            # A failed question leaves the outcome open.
            raise OutcomeUnknown(
                "the batch is decided, but its outcome is not fully known: "
                f"{type(error).__name__}: {error.message}; the next run proves and ends it; nothing is skipped",
                {"pipeline": self.ledger.pipeline, "batch": self.decision.batch_id, **error.facts},
            ) from error

    def _proven(self, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        proofs = prove(self.cluster, seals)
        # The coordinator has no answer and no partition has a
        # marker, but all records are there: decided, so commit them.
        whole = [
            seal
            for seal in seals
            if proofs[seal.slot].verdict is cm.Verdict.UNKNOWN and never_ended(self.cluster, seal)
        ]
        # The open partitions of a torn slot are committed too: only the aborted ones are rewritten.
        shown = [
            seal
            for seal in seals
            if proofs[seal.slot].verdict is cm.Verdict.COMMITTED or proofs[seal.slot].lost
        ]
        if self._mender.await_markers([*shown, *whole], commit=True):
            # Markers were written under an id that another process
            # may have held: only the log shows the outcome.
            proofs |= prove(self.cluster, [*shown, *whole])
        self._torn |= {slot: proof.lost for slot, proof in proofs.items() if proof.lost}
        return [cm.SlotProven(slot, self._verdict(slot, proof)) for slot, proof in proofs.items()]

    def _verdict(self, slot: int, proof: Proof) -> cm.Verdict:
        if proof.verdict is not cm.Verdict.UNKNOWN:
            return proof.verdict
        # In one transaction with the decision, a decided slot
        # is committed, even where the log no longer shows that.
        if self.decision.in_one_transaction:
            return cm.Verdict.COMMITTED
        if proof.forgotten and self._on_trust:
            log.warning(
                "the outcome of slot %d of batch %d is lost for good; it counts as committed, because adopt.checkpoint=true confirms "
                "that this was checked",
                slot,
                self.decision.batch_id,
            )
            return cm.Verdict.COMMITTED
        return cm.Verdict.UNKNOWN

    def _count_try(self, seal: Seal, answer: EndAnswer) -> None:
        tries = self._tries[seal.slot] = self._tries.get(seal.slot, 0) + 1
        facts: dict[str, str | int] = {
            "pipeline": self.ledger.pipeline,
            "batch": self.decision.batch_id,
            "slot": seal.slot,
        }
        if answer.denied:
            raise AuthorizationFailed(
                f"the batch is decided, but the right to end {seal.transactional_id!r} is gone ({answer.reason}); its "
                f"records show when it is ended; {answer.remedy} and start the query again before the transaction times out; "
                "nothing is skipped",
                facts,
            )
        if tries > _MOST_TRIES:
            raise OutcomeUnknown(
                f"the batch is decided, but ending {seal.transactional_id!r} got no definite answer {tries} times (last: "
                f"{answer.reason}); the next run proves and ends it; nothing is skipped",
                facts,
            )

    def _rewrite(self, lost: Sequence[Seal]) -> Sequence[cm.Event]:
        slots = frozenset(seal.slot for seal in lost)
        log.warning("the broker aborted decided slots %s; they are written again", sorted(slots))
        if self._replay is None:
            return [
                cm.RewriteFailed(
                    f"slots {sorted(slots)} were aborted, and this run cannot replay their batch"
                )
            ]
        whole = [seal for seal in lost if seal.slot not in self._torn]
        # The commit of the rewrite would end a transaction left
        # without a marker too, and make its records visible.
        self._mender.await_markers(whole, commit=False)
        torn = {seal.slot: self._torn[seal.slot] for seal in lost if seal.slot in self._torn}
        # Where nothing of the batch is committed, its rows may come in other slots than were decided. A batch
        # in one transaction was decided without slots.
        any_slot = self.decision.in_one_transaction or (
            not torn and all(seal.empty or seal.slot in slots for seal in self.decision.seals)
        )
        self._run.narrow_repair({ALL_OTHERS if any_slot else slot: parts for slot, parts in torn.items()})
        crash_points.reached("before-rewrite")
        try:
            seals = self._replay(slots | {ALL_OTHERS} if any_slot else slots)
        except BaseException:
            # Every other slot has been ended, so only what the replay wrote before it failed is open.
            with contextlib.suppress(ExactlyOnceError):
                self._run.clean_up()
            raise
        crash_points.reached("after-rewrite")
        self._require_alone(seals)
        if not torn:
            return [cm.Rewritten(tuple(seals))]
        # A torn transaction has one seal for its slot; with scope=batch, whose one seal is slot 0's, one for all slots.
        again = {
            seal.slot: seals if any_slot else [each for each in seals if each.slot == seal.slot]
            for seal in lost
        }
        moved = [where for seal in lost if seal.slot in torn for where in moved_rows(seal, again[seal.slot])]
        if moved:
            self._drop([seal for seal in seals if not seal.empty])
            return [
                cm.RewriteFailed(
                    f"the broker lost slots {sorted(torn)} in part of their partitions, and the replay puts other rows into "
                    f"{', '.join(map(str, moved))} than were decided, so the missing rows cannot be identified "
                    "(the order of rows without a key decides their partition); readers see a part of the batch; "
                    "restore the order in which the rows were read, or compare the batch with its source by hand"
                )
            ]
        kept = {seal.slot: kept_of(seal, torn[seal.slot]) for seal in lost if seal.slot in torn}
        whole_seals = (replace(seal, kept=kept.get(seal.slot, ()), measured=()) for seal in seals)
        return [cm.Rewritten(tuple(whole_seals), narrowed=True)]

    def _require_alone(self, seals: Sequence[Seal]) -> None:
        """Refuse a repair whose commit would also show what a late attempt of the slot wrote: its abort has no
        marker. The repair is aborted, and that marker ends both."""
        written = [seal for seal in seals if seal.identity is not None]
        states = states_of(self.cluster, partitions_of(written) | {self.ledger.partition})
        follows = "the repair is aborted, and the next run does it again; nothing is skipped"
        broken = broken_part(written, states, follows) or self._unmarked(states, follows)
        if broken is not None:
            self._drop(written)
            raise RetriableError(*broken)

    def _drop(self, seals: Sequence[Seal]) -> None:
        """Abort the seals that a repair wrote in vain, and no
        others: those may have been rewritten to be committed."""
        try:
            self.transactions.end_many(_ends(seals, commit=False), deadline_ms=_ABORT_DEADLINE_MS)
        except ExactlyOnceError as error:
            log.warning("some slots that were written again in vain are still open: %s", error)


def _ends(seals: Sequence[Seal], *, commit: bool) -> list[EndRequest]:
    return [
        EndRequest(seal.transactional_id, seal.identity, commit, seal.transaction_version)
        for seal in seals
        if seal.identity is not None
    ]
