"""Commit of one micro-batch: every state it can be in and every move between them.

Owns: which slots are sealed, whether the decision is durable, which slots are still to be ended.
Does not know: sockets, the ledger's form, Spark, the time of day.
Invariants:
- No EndTxn(commit) is sent before the decision is durable.
- Each slot is sealed exactly once.
- FINISHING never leads to ABORTING.
- A decision without an answer is DECISION_UNKNOWN, which only a definite answer leaves.
- A slot is done only by an answer or a proof that it is committed, or by a proof that it is gone with its topic.
- A lost slot is ended again only under a seal that is durable in the ledger and has the decision's count and
  digest. Where all seals of the batch are replaced, the whole batch has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from kafka_core.errors import IllegalMove
from kafka_core.table import Move, Moves, ends_of, step
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.model import Seal

MOST_TRIES = 5
"""Rounds of end and proof for one slot. Each waits up to its own deadline; a slot stays open this often not by
chance.
"""


class CommitState(Enum):
    """How far the commit is."""

    GATHERING = "tasks write; seals come in"
    CHECKING = "every slot is sealed; are the transactions still open, with time left?"
    DECIDING = "the decision and the source offsets are on their way"
    DECISION_UNKNOWN = "the decision's EndTxn got no definite answer"
    FINISHING = "decided: every participant is being committed"
    REWRITING = "decided, but the broker aborted some participants: their slots are being written again"
    RECORDING = "the seals of the rewritten slots are on their way to the ledger"
    RECORD_UNKNOWN = "the EndTxn of that record got no definite answer"
    DONE = "every participant is committed"
    ABORTING = "undecided and given up: the participants are being aborted"
    ABORTED = "nothing of the batch is or will be visible"
    BROKEN = "decided, but an outcome is unknowable, or a replay differs from the decision in rows or split"
    DEFERRED = "decided: the lost slots are written again by the tasks of another process"
    STOPPED = "this process cannot go on; the next run asks, proves and finishes"


class ParticipantState(Enum):
    """Where a decided participant stands while it is not yet known to be committed."""

    ENDING = "EndTxn(commit) is on its way"
    PROVING = "its outcome is being looked up"
    LOST = "the broker aborted it"
    UNKNOWABLE = "neither the coordinator nor the log has its outcome"


_NONE_OPEN = ["GATHERING", "CHECKING", "DECIDING", "DECISION_UNKNOWN", "DONE", "ABORTING", "ABORTED"]
"""States in which nothing is decided or everything is ended."""


@dataclass(frozen=True)
class Commit:
    """One batch's commit. `open_slots` are the decided slots not yet known to be committed, `tries` the ends of a
    slot that got no definite answer."""

    state: CommitState = CommitState.GATHERING
    seals: Mapping[int, Seal] = field(default_factory=dict)
    open_slots: dict[int, ParticipantState] = field(default_factory=dict)
    tries: Mapping[int, int] = field(default_factory=dict)
    reason: str = ""

    def handle(self, event: ev.Event) -> tuple[Commit, tuple[ev.Effect, ...]]:
        """The next value and what the shell has to do; IllegalMove, with nothing changed, for an impossible event."""
        return step(MOVES, self, event, "commit")

    @property
    def over(self) -> bool:
        """See `table.Ends`."""
        return self.state in ENDS

    def broken_invariant(self) -> str:
        """See `table.Validated`."""
        unsealed = set(self.open_slots) - set(self.seals)
        if unsealed:
            return f"slots {sorted(unsealed)} are open and were never sealed"
        if self.open_slots and self.state.name in _NONE_OPEN:
            return f"slots {sorted(self.open_slots)} are open although nothing is decided or all is done"
        if self.state is CommitState.FINISHING and not self.open_slots:
            return "it goes on although no slot is open"
        return ""


Step = tuple[Commit, tuple[ev.Effect, ...]]


def resume(seals: tuple[Seal, ...]) -> Step:
    """The commit of a batch that an earlier run decided: nothing is written, every participant is proven first."""
    by_slot = {seal.slot: seal for seal in seals}
    open_slots = {seal.slot: ParticipantState.PROVING for seal in seals if not seal.empty}
    if not open_slots:
        return Commit(CommitState.DONE, by_slot), ()
    return Commit(CommitState.FINISHING, by_slot, open_slots), (ev.ProveSlots(_seals(by_slot, open_slots)),)


def _seals(by_slot: Mapping[int, Seal], slots: Iterable[int]) -> tuple[Seal, ...]:
    return tuple(by_slot[slot] for slot in sorted(slots))


def _all_seals(value: Commit) -> tuple[Seal, ...]:
    return tuple(value.seals[slot] for slot in sorted(value.seals))


def _participants(value: Commit) -> tuple[Seal, ...]:
    return tuple(seal for seal in _all_seals(value) if not seal.empty)


def on_sealed(value: Commit, event: ev.Sealed) -> Step:
    """Keep the seals; a second one for a slot would mean that two attempts of a task both won."""
    slots = [*value.seals, *(seal.slot for seal in event.seals)]
    if len(set(slots)) < len(slots):
        twice = max(slots, key=slots.count)
        raise IllegalMove("commit: a slot is sealed twice; nothing has changed", {"slot": twice})
    return replace(value, seals={**value.seals, **{seal.slot: seal for seal in event.seals}}), ()


def on_tasks_finished(value: Commit, event: ev.TasksFinished) -> Step:
    """All slots must be sealed. Nothing written at all: only the decision is needed, nothing to check or end."""
    if set(value.seals) != set(range(event.slots)):
        raise IllegalMove(
            "commit: the job is over but not every slot has its seal; nothing has changed",
            {"slots": event.slots, "sealed": len(value.seals)},
        )
    participants = _participants(value)
    if not participants:
        return replace(value, state=CommitState.DECIDING), (ev.RecordDecision(_all_seals(value)),)
    return replace(value, state=CommitState.CHECKING), (ev.CheckAlive(participants),)


def on_given_up(value: Commit, event: ev.TasksFailed | ev.NotAlive | ev.DecisionRefused) -> Step:
    """Nothing is decided, so everything may be aborted and repeated."""
    return replace(value, state=CommitState.ABORTING, reason=event.reason), (
        ev.AbortSlots(_participants(value), event.reason),
    )


def on_all_alive(value: Commit, event: ev.AllAlive) -> Step:
    """Decide."""
    return replace(value, state=CommitState.DECIDING), (ev.RecordDecision(_all_seals(value)),)


def on_decision_durable(value: Commit, event: ev.DecisionDurable) -> Step:
    """From here on nothing may abort."""
    participants = _participants(value)
    if not participants:
        return replace(value, state=CommitState.DONE), ()
    open_slots = {seal.slot: ParticipantState.ENDING for seal in participants}
    return replace(value, state=CommitState.FINISHING, open_slots=open_slots), (ev.EndSlots(participants),)


def on_decision_unanswered(value: Commit, event: ev.DecisionUnanswered) -> Step:
    """The batch may or may not be decided: ask, and touch no participant meanwhile."""
    return replace(value, state=CommitState.DECISION_UNKNOWN, reason=event.reason), (ev.AskDecision(),)


def on_slot_ended(value: Commit, event: ev.SlotEnded) -> Step:
    """One slot less to wait for."""
    return _conclude(_without(value, event.slot))


def on_slot_unanswered(value: Commit, event: ev.SlotUnanswered) -> Step:
    """Ask for its outcome, unless that was done too often."""
    after = _with(value, event.slot, ParticipantState.PROVING)
    tries = value.tries.get(event.slot, 0) + 1
    seal = value.seals[event.slot]
    if tries > MOST_TRIES:
        after = replace(after, state=CommitState.STOPPED, reason=event.reason)
        return after, (ev.StopUnanswered(seal, tries, event.reason),)
    return replace(after, tries={**value.tries, event.slot: tries}), (ev.ProveSlots((seal,)),)


def on_slot_unsure(value: Commit, event: ev.SlotUnsure) -> Step:
    """Ask for its outcome."""
    return _with(value, event.slot, ParticipantState.PROVING), (ev.ProveSlots((value.seals[event.slot],)),)


def on_slot_denied(value: Commit, event: ev.SlotDenied) -> Step:
    """Another try needs the right first, and the transaction has a timeout: a person has to act now."""
    after = replace(_with(value, event.slot, ParticipantState.PROVING), state=CommitState.STOPPED, reason=event.reason)
    return after, (ev.StopDenied(value.seals[event.slot], event.reason, event.remedy),)


def on_slot_proven(value: Commit, event: ev.SlotProven) -> Step:
    """Committed, or gone with its topic: done. Open: end it. Lost or unknowable: handled once the other slots
    are finished, because their part of the decision is not in doubt."""
    if event.verdict in (ev.Outcome.COMMITTED, ev.Outcome.GONE):
        return _conclude(_without(value, event.slot))
    if event.verdict is ev.Outcome.OPEN:
        return _with(value, event.slot, ParticipantState.ENDING), (ev.EndSlots((value.seals[event.slot],)),)
    at = ParticipantState.LOST if event.verdict is ev.Outcome.ABORTED else ParticipantState.UNKNOWABLE
    return _conclude(_with(value, event.slot, at))


def _with(value: Commit, slot: int, progress: ParticipantState) -> Commit:
    _require_open(value, slot)
    return replace(value, open_slots={**value.open_slots, slot: progress})


def _without(value: Commit, slot: int) -> Commit:
    _require_open(value, slot)
    # Of 10,000 slots, `copy` moves one block of memory; a dict that is built anew takes 0.5 ms, 5 s for a batch.
    left = value.open_slots.copy()
    del left[slot]
    return replace(value, open_slots=left)


def _require_open(value: Commit, slot: int) -> None:
    if slot not in value.open_slots:
        raise IllegalMove("commit: an answer for a slot not open; nothing has changed", {"slot": slot})


def _conclude(value: Commit) -> Step:
    if not value.open_slots:
        return replace(value, state=CommitState.DONE), ()
    if any(progress in (ParticipantState.ENDING, ParticipantState.PROVING) for progress in value.open_slots.values()):
        return value, ()
    unknown = {slot: at for slot, at in value.open_slots.items() if at is ParticipantState.UNKNOWABLE}
    if unknown:
        after = replace(value, state=CommitState.BROKEN, reason="a decided slot's outcome cannot be known")
        return after, (ev.StopBroken(_seals(value.seals, unknown)),)
    return replace(value, state=CommitState.REWRITING), (ev.RewriteSlots(_seals(value.seals, value.open_slots)),)


def on_rewritten(value: Commit, event: ev.Rewritten) -> Step:
    """The replay must equal the decision, slot for slot, or as a whole where no slot is committed. Its seals
    are then recorded before they are ended."""
    replayed = {seal.slot: seal for seal in event.seals}
    wrote = {seal.slot for seal in event.seals if not seal.empty}
    other = [slot for slot in sorted(value.open_slots) if not _same(value.seals[slot], replayed.get(slot))]
    if not other:
        seals = {**value.seals, **{slot: replayed[slot] for slot in value.open_slots}}
        in_vain = _seals(replayed, wrote - set(value.open_slots))
        return _record_repair(value, seals, set(value.open_slots), in_vain)
    same_rows = _totals(value.seals) == _totals(replayed)
    all_lost = {seal.slot for seal in _participants(value)} == set(value.open_slots)
    all_wrote = all(seal.slot in wrote for seal in event.seals if seal.records)
    if same_rows and all_lost and (all_wrote or event.narrowed):
        return _record_repair(value, replayed, wrote, ())
    in_vain = _seals(replayed, wrote)
    if same_rows:
        reason = "the replay is split otherwise than what was decided"
        after = replace(value, state=CommitState.BROKEN, reason=reason)
        return after, (ev.DropSlots(in_vain), ev.StopSplit(_all_seals(value), _seals(replayed, replayed)))
    after = replace(value, state=CommitState.BROKEN, reason="the replay is not what was decided")
    return after, (
        ev.DropSlots(in_vain),
        ev.StopNondeterministic(value.seals[other[0]], replayed.get(other[0])),
    )


def _same(decided: Seal, again: Seal | None) -> bool:
    # Records that were only measured are in no log, even where count and digest are equal.
    if again is None or again.empty:
        return False
    return (again.records, again.digest) == (decided.records, decided.digest)


def _totals(seals: Mapping[int, Seal]) -> tuple[int, int]:
    # A digest is a sum over its records, so the whole batch's does not depend on which slot had which record.
    return sum(seal.records for seal in seals.values()), sum(seal.digest for seal in seals.values()) % 2**64


def _record_repair(
    value: Commit, seals: Mapping[int, Seal], rewritten: Collection[int], in_vain: tuple[Seal, ...]
) -> Step:
    open_slots = dict.fromkeys(sorted(rewritten), ParticipantState.LOST)
    after = replace(value, state=CommitState.RECORDING, seals=seals, open_slots=open_slots)
    drop = (ev.DropSlots(in_vain),) if in_vain else ()
    return after, (*drop, ev.RecordRepair(_seals(seals, seals)))


def on_rewrite_deferred(value: Commit, event: ev.RewriteDeferred) -> Step:
    """The process that began the batch hands it over with these slots."""
    return replace(value, state=CommitState.DEFERRED), ()


def on_rewrite_failed(value: Commit, event: ev.RewriteFailed) -> Step:
    """The decision stands; the next run proves and repairs again."""
    return replace(value, state=CommitState.BROKEN, reason=event.reason), (ev.StopForNow(event.reason),)


def on_repair_durable(value: Commit, event: ev.DecisionDurable) -> Step:
    """The ledger names the new seals: end them."""
    open_slots = dict.fromkeys(value.open_slots, ParticipantState.ENDING)
    after = replace(value, state=CommitState.FINISHING, open_slots=open_slots)
    return after, (ev.EndSlots(_seals(value.seals, open_slots)),)


def on_repair_unanswered(value: Commit, event: ev.DecisionUnanswered) -> Step:
    """The ledger names the old seals or the new ones: ask before anything is ended."""
    return replace(value, state=CommitState.RECORD_UNKNOWN, reason=event.reason), (ev.AskDecision(),)


def on_repair_refused(value: Commit, event: ev.DecisionRefused) -> Step:
    """The ledger still names the lost seals: the rewritten slots are aborted, and the next run repairs again."""
    after = replace(value, state=CommitState.BROKEN, reason=event.reason)
    return after, (ev.DropSlots(_seals(value.seals, value.open_slots)), ev.StopForNow(event.reason))


def on_still_unanswered(value: Commit, event: ev.DecisionUnanswered) -> Step:
    """The question was asked until its deadline: the next run asks it before anything else."""
    return replace(value, state=CommitState.STOPPED, reason=event.reason), (ev.StopUnknown(event.reason),)


def on_step_failed(value: Commit, event: ev.StepFailed) -> Step:
    """No abort follows from a question that failed, and no end does."""
    return replace(value, state=CommitState.STOPPED, reason=event.reason), ()


def on_abort_finished(value: Commit, event: ev.AbortFinished) -> Step:
    """Nothing of the batch is or will be visible."""
    return replace(value, state=CommitState.ABORTED), ()


MOVES: Moves[CommitState] = {
    (CommitState.GATHERING, ev.Sealed): Move(on_sealed, CommitState.GATHERING),
    (CommitState.GATHERING, ev.TasksFinished): Move(on_tasks_finished, CommitState.CHECKING, CommitState.DECIDING),
    (CommitState.GATHERING, ev.TasksFailed): Move(on_given_up, CommitState.ABORTING),
    (CommitState.CHECKING, ev.AllAlive): Move(on_all_alive, CommitState.DECIDING),
    (CommitState.CHECKING, ev.NotAlive): Move(on_given_up, CommitState.ABORTING),
    (CommitState.DECIDING, ev.DecisionDurable): Move(on_decision_durable, CommitState.DONE, CommitState.FINISHING),
    (CommitState.DECIDING, ev.DecisionUnanswered): Move(on_decision_unanswered, CommitState.DECISION_UNKNOWN),
    (CommitState.DECIDING, ev.DecisionRefused): Move(on_given_up, CommitState.ABORTING),
    (CommitState.DECISION_UNKNOWN, ev.DecisionDurable): Move(
        on_decision_durable, CommitState.DONE, CommitState.FINISHING
    ),
    (CommitState.DECISION_UNKNOWN, ev.DecisionUnanswered): Move(on_still_unanswered, CommitState.STOPPED),
    (CommitState.DECISION_UNKNOWN, ev.DecisionRefused): Move(on_given_up, CommitState.ABORTING),
    (CommitState.FINISHING, ev.SlotEnded): Move(
        on_slot_ended, CommitState.FINISHING, CommitState.BROKEN, CommitState.DONE, CommitState.REWRITING
    ),
    (CommitState.FINISHING, ev.SlotUnanswered): Move(on_slot_unanswered, CommitState.FINISHING, CommitState.STOPPED),
    (CommitState.FINISHING, ev.SlotUnsure): Move(on_slot_unsure, CommitState.FINISHING),
    (CommitState.FINISHING, ev.SlotDenied): Move(on_slot_denied, CommitState.STOPPED),
    (CommitState.FINISHING, ev.SlotProven): Move(
        on_slot_proven, CommitState.FINISHING, CommitState.BROKEN, CommitState.DONE, CommitState.REWRITING
    ),
    (CommitState.REWRITING, ev.Rewritten): Move(on_rewritten, CommitState.BROKEN, CommitState.RECORDING),
    (CommitState.REWRITING, ev.RewriteFailed): Move(on_rewrite_failed, CommitState.BROKEN),
    (CommitState.REWRITING, ev.RewriteDeferred): Move(on_rewrite_deferred, CommitState.DEFERRED),
    (CommitState.RECORDING, ev.DecisionDurable): Move(on_repair_durable, CommitState.FINISHING),
    (CommitState.RECORDING, ev.DecisionUnanswered): Move(on_repair_unanswered, CommitState.RECORD_UNKNOWN),
    (CommitState.RECORDING, ev.DecisionRefused): Move(on_repair_refused, CommitState.BROKEN),
    (CommitState.RECORD_UNKNOWN, ev.DecisionDurable): Move(on_repair_durable, CommitState.FINISHING),
    (CommitState.RECORD_UNKNOWN, ev.DecisionUnanswered): Move(on_still_unanswered, CommitState.STOPPED),
    (CommitState.RECORD_UNKNOWN, ev.DecisionRefused): Move(on_repair_refused, CommitState.BROKEN),
    (CommitState.ABORTING, ev.AbortFinished): Move(on_abort_finished, CommitState.ABORTED),
    (CommitState.CHECKING, ev.StepFailed): Move(on_step_failed, CommitState.STOPPED),
    (CommitState.DECIDING, ev.StepFailed): Move(on_step_failed, CommitState.STOPPED),
    (CommitState.DECISION_UNKNOWN, ev.StepFailed): Move(on_step_failed, CommitState.STOPPED),
    (CommitState.FINISHING, ev.StepFailed): Move(on_step_failed, CommitState.STOPPED),
    (CommitState.REWRITING, ev.StepFailed): Move(on_step_failed, CommitState.STOPPED),
    (CommitState.RECORDING, ev.StepFailed): Move(on_step_failed, CommitState.STOPPED),
    (CommitState.RECORD_UNKNOWN, ev.StepFailed): Move(on_step_failed, CommitState.STOPPED),
}

ENDS = ends_of(CommitState, MOVES)
