"""Carries out what `machine.per_task` decides: asks coordinators, writes the ledger, ends and rewrites slots.

Owns: the order of effects and answers of one commit.
Does not know: what may happen when (the machine does), Spark, the start of a run.
Invariants:
- Every answer goes back into the machine as an event, and so does every failure.
- Nothing is ended or aborted unless an effect requires it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kafka_core import runtime
from kafka_core.errors import (
    DecisionBroken,
    ExactlyOnceError,
    OutcomeUnknown,
    ProducerFenced,
    RepairPending,
    TransactionTooOld,
)
from kafka_core.table import unhandled
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.requests.ends import EndAnswer, EndRequest
from pyspark_kafka_eos.client.requests.producer_states import States
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.decision import (
    BATCH_IS_RETRIED,
    Deciding,
    Found,
    Owner,
    broken_part,
    kept_of,
    moved_rows,
    put_decision,
)
from pyspark_kafka_eos.commit.fates import places_of
from pyspark_kafka_eos.commit.gone.absent import removed_part, why_unknown
from pyspark_kafka_eos.commit.gone.recreated import recreated
from pyspark_kafka_eos.commit.ledger.notes import Aborted
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.machine import per_task as cm
from pyspark_kafka_eos.commit.open_parts import (
    leaders_of,
    log_starts,
    never_ended,
    no_longer_open,
    partitions_of,
    silent,
    states_of,
)
from pyspark_kafka_eos.commit.proof import Proof, led_anew, prove, verdict_on
from pyspark_kafka_eos.commit.stops import gone_for_good, stop_error
from pyspark_kafka_eos.model import Decision, GroupOffsets, Seal
from pyspark_kafka_eos.slot.plan import ALL_OTHERS

log = logging.getLogger(__name__)

_ABORT_DEADLINE_MS = 10_000
"""Aborting an undecided batch is a courtesy to readers; the next run fences what is left. A longer deadline
would only delay the error that led here."""

Replay = Callable[[frozenset[int]], Sequence[Seal]]
"""Runs the batch again: these slots write (`ALL_OTHERS`: every other one too), and the others measure what
they would write. Returns the seals of all."""


class CommitShell:
    """One commit, or the finishing of one that an earlier run decided. Use once."""

    def __init__(
        self,
        run: Owner,
        decision: Decision,
        group_offsets: GroupOffsets,
        replay: Replay | None,
        *,
        later: bool = False,
    ) -> None:
        """`replay`: None where this process cannot run the batch again. `later`: the tasks run after this process has
        handed the batch over, so lost slots are DEFERRED.
        """
        self.decision = decision
        self.deferred: frozenset[int] = frozenset()
        """The slots that the tasks of another process are to write again."""
        self.ended_at = 0.0
        self._run = run
        self._transactions = Transactions(run.cluster)
        self._deciding = Deciding(run)
        self._group_offsets = group_offsets
        self._replay = replay
        self._later = later
        self._torn: dict[int, frozenset[TopicPartition]] = {}
        self._why: dict[int, str] = {}
        """Slot -> what is missing, for slots whose outcome cannot be known because of that."""
        self._unseen: set[int] = set()
        """Open slots that lost records. They are aborted before they are written again."""
        self._led: dict[TopicPartition, int] = {}
        """Leader epochs of the check before the decision, when all records were there; empty where an earlier run made
        that check."""

    def run(self, start: tuple[cm.Commit, Sequence[ev.Effect]]) -> None:
        """Carry a commit to its end. Returns when it is DONE, or DEFERRED with `deferred`; raises what stopped
        it, and after an abort the reason."""
        self._deciding.carry_out(start, self._carry_out, self.decision.batch_id)

    def _carry_out(self, effect: ev.Effect) -> Sequence[ev.Event]:
        if isinstance(effect, ev.CheckAlive):
            return self._check_alive(effect.seals)
        if isinstance(effect, ev.RecordDecision):
            return self._record()
        if isinstance(effect, ev.RecordRepair):
            ledger = self._run.ledger
            self.decision = self.decision.repaired_by(effect.seals, ledger.last_commits)
            ledger.last_commits = self.decision.ends
            return self._record()
        if isinstance(effect, ev.AskDecision):
            return [self._deciding.ask(self._run.producer, "the decision's")]
        if isinstance(effect, ev.EndSlots):
            return self._end(effect.seals)
        if isinstance(effect, ev.ProveSlots):
            return self._prove(effect.seals)
        if isinstance(effect, ev.AbortSlots):
            self._abort(effect.seals)
            return [ev.AbortFinished()]
        if isinstance(effect, ev.RewriteSlots):
            return self._rewrite(effect.lost)
        if isinstance(effect, ev.DropSlots):
            self._drop(effect.seals)
            return []
        if isinstance(effect, ev.Stop):
            self._deciding.failure = stop_error(effect, self._facts(), self._why)
            return []
        raise unhandled(effect)

    def _facts(self) -> dict[str, str | int]:
        return {"pipeline": self._run.ledger.pipeline, "batch": self.decision.batch_id}

    # ---- before the decision

    def _check_alive(self, seals: Sequence[Seal]) -> Sequence[ev.Event]:
        crash_points.reached("before-check")
        # Coordinators and leaders are asked at the same time: a commit waits for the slower of them only.
        with runtime.workers(2) as beside:
            where = partitions_of(seals)
            states = beside.submit(states_of, self._run.cluster, where | {self._run.ledger.partition}, seals)
            starts = beside.submit(log_starts, self._run.cluster, where)
            sealed = {seal.transactional_id: seal.identity for seal in seals}
            views = self._transactions.describe(
                list(sealed), expected=lambda view: view.is_open_under(sealed[view.transactional_id])
            )
            broken = (
                broken_part(seals, states.result())
                or removed_part(seals, starts.result())
                or self._unmarked(states.result())
                or self._deciding.passed(seals, states.result())
            )
            broken = recreated(self._run.cluster, seals, states.result(), self._run.newest, broken)
        self._led = leaders_of(self._run.cluster, seals)
        for seal in seals:
            view = views[seal.transactional_id]
            if not view.is_open_under(seal.identity):
                others = "another write or a newer attempt of its task"
                said = no_longer_open(f"slot {seal.slot}", seal.identity, view, others)
                broken = (said, {"slot": seal.slot, "state": view.state})
                break
        return self._deciding.checked(broken)

    def _unmarked(self, states: States | None, follows: str = BATCH_IS_RETRIED) -> Found | None:
        mine = self._run.producer.identity.producer_id
        return self._deciding.unmarked(self._run.producer.transactional_id, mine, states, follows)

    def _abort(self, seals: Sequence[Seal]) -> None:
        try:
            self._transactions.end_many(_ends(seals, commit=False), deadline_ms=_ABORT_DEADLINE_MS)
            self._run.clean_up()
        except ExactlyOnceError as error:
            # Nothing is decided, so nothing can become visible: what is still open is fenced by the next run. Whatever
            # failed here, the error that led here is the one to raise.
            log.warning("some transactions of an undecided batch are still open: %s", error)

    # ---- the decision, and its repair

    def _record(self) -> Sequence[ev.Event]:
        event = self._deciding.record(self._run.producer, self._write, self._run.producer.abort)
        if isinstance(event, ev.DecisionDurable):
            crash_points.reached("after-decision")
        return [event]

    def _write(self) -> None:
        run = self._run
        try:
            put_decision(run.producer, run.ledger, self.decision, run.options.offsets_group, self._group_offsets)
        except ProducerFenced as error:
            if not run.fenced_by_timeout():
                raise
            raise TransactionTooOld(
                "the driver was held up for longer than its own transaction may take, so the coordinator aborted the decision; "
                f"{BATCH_IS_RETRIED}",
                self._facts(),
            ) from error

    # ---- after the decision

    def _end(self, seals: Sequence[Seal]) -> Sequence[ev.Event]:
        requests = _ends(seals, commit=True)
        crash_points.reached("before-end")
        answers = self._transactions.end_many(requests)
        crash_points.reached("after-end")
        denied = [
            ev.SlotDenied(seal.slot, answer.reason, answer.remedy)
            for seal, answer in zip(seals, answers, strict=True)
            if answer.denied and not answer.definite
        ]
        if denied:
            return denied
        self.ended_at = runtime.perf_counter()
        ended = [seal for seal, answer in zip(seals, answers, strict=True) if answer.definite]
        # Where markers were missing and had to be written, only the log shows the outcome of the slots.
        sure = not self._run.mender.await_markers(ended, commit=True)
        # Where a leader is new since the look before the decision, only its log shows whether the records are there.
        unsure = {seal.slot for seal in seals} if not sure else self._led_anew(seals)
        return [_ended(seal.slot, answer, seal.slot not in unsure) for seal, answer in zip(seals, answers, strict=True)]

    def _prove(self, seals: Sequence[Seal]) -> Sequence[ev.Event]:
        try:
            return self._proven(seals)
        except DecisionBroken:
            raise
        except ExactlyOnceError as error:
            # A failed question leaves the outcome open.
            raise OutcomeUnknown(
                "the batch is decided, but its outcome is not fully known: "
                f"{type(error).__name__}: {error.message}; the next run proves and ends it; nothing is skipped",
                {**self._facts(), **error.facts},
            ) from error

    def _proven(self, seals: Sequence[Seal]) -> Sequence[ev.Event]:
        # Metadata that name leaders who can know of what was sealed; without a request where they are known.
        absence.present(self._run.cluster, places_of(seals))
        look = self._run.ledger.look_anew
        proofs = prove(self._run.cluster, seals, by_log=self._led_anew(seals), look=look)
        # The coordinator has no answer and no partition has a marker, but all records are there: decided, so commit
        # them.
        whole = [
            seal
            for seal in seals
            if proofs[seal.slot].verdict is ev.Outcome.UNKNOWN and never_ended(self._run.cluster, seal)
        ]
        # The open partitions of a torn slot are committed too: only the aborted ones are rewritten.
        shown = [seal for seal in seals if proofs[seal.slot].verdict is ev.Outcome.COMMITTED or proofs[seal.slot].lost]
        if self._run.mender.await_markers([*shown, *whole], commit=True):
            # Markers were written under an id that another process may have held: only the log shows the outcome.
            proofs |= prove(self._run.cluster, [*shown, *whole], look=look)
        self._torn |= {slot: proof.lost for slot, proof in proofs.items() if proof.lost}
        self._unseen |= {slot for slot, proof in proofs.items() if proof.unseen}
        return [ev.SlotProven(seal.slot, self._verdict(seal, proofs[seal.slot])) for seal in seals]

    def _led_anew(self, seals: Sequence[Seal]) -> set[int]:
        return led_anew(self._run.cluster, seals, self._led)

    def _verdict(self, seal: Seal, proof: Proof) -> ev.Outcome:
        verdict = verdict_on(self.decision, proof, self._run.options)
        if verdict is ev.Outcome.UNKNOWN:
            self._why[seal.slot] = why_unknown(self._run.cluster, seal, proof)
        elif verdict is not verdict_on(self.decision, proof):
            log.warning(
                "the outcome of slot %d of batch %d is lost for good; it counts as committed, because adopt.checkpoint=true confirms "
                "that this was checked",
                seal.slot,
                self.decision.batch_id,
            )
        return verdict

    def _rewrite(self, lost: Sequence[Seal]) -> Sequence[ev.Event]:
        slots = frozenset(seal.slot for seal in lost)
        log.warning("the broker aborted decided slots %s; they are written again", sorted(slots))
        if self._replay is None and not self._later:
            return [ev.RewriteFailed(f"slots {sorted(slots)} were aborted, and this run cannot replay their batch")]
        whole = [seal for seal in lost if seal.slot not in self._torn]
        self._abort_unseen([seal for seal in lost if seal.slot in self._unseen])
        self._note_aborted(whole)
        # The commit of the rewrite would end a transaction left without a marker too, and make its records visible.
        self._run.mender.await_markers(whole, commit=False)
        torn = {seal.slot: self._torn[seal.slot] for seal in lost if seal.slot in self._torn}
        # Where nothing of the batch is committed, its rows may come in other slots than were decided. A batch
        # in one transaction was decided without slots.
        any_slot = self.decision.in_one_transaction or (
            not torn and all(seal.empty or seal.slot in slots for seal in self.decision.seals)
        )
        self._run.narrow_repair({ALL_OTHERS if any_slot else slot: parts for slot, parts in torn.items()})
        writing = slots | {ALL_OTHERS} if any_slot else slots
        crash_points.reached("before-rewrite")
        if self._replay is None:
            # What an earlier repair left open is aborted before those tasks begin.
            with contextlib.suppress(ExactlyOnceError):
                self._run.clean_up()
            self.deferred = writing
            return [ev.RewriteDeferred()]
        seals = self._replayed(self._replay, writing)
        return self._rewritten_torn(lost, torn, seals, any_slot) if torn else [ev.Rewritten(tuple(seals))]

    def _replayed(self, replay: Replay, writing: frozenset[int]) -> Sequence[Seal]:
        """The seals of a replay in which these slots write; all that it wrote is aborted where it failed."""
        try:
            seals = replay(writing)
        except BaseException:
            # Every other slot has been ended, so only what the replay wrote before it failed is open.
            with contextlib.suppress(ExactlyOnceError):
                self._run.clean_up()
            raise
        crash_points.reached("after-rewrite")
        self._require_alone(seals)
        return seals

    def _rewritten_torn(
        self,
        lost: Sequence[Seal],
        torn: Mapping[int, frozenset[TopicPartition]],
        seals: Sequence[Seal],
        any_slot: bool,
    ) -> Sequence[ev.Event]:
        """Whether the replay of torn transactions fits: each of their partitions has the rows that were decided for it.
        `torn`: slot -> its lost partitions; what the others have is kept.
        """
        # A torn transaction has one seal for its slot; with scope=batch, whose one seal is slot 0's, one for all slots.
        again = {seal.slot: seals if any_slot else [each for each in seals if each.slot == seal.slot] for seal in lost}
        moved = [where for seal in lost if seal.slot in torn for where in moved_rows(seal, again[seal.slot])]
        if moved:
            self._drop([seal for seal in seals if not seal.empty])
            return [
                ev.RewriteFailed(
                    f"the broker lost slots {sorted(torn)} in part of their partitions, and the replay puts other rows into "
                    f"{', '.join(map(str, moved))} than were decided, so the missing rows cannot be identified: they were read in "
                    "another order (it decides the partition of a row without a key), or the source no longer has them all "
                    "(failOnDataLoss=false); readers see a part of the batch; restore the order or the rows, or compare the batch "
                    f"with its source by hand; {gone_for_good(self.decision.batch_id)}"
                )
            ]
        kept = {seal.slot: kept_of(seal, torn[seal.slot]) for seal in lost if seal.slot in torn}
        whole_seals = (replace(seal, kept=kept.get(seal.slot, ()), measured=()) for seal in seals)
        return [ev.Rewritten(tuple(whole_seals), narrowed=True)]

    def _abort_unseen(self, seals: Sequence[Seal]) -> None:
        """Abort decided slots of which nothing was ever visible, and of which the leaders do not have all."""
        for seal, answer in zip(seals, self._transactions.end_many(_ends(seals, commit=False)), strict=True):
            self._unseen.discard(seal.slot)
            if not answer.definite:
                raise OutcomeUnknown(
                    f"the abort of slot {seal.slot}, of which records are gone, got no definite answer ({answer.reason}); "
                    "the next run proves it again; nothing is skipped",
                    {**self._facts(), "slot": seal.slot},
                )

    def _note_aborted(self, seals: Sequence[Seal]) -> None:
        """Note slots as aborted in the ledger where their logs no longer show the abort: the tasks that write them
        again erase the coordinator's record of it."""
        for seal in silent(self._run.cluster, seals):
            assert seal.identity is not None
            self._run.ledger.note(Aborted(seal.transactional_id, seal.identity))

    def _require_alone(self, seals: Sequence[Seal]) -> None:
        """Refuse a repair whose commit would also show what a late attempt of the slot wrote: its abort has no
        marker. The repair is aborted, and that marker ends both."""
        written = [seal for seal in seals if seal.identity is not None]
        states = states_of(self._run.cluster, partitions_of(written) | {self._run.ledger.partition}, written)
        follows = "the repair is aborted, and the next run does it again; nothing is skipped"
        broken = (
            broken_part(written, states, follows)
            or self._unmarked(states, follows)
            or self._deciding.passed(written, states, follows)
        )
        if broken is not None:
            self._drop(written)
            raise RepairPending(*broken)

    def _drop(self, seals: Sequence[Seal]) -> None:
        """Abort the seals that a repair wrote in vain, and no others: those may have been rewritten to be committed."""
        try:
            self._transactions.end_many(_ends(seals, commit=False), deadline_ms=_ABORT_DEADLINE_MS)
        except ExactlyOnceError as error:
            log.warning("some slots that were written again in vain are still open: %s", error)


def _ended(slot: int, answer: EndAnswer, sure: bool) -> ev.Event:
    if not answer.definite:
        return ev.SlotUnanswered(slot, answer.reason)
    return ev.SlotEnded(slot) if sure else ev.SlotUnsure(slot)


def _ends(seals: Sequence[Seal], *, commit: bool) -> list[EndRequest]:
    return [
        EndRequest(seal.transactional_id, seal.identity, commit, seal.transaction_version)
        for seal in seals
        if seal.identity is not None
    ]
