"""Every (state, event) pair of the commit machine: where it leads, or that it is refused and nothing has changed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from kafka_core.errors import IllegalMove
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.machine.per_task import MOST_TRIES, MOVES, Commit, CommitState, ParticipantState, resume
from pyspark_kafka_eos.model import Seal
from tests.support.tables import CaseTests, Table


def seal(slot: int, *, empty: bool = False) -> Seal:
    identity = None if empty else ProducerIdentity(100 + slot, 1)
    return Seal(f"pipe:{slot}", slot, identity, 2, records=0 if empty else 10)


A, B, C, EMPTY = seal(0), seal(1), seal(2), seal(1, empty=True)
TWO = {0: A, 1: B}
MIXED = {0: A, 1: EMPTY}
ENDING, PROVING, LOST, UNKNOWABLE = (
    ParticipantState.ENDING,
    ParticipantState.PROVING,
    ParticipantState.LOST,
    ParticipantState.UNKNOWABLE,
)

GATHERING = Commit(seals=TWO)
FINISHING = Commit(CommitState.FINISHING, TWO, {0: ENDING, 1: ENDING})
DECIDING = Commit(CommitState.DECIDING, TWO)
VALUES = {state: Commit(state, TWO) for state in CommitState} | {CommitState.FINISHING: FINISHING}
EVENTS: dict[type, ev.Event] = {
    ev.Sealed: ev.Sealed((C,)),
    ev.TasksFinished: ev.TasksFinished(2),
    ev.TasksFailed: ev.TasksFailed("boom"),
    ev.AllAlive: ev.AllAlive(),
    ev.NotAlive: ev.NotAlive("too old"),
    ev.DecisionDurable: ev.DecisionDurable(),
    ev.DecisionUnanswered: ev.DecisionUnanswered("silence"),
    ev.DecisionRefused: ev.DecisionRefused("fenced"),
    ev.SlotEnded: ev.SlotEnded(0),
    ev.SlotUnanswered: ev.SlotUnanswered(0),
    ev.SlotUnsure: ev.SlotUnsure(0),
    ev.SlotDenied: ev.SlotDenied(0, "denied", "grant it"),
    ev.SlotProven: ev.SlotProven(0, ev.Outcome.COMMITTED),
    ev.Rewritten: ev.Rewritten((C,)),
    ev.RewriteFailed: ev.RewriteFailed("no executor"),
    ev.RewriteDeferred: ev.RewriteDeferred(),
    ev.StepFailed: ev.StepFailed("no broker"),
    ev.AbortFinished: ev.AbortFinished(),
}

Case = tuple[Commit, ev.Event, Commit, tuple[ev.Effect, ...]]


def finishing(**slots: ParticipantState) -> Commit:
    return Commit(CommitState.FINISHING, TWO, {int(name[1:]): at for name, at in slots.items()})


def rewriting(**slots: ParticipantState) -> Commit:
    return replace(finishing(**slots), state=CommitState.REWRITING)


def broken(reason: str, **slots: ParticipantState) -> Commit:
    return replace(finishing(**slots), state=CommitState.BROKEN, reason=reason)


UNKNOWABLE_REASON = "a decided slot's outcome cannot be known"
OTHER_REASON = "the replay is not what was decided"
SPLIT_REASON = "the replay is split otherwise than what was decided"
A_AGAIN = replace(A, identity=ProducerIdentity(100, 2))
REPAIRED = {0: A_AGAIN, 1: B}
# Together the 20 records of A and B; their digests wrap round to the sum of theirs, 0.
SPLIT = (
    replace(A_AGAIN, records=3, digest=2**64 - 7),
    replace(B, identity=ProducerIdentity(101, 2), records=6, digest=4),
    replace(C, records=11, digest=3),
)
MEASURED = tuple(replace(seal, identity=None) for seal in SPLIT)
ALL_IN_ONE = replace(A_AGAIN, records=20)
RECORDING = Commit(CommitState.RECORDING, REPAIRED, {0: LOST})
RECORD_UNKNOWN = replace(RECORDING, state=CommitState.RECORD_UNKNOWN, reason="?")


def recorded(before: Commit) -> list[Case]:
    after = replace(before, state=CommitState.FINISHING, open_slots={0: ENDING})
    return [(before, ev.DecisionDurable(), after, (ev.EndSlots((A_AGAIN,)),))]


def unrecorded(before: Commit) -> list[Case]:
    after = replace(before, state=CommitState.BROKEN, reason="fenced")
    return [(before, ev.DecisionRefused("fenced"), after, (ev.DropSlots((A_AGAIN,)), ev.StopForNow("fenced")))]


def step_failed(before: Commit) -> list[Case]:
    return [(before, ev.StepFailed("no broker"), replace(before, state=CommitState.STOPPED, reason="no broker"), ())]


def decided(state: CommitState) -> list[Case]:
    return [
        (Commit(state, TWO), ev.DecisionDurable(), FINISHING, (ev.EndSlots((A, B)),)),
        (
            Commit(state, MIXED),
            ev.DecisionDurable(),
            Commit(CommitState.FINISHING, MIXED, {0: ENDING}),
            (ev.EndSlots((A,)),),
        ),
        (Commit(state, {1: EMPTY}), ev.DecisionDurable(), Commit(CommitState.DONE, {1: EMPTY}), ()),
    ]


EXPECTED: dict[tuple[CommitState, type], list[Case]] = {
    (CommitState.GATHERING, ev.Sealed): [
        (Commit(), ev.Sealed((A,)), Commit(seals={0: A}), ()),
        (Commit(), ev.Sealed((C, A)), Commit(seals={0: A, 2: C}), ()),
        (GATHERING, ev.Sealed((C,)), Commit(seals={0: A, 1: B, 2: C}), ()),
    ],
    (CommitState.GATHERING, ev.TasksFinished): [
        (GATHERING, ev.TasksFinished(2), Commit(CommitState.CHECKING, TWO), (ev.CheckAlive((A, B)),)),
        (
            Commit(seals={1: EMPTY, 0: A}),
            ev.TasksFinished(2),
            Commit(CommitState.CHECKING, MIXED),
            (ev.CheckAlive((A,)),),
        ),
        (Commit(), ev.TasksFinished(0), Commit(CommitState.DECIDING), (ev.RecordDecision(()),)),
        (
            Commit(seals={1: EMPTY, 0: seal(0, empty=True)}),
            ev.TasksFinished(2),
            Commit(CommitState.DECIDING, {0: seal(0, empty=True), 1: EMPTY}),
            (ev.RecordDecision((seal(0, empty=True), EMPTY)),),
        ),
    ],
    (CommitState.GATHERING, ev.TasksFailed): [
        (
            GATHERING,
            ev.TasksFailed("boom"),
            Commit(CommitState.ABORTING, TWO, reason="boom"),
            (ev.AbortSlots((A, B), "boom"),),
        ),
        (
            Commit(),
            ev.TasksFailed("boom"),
            Commit(CommitState.ABORTING, reason="boom"),
            (ev.AbortSlots((), "boom"),),
        ),
    ],
    (CommitState.CHECKING, ev.AllAlive): [
        (Commit(CommitState.CHECKING, TWO), ev.AllAlive(), DECIDING, (ev.RecordDecision((A, B)),)),
        (
            Commit(CommitState.CHECKING, MIXED),
            ev.AllAlive(),
            Commit(CommitState.DECIDING, MIXED),
            (ev.RecordDecision((A, EMPTY)),),
        ),
    ],
    (CommitState.CHECKING, ev.NotAlive): [
        (
            Commit(CommitState.CHECKING, TWO),
            ev.NotAlive("old"),
            Commit(CommitState.ABORTING, TWO, reason="old"),
            (ev.AbortSlots((A, B), "old"),),
        ),
    ],
    (CommitState.DECIDING, ev.DecisionDurable): decided(CommitState.DECIDING),
    (CommitState.DECIDING, ev.DecisionUnanswered): [
        (
            DECIDING,
            ev.DecisionUnanswered("?"),
            Commit(CommitState.DECISION_UNKNOWN, TWO, reason="?"),
            (ev.AskDecision(),),
        ),
    ],
    (CommitState.DECIDING, ev.DecisionRefused): [
        (
            DECIDING,
            ev.DecisionRefused("no"),
            Commit(CommitState.ABORTING, TWO, reason="no"),
            (ev.AbortSlots((A, B), "no"),),
        ),
    ],
    (CommitState.DECISION_UNKNOWN, ev.DecisionDurable): decided(CommitState.DECISION_UNKNOWN),
    (CommitState.DECISION_UNKNOWN, ev.DecisionUnanswered): [
        (
            Commit(CommitState.DECISION_UNKNOWN, TWO, reason="1"),
            ev.DecisionUnanswered("2"),
            Commit(CommitState.STOPPED, TWO, reason="2"),
            (ev.StopUnknown("2"),),
        ),
    ],
    (CommitState.DECISION_UNKNOWN, ev.DecisionRefused): [
        (
            Commit(CommitState.DECISION_UNKNOWN, TWO, reason="1"),
            ev.DecisionRefused("no"),
            Commit(CommitState.ABORTING, TWO, reason="no"),
            (ev.AbortSlots((A, B), "no"),),
        ),
    ],
    (CommitState.FINISHING, ev.SlotEnded): [
        (FINISHING, ev.SlotEnded(0), finishing(_1=ENDING), ()),
        (finishing(_1=ENDING), ev.SlotEnded(1), Commit(CommitState.DONE, TWO), ()),
        (finishing(_0=LOST, _1=ENDING), ev.SlotEnded(1), rewriting(_0=LOST), (ev.RewriteSlots((A,)),)),
        (
            finishing(_0=UNKNOWABLE, _1=ENDING),
            ev.SlotEnded(1),
            broken(UNKNOWABLE_REASON, _0=UNKNOWABLE),
            (ev.StopBroken((A,)),),
        ),
    ],
    (CommitState.FINISHING, ev.SlotUnanswered): [
        (
            FINISHING,
            ev.SlotUnanswered(1, "silence"),
            replace(finishing(_0=ENDING, _1=PROVING), tries={1: 1}),
            (ev.ProveSlots((B,)),),
        ),
        (
            replace(FINISHING, tries={0: 2, 1: MOST_TRIES - 1}),
            ev.SlotUnanswered(1, "silence"),
            replace(finishing(_0=ENDING, _1=PROVING), tries={0: 2, 1: MOST_TRIES}),
            (ev.ProveSlots((B,)),),
        ),
        (
            replace(FINISHING, tries={1: MOST_TRIES}),
            ev.SlotUnanswered(1, "silence"),
            replace(
                finishing(_0=ENDING, _1=PROVING), state=CommitState.STOPPED, tries={1: MOST_TRIES}, reason="silence"
            ),
            (ev.StopUnanswered(B, MOST_TRIES + 1, "silence"),),
        ),
    ],
    (CommitState.FINISHING, ev.SlotUnsure): [
        (FINISHING, ev.SlotUnsure(1), finishing(_0=ENDING, _1=PROVING), (ev.ProveSlots((B,)),)),
    ],
    (CommitState.FINISHING, ev.SlotDenied): [
        (
            FINISHING,
            ev.SlotDenied(1, "denied", "grant it"),
            replace(finishing(_0=ENDING, _1=PROVING), state=CommitState.STOPPED, reason="denied"),
            (ev.StopDenied(B, "denied", "grant it"),),
        ),
    ],
    (CommitState.FINISHING, ev.SlotProven): [
        (finishing(_0=PROVING, _1=ENDING), ev.SlotProven(0, ev.Outcome.COMMITTED), finishing(_1=ENDING), ()),
        (finishing(_0=PROVING), ev.SlotProven(0, ev.Outcome.COMMITTED), Commit(CommitState.DONE, TWO), ()),
        (
            finishing(_0=PROVING),
            ev.SlotProven(0, ev.Outcome.OPEN),
            finishing(_0=ENDING),
            (ev.EndSlots((A,)),),
        ),
        (
            finishing(_0=PROVING, _1=ENDING),
            ev.SlotProven(0, ev.Outcome.ABORTED),
            finishing(_0=LOST, _1=ENDING),
            (),
        ),
        (
            finishing(_0=PROVING),
            ev.SlotProven(0, ev.Outcome.ABORTED),
            rewriting(_0=LOST),
            (ev.RewriteSlots((A,)),),
        ),
        (
            finishing(_0=LOST, _1=PROVING),
            ev.SlotProven(1, ev.Outcome.UNKNOWN),
            broken(UNKNOWABLE_REASON, _0=LOST, _1=UNKNOWABLE),
            (ev.StopBroken((B,)),),
        ),
    ],
    (CommitState.REWRITING, ev.Rewritten): [
        (rewriting(_0=LOST), ev.Rewritten((A_AGAIN,)), RECORDING, (ev.RecordRepair((A_AGAIN, B)),)),
        (
            rewriting(_0=LOST),
            ev.Rewritten((A_AGAIN, replace(B, identity=None, records=99))),
            RECORDING,
            (ev.RecordRepair((A_AGAIN, B)),),
        ),
        (
            rewriting(_0=LOST),
            ev.Rewritten((replace(A_AGAIN, records=9),)),
            broken(OTHER_REASON, _0=LOST),
            (
                ev.DropSlots((replace(A_AGAIN, records=9),)),
                ev.StopNondeterministic(A, replace(A_AGAIN, records=9)),
            ),
        ),
        (
            rewriting(_0=LOST),
            ev.Rewritten((replace(A_AGAIN, digest=1),)),
            broken(OTHER_REASON, _0=LOST),
            (
                ev.DropSlots((replace(A_AGAIN, digest=1),)),
                ev.StopNondeterministic(A, replace(A_AGAIN, digest=1)),
            ),
        ),
        (
            rewriting(_0=LOST),
            ev.Rewritten(()),
            broken(OTHER_REASON, _0=LOST),
            (ev.DropSlots(()), ev.StopNondeterministic(A, None)),
        ),
        # What a slot wrote that is not to write is aborted, and the repair goes on.
        (
            rewriting(_0=LOST),
            ev.Rewritten((A_AGAIN, replace(C, records=1))),
            RECORDING,
            (ev.DropSlots((replace(C, records=1),)), ev.RecordRepair((A_AGAIN, B))),
        ),
        # The same rows in other slots, nothing committed: the new seals take the place of all.
        (
            rewriting(_0=LOST, _1=LOST),
            ev.Rewritten(SPLIT),
            Commit(CommitState.RECORDING, {seal.slot: seal for seal in SPLIT}, {0: LOST, 1: LOST, 2: LOST}),
            (ev.RecordRepair(SPLIT),),
        ),
        (
            rewriting(_0=LOST, _1=LOST),
            ev.Rewritten((ALL_IN_ONE, EMPTY)),
            Commit(CommitState.RECORDING, {0: ALL_IN_ONE, 1: EMPTY}, {0: LOST}),
            (ev.RecordRepair((ALL_IN_ONE, EMPTY)),),
        ),
        # The same, but some slot is committed, or only measured.
        (
            rewriting(_0=LOST),
            ev.Rewritten((SPLIT[0], MEASURED[1], MEASURED[2])),
            broken(SPLIT_REASON, _0=LOST),
            (ev.DropSlots((SPLIT[0],)), ev.StopSplit((A, B), (SPLIT[0], MEASURED[1], MEASURED[2]))),
        ),
        (
            rewriting(_0=LOST, _1=LOST),
            ev.Rewritten((SPLIT[0], SPLIT[1], MEASURED[2])),
            broken(SPLIT_REASON, _0=LOST, _1=LOST),
            (ev.DropSlots(SPLIT[:2]), ev.StopSplit((A, B), (SPLIT[0], SPLIT[1], MEASURED[2]))),
        ),
        # A lost slot that was measured and not written is never taken for a repaired one.
        (
            rewriting(_0=LOST),
            ev.Rewritten((replace(A_AGAIN, identity=None), replace(B, identity=None))),
            broken(SPLIT_REASON, _0=LOST),
            (
                ev.DropSlots(()),
                ev.StopSplit((A, B), (replace(A_AGAIN, identity=None), replace(B, identity=None))),
            ),
        ),
        # Other rows, as many of them.
        (
            rewriting(_0=LOST, _1=LOST),
            ev.Rewritten((SPLIT[0], SPLIT[1], replace(SPLIT[2], digest=12))),
            broken(OTHER_REASON, _0=LOST, _1=LOST),
            (
                ev.DropSlots((SPLIT[0], SPLIT[1], replace(SPLIT[2], digest=12))),
                ev.StopNondeterministic(A, SPLIT[0]),
            ),
        ),
    ],
    (CommitState.REWRITING, ev.RewriteFailed): [
        (
            rewriting(_0=LOST),
            ev.RewriteFailed("no executor"),
            broken("no executor", _0=LOST),
            (ev.StopForNow("no executor"),),
        ),
    ],
    (CommitState.REWRITING, ev.RewriteDeferred): [
        (
            rewriting(_0=LOST),
            ev.RewriteDeferred(),
            replace(rewriting(_0=LOST), state=CommitState.DEFERRED),
            (),
        ),
    ],
    (CommitState.RECORDING, ev.DecisionDurable): recorded(RECORDING),
    (CommitState.RECORDING, ev.DecisionUnanswered): [
        (RECORDING, ev.DecisionUnanswered("?"), RECORD_UNKNOWN, (ev.AskDecision(),))
    ],
    (CommitState.RECORDING, ev.DecisionRefused): unrecorded(RECORDING),
    (CommitState.RECORD_UNKNOWN, ev.DecisionDurable): recorded(RECORD_UNKNOWN),
    (CommitState.RECORD_UNKNOWN, ev.DecisionUnanswered): [
        (
            RECORD_UNKNOWN,
            ev.DecisionUnanswered("2"),
            replace(RECORD_UNKNOWN, state=CommitState.STOPPED, reason="2"),
            (ev.StopUnknown("2"),),
        )
    ],
    (CommitState.RECORD_UNKNOWN, ev.DecisionRefused): unrecorded(RECORD_UNKNOWN),
    (CommitState.ABORTING, ev.AbortFinished): [
        (
            Commit(CommitState.ABORTING, TWO, reason="no"),
            ev.AbortFinished(),
            Commit(CommitState.ABORTED, TWO, reason="no"),
            (),
        ),
    ],
    (CommitState.CHECKING, ev.StepFailed): step_failed(Commit(CommitState.CHECKING, TWO)),
    (CommitState.DECIDING, ev.StepFailed): step_failed(DECIDING),
    (CommitState.DECISION_UNKNOWN, ev.StepFailed): step_failed(Commit(CommitState.DECISION_UNKNOWN, TWO)),
    (CommitState.FINISHING, ev.StepFailed): step_failed(FINISHING),
    (CommitState.REWRITING, ev.StepFailed): step_failed(rewriting(_0=LOST)),
    (CommitState.RECORDING, ev.StepFailed): step_failed(RECORDING),
    (CommitState.RECORD_UNKNOWN, ev.StepFailed): step_failed(RECORD_UNKNOWN),
}


class TestTheTable(CaseTests):
    """Of a commit, task by task."""

    table = Table("commit", MOVES, CommitState, ev.Event, EVENTS, VALUES, EXPECTED)


def test_a_second_seal_of_a_slot_is_refused_and_the_first_stays() -> None:
    again = replace(A, identity=ProducerIdentity(100, 2))
    with pytest.raises(IllegalMove, match="sealed twice"):
        GATHERING.handle(ev.Sealed((again,)))
    with pytest.raises(IllegalMove, match="sealed twice"):
        GATHERING.handle(ev.Sealed((C, C)))
    assert GATHERING.seals == {0: A, 1: B}


@pytest.mark.parametrize(("seals", "slots"), [({0: A}, 2), ({0: A, 2: C}, 2), (TWO, 1), ({}, 1)])
def test_a_finished_job_with_missing_or_foreign_seals_is_refused(seals: dict[int, Seal], slots: int) -> None:
    value = Commit(seals=seals)
    with pytest.raises(IllegalMove, match="not every slot"):
        value.handle(ev.TasksFinished(slots))
    assert value == Commit(seals=seals)


@pytest.mark.parametrize(
    "event", [ev.SlotUnanswered(7), ev.SlotProven(7, ev.Outcome.OPEN), ev.SlotProven(7, ev.Outcome.ABORTED)]
)
def test_news_of_a_slot_that_is_not_open_is_refused(event: ev.Event) -> None:
    untouched = copy.deepcopy(FINISHING)
    with pytest.raises(IllegalMove, match="not open"):
        FINISHING.handle(event)
    assert untouched == FINISHING


def test_a_resumed_batch_proves_every_slot_before_anything_else() -> None:
    assert resume((A, EMPTY)) == (Commit(CommitState.FINISHING, MIXED, {0: PROVING}), (ev.ProveSlots((A,)),))


def test_a_resumed_batch_in_which_nothing_was_written_is_done() -> None:
    assert resume((EMPTY,)) == (Commit(CommitState.DONE, {1: EMPTY}), ())
