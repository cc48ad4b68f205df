"""Every (state, event) pair of the commit machine: where it leads, or that it is refused and nothing has changed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from kafka_core.errors import IllegalMove
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.commit.machine.events import (
    AbortFinished,
    AbortSlots,
    AllAlive,
    AskDecision,
    CheckAlive,
    DecisionDurable,
    DecisionRefused,
    DecisionUnanswered,
    DropSlots,
    Effect,
    EndSlots,
    Event,
    NotAlive,
    Outcome,
    ProveSlots,
    RecordDecision,
    RecordRepair,
    RewriteDeferred,
    RewriteFailed,
    RewriteSlots,
    Rewritten,
    Sealed,
    SlotDenied,
    SlotEnded,
    SlotProven,
    SlotUnanswered,
    SlotUnsure,
    StepFailed,
    StopBroken,
    StopDenied,
    StopForNow,
    StopNondeterministic,
    StopSplit,
    StopUnanswered,
    StopUnknown,
    TasksFailed,
    TasksFinished,
)
from pyspark_kafka_eos.commit.machine.per_task import MOST_TRIES, MOVES, Commit, Progress, State, resume
from pyspark_kafka_eos.model import Seal
from tests.support.tables import CaseTests, Table


def seal(slot: int, *, empty: bool = False) -> Seal:
    identity = None if empty else ProducerIdentity(100 + slot, 1)
    return Seal(f"pipe.{slot}", slot, identity, 2, records=0 if empty else 10)


A, B, C, EMPTY = seal(0), seal(1), seal(2), seal(1, empty=True)
TWO = {0: A, 1: B}
MIXED = {0: A, 1: EMPTY}
ENDING, PROVING, LOST, UNKNOWABLE = Progress.ENDING, Progress.PROVING, Progress.LOST, Progress.UNKNOWABLE

GATHERING = Commit(seals=TWO)
FINISHING = Commit(State.FINISHING, TWO, {0: ENDING, 1: ENDING})
DECIDING = Commit(State.DECIDING, TWO)
VALUES = {state: Commit(state, TWO) for state in State} | {State.FINISHING: FINISHING}
EVENTS: dict[type, Event] = {
    Sealed: Sealed((C,)),
    TasksFinished: TasksFinished(2),
    TasksFailed: TasksFailed("boom"),
    AllAlive: AllAlive(),
    NotAlive: NotAlive("too old"),
    DecisionDurable: DecisionDurable(),
    DecisionUnanswered: DecisionUnanswered("silence"),
    DecisionRefused: DecisionRefused("fenced"),
    SlotEnded: SlotEnded(0),
    SlotUnanswered: SlotUnanswered(0),
    SlotUnsure: SlotUnsure(0),
    SlotDenied: SlotDenied(0, "denied", "grant it"),
    SlotProven: SlotProven(0, Outcome.COMMITTED),
    Rewritten: Rewritten((C,)),
    RewriteFailed: RewriteFailed("no executor"),
    RewriteDeferred: RewriteDeferred(),
    StepFailed: StepFailed("no broker"),
    AbortFinished: AbortFinished(),
}

Case = tuple[Commit, Event, Commit, tuple[Effect, ...]]


def finishing(**slots: Progress) -> Commit:
    return Commit(State.FINISHING, TWO, {int(name[1:]): at for name, at in slots.items()})


def rewriting(**slots: Progress) -> Commit:
    return replace(finishing(**slots), state=State.REWRITING)


def broken(reason: str, **slots: Progress) -> Commit:
    return replace(finishing(**slots), state=State.BROKEN, reason=reason)


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
RECORDING = Commit(State.RECORDING, REPAIRED, {0: LOST})
RECORD_UNKNOWN = replace(RECORDING, state=State.RECORD_UNKNOWN, reason="?")


def recorded(before: Commit) -> list[Case]:
    after = replace(before, state=State.FINISHING, open_slots={0: ENDING})
    return [(before, DecisionDurable(), after, (EndSlots((A_AGAIN,)),))]


def unrecorded(before: Commit) -> list[Case]:
    after = replace(before, state=State.BROKEN, reason="fenced")
    return [(before, DecisionRefused("fenced"), after, (DropSlots((A_AGAIN,)), StopForNow("fenced")))]


def step_failed(before: Commit) -> list[Case]:
    return [(before, StepFailed("no broker"), replace(before, state=State.STOPPED, reason="no broker"), ())]


def decided(state: State) -> list[Case]:
    return [
        (Commit(state, TWO), DecisionDurable(), FINISHING, (EndSlots((A, B)),)),
        (
            Commit(state, MIXED),
            DecisionDurable(),
            Commit(State.FINISHING, MIXED, {0: ENDING}),
            (EndSlots((A,)),),
        ),
        (Commit(state, {1: EMPTY}), DecisionDurable(), Commit(State.DONE, {1: EMPTY}), ()),
    ]


EXPECTED: dict[tuple[State, type], list[Case]] = {
    (State.GATHERING, Sealed): [
        (Commit(), Sealed((A,)), Commit(seals={0: A}), ()),
        (Commit(), Sealed((C, A)), Commit(seals={0: A, 2: C}), ()),
        (GATHERING, Sealed((C,)), Commit(seals={0: A, 1: B, 2: C}), ()),
    ],
    (State.GATHERING, TasksFinished): [
        (GATHERING, TasksFinished(2), Commit(State.CHECKING, TWO), (CheckAlive((A, B)),)),
        (
            Commit(seals={1: EMPTY, 0: A}),
            TasksFinished(2),
            Commit(State.CHECKING, MIXED),
            (CheckAlive((A,)),),
        ),
        (Commit(), TasksFinished(0), Commit(State.DECIDING), (RecordDecision(()),)),
        (
            Commit(seals={1: EMPTY, 0: seal(0, empty=True)}),
            TasksFinished(2),
            Commit(State.DECIDING, {0: seal(0, empty=True), 1: EMPTY}),
            (RecordDecision((seal(0, empty=True), EMPTY)),),
        ),
    ],
    (State.GATHERING, TasksFailed): [
        (
            GATHERING,
            TasksFailed("boom"),
            Commit(State.ABORTING, TWO, reason="boom"),
            (AbortSlots((A, B), "boom"),),
        ),
        (Commit(), TasksFailed("boom"), Commit(State.ABORTING, reason="boom"), (AbortSlots((), "boom"),)),
    ],
    (State.CHECKING, AllAlive): [
        (Commit(State.CHECKING, TWO), AllAlive(), DECIDING, (RecordDecision((A, B)),)),
        (
            Commit(State.CHECKING, MIXED),
            AllAlive(),
            Commit(State.DECIDING, MIXED),
            (RecordDecision((A, EMPTY)),),
        ),
    ],
    (State.CHECKING, NotAlive): [
        (
            Commit(State.CHECKING, TWO),
            NotAlive("old"),
            Commit(State.ABORTING, TWO, reason="old"),
            (AbortSlots((A, B), "old"),),
        ),
    ],
    (State.DECIDING, DecisionDurable): decided(State.DECIDING),
    (State.DECIDING, DecisionUnanswered): [
        (
            DECIDING,
            DecisionUnanswered("?"),
            Commit(State.DECISION_UNKNOWN, TWO, reason="?"),
            (AskDecision(),),
        ),
    ],
    (State.DECIDING, DecisionRefused): [
        (
            DECIDING,
            DecisionRefused("no"),
            Commit(State.ABORTING, TWO, reason="no"),
            (AbortSlots((A, B), "no"),),
        ),
    ],
    (State.DECISION_UNKNOWN, DecisionDurable): decided(State.DECISION_UNKNOWN),
    (State.DECISION_UNKNOWN, DecisionUnanswered): [
        (
            Commit(State.DECISION_UNKNOWN, TWO, reason="1"),
            DecisionUnanswered("2"),
            Commit(State.STOPPED, TWO, reason="2"),
            (StopUnknown("2"),),
        ),
    ],
    (State.DECISION_UNKNOWN, DecisionRefused): [
        (
            Commit(State.DECISION_UNKNOWN, TWO, reason="1"),
            DecisionRefused("no"),
            Commit(State.ABORTING, TWO, reason="no"),
            (AbortSlots((A, B), "no"),),
        ),
    ],
    (State.FINISHING, SlotEnded): [
        (FINISHING, SlotEnded(0), finishing(_1=ENDING), ()),
        (finishing(_1=ENDING), SlotEnded(1), Commit(State.DONE, TWO), ()),
        (finishing(_0=LOST, _1=ENDING), SlotEnded(1), rewriting(_0=LOST), (RewriteSlots((A,)),)),
        (
            finishing(_0=UNKNOWABLE, _1=ENDING),
            SlotEnded(1),
            broken(UNKNOWABLE_REASON, _0=UNKNOWABLE),
            (StopBroken((A,)),),
        ),
    ],
    (State.FINISHING, SlotUnanswered): [
        (
            FINISHING,
            SlotUnanswered(1, "silence"),
            replace(finishing(_0=ENDING, _1=PROVING), tries={1: 1}),
            (ProveSlots((B,)),),
        ),
        (
            replace(FINISHING, tries={0: 2, 1: MOST_TRIES - 1}),
            SlotUnanswered(1, "silence"),
            replace(finishing(_0=ENDING, _1=PROVING), tries={0: 2, 1: MOST_TRIES}),
            (ProveSlots((B,)),),
        ),
        (
            replace(FINISHING, tries={1: MOST_TRIES}),
            SlotUnanswered(1, "silence"),
            replace(
                finishing(_0=ENDING, _1=PROVING), state=State.STOPPED, tries={1: MOST_TRIES}, reason="silence"
            ),
            (StopUnanswered(B, MOST_TRIES + 1, "silence"),),
        ),
    ],
    (State.FINISHING, SlotUnsure): [
        (FINISHING, SlotUnsure(1), finishing(_0=ENDING, _1=PROVING), (ProveSlots((B,)),)),
    ],
    (State.FINISHING, SlotDenied): [
        (
            FINISHING,
            SlotDenied(1, "denied", "grant it"),
            replace(finishing(_0=ENDING, _1=PROVING), state=State.STOPPED, reason="denied"),
            (StopDenied(B, "denied", "grant it"),),
        ),
    ],
    (State.FINISHING, SlotProven): [
        (finishing(_0=PROVING, _1=ENDING), SlotProven(0, Outcome.COMMITTED), finishing(_1=ENDING), ()),
        (finishing(_0=PROVING), SlotProven(0, Outcome.COMMITTED), Commit(State.DONE, TWO), ()),
        (finishing(_0=PROVING), SlotProven(0, Outcome.OPEN), finishing(_0=ENDING), (EndSlots((A,)),)),
        (
            finishing(_0=PROVING, _1=ENDING),
            SlotProven(0, Outcome.ABORTED),
            finishing(_0=LOST, _1=ENDING),
            (),
        ),
        (
            finishing(_0=PROVING),
            SlotProven(0, Outcome.ABORTED),
            rewriting(_0=LOST),
            (RewriteSlots((A,)),),
        ),
        (
            finishing(_0=LOST, _1=PROVING),
            SlotProven(1, Outcome.UNKNOWN),
            broken(UNKNOWABLE_REASON, _0=LOST, _1=UNKNOWABLE),
            (StopBroken((B,)),),
        ),
    ],
    (State.REWRITING, Rewritten): [
        (rewriting(_0=LOST), Rewritten((A_AGAIN,)), RECORDING, (RecordRepair((A_AGAIN, B)),)),
        (
            rewriting(_0=LOST),
            Rewritten((A_AGAIN, replace(B, identity=None, records=99))),
            RECORDING,
            (RecordRepair((A_AGAIN, B)),),
        ),
        (
            rewriting(_0=LOST),
            Rewritten((replace(A_AGAIN, records=9),)),
            broken(OTHER_REASON, _0=LOST),
            (
                DropSlots((replace(A_AGAIN, records=9),)),
                StopNondeterministic(A, replace(A_AGAIN, records=9)),
            ),
        ),
        (
            rewriting(_0=LOST),
            Rewritten((replace(A_AGAIN, digest=1),)),
            broken(OTHER_REASON, _0=LOST),
            (
                DropSlots((replace(A_AGAIN, digest=1),)),
                StopNondeterministic(A, replace(A_AGAIN, digest=1)),
            ),
        ),
        (
            rewriting(_0=LOST),
            Rewritten(()),
            broken(OTHER_REASON, _0=LOST),
            (DropSlots(()), StopNondeterministic(A, None)),
        ),
        # What a slot wrote that is not to write is aborted, and the repair goes on.
        (
            rewriting(_0=LOST),
            Rewritten((A_AGAIN, replace(C, records=1))),
            RECORDING,
            (DropSlots((replace(C, records=1),)), RecordRepair((A_AGAIN, B))),
        ),
        # The same rows in other slots, nothing committed: the new seals take the place of all.
        (
            rewriting(_0=LOST, _1=LOST),
            Rewritten(SPLIT),
            Commit(State.RECORDING, {seal.slot: seal for seal in SPLIT}, {0: LOST, 1: LOST, 2: LOST}),
            (RecordRepair(SPLIT),),
        ),
        (
            rewriting(_0=LOST, _1=LOST),
            Rewritten((ALL_IN_ONE, EMPTY)),
            Commit(State.RECORDING, {0: ALL_IN_ONE, 1: EMPTY}, {0: LOST}),
            (RecordRepair((ALL_IN_ONE, EMPTY)),),
        ),
        # The same, but some slot is committed, or only measured.
        (
            rewriting(_0=LOST),
            Rewritten((SPLIT[0], MEASURED[1], MEASURED[2])),
            broken(SPLIT_REASON, _0=LOST),
            (DropSlots((SPLIT[0],)), StopSplit((A, B), (SPLIT[0], MEASURED[1], MEASURED[2]))),
        ),
        (
            rewriting(_0=LOST, _1=LOST),
            Rewritten((SPLIT[0], SPLIT[1], MEASURED[2])),
            broken(SPLIT_REASON, _0=LOST, _1=LOST),
            (DropSlots(SPLIT[:2]), StopSplit((A, B), (SPLIT[0], SPLIT[1], MEASURED[2]))),
        ),
        # A lost slot that was measured and not written is never taken for a repaired one.
        (
            rewriting(_0=LOST),
            Rewritten((replace(A_AGAIN, identity=None), replace(B, identity=None))),
            broken(SPLIT_REASON, _0=LOST),
            (
                DropSlots(()),
                StopSplit((A, B), (replace(A_AGAIN, identity=None), replace(B, identity=None))),
            ),
        ),
        # Other rows, as many of them.
        (
            rewriting(_0=LOST, _1=LOST),
            Rewritten((SPLIT[0], SPLIT[1], replace(SPLIT[2], digest=12))),
            broken(OTHER_REASON, _0=LOST, _1=LOST),
            (
                DropSlots((SPLIT[0], SPLIT[1], replace(SPLIT[2], digest=12))),
                StopNondeterministic(A, SPLIT[0]),
            ),
        ),
    ],
    (State.REWRITING, RewriteFailed): [
        (
            rewriting(_0=LOST),
            RewriteFailed("no executor"),
            broken("no executor", _0=LOST),
            (StopForNow("no executor"),),
        ),
    ],
    (State.REWRITING, RewriteDeferred): [
        (
            rewriting(_0=LOST),
            RewriteDeferred(),
            replace(rewriting(_0=LOST), state=State.DEFERRED),
            (),
        ),
    ],
    (State.RECORDING, DecisionDurable): recorded(RECORDING),
    (State.RECORDING, DecisionUnanswered): [
        (RECORDING, DecisionUnanswered("?"), RECORD_UNKNOWN, (AskDecision(),))
    ],
    (State.RECORDING, DecisionRefused): unrecorded(RECORDING),
    (State.RECORD_UNKNOWN, DecisionDurable): recorded(RECORD_UNKNOWN),
    (State.RECORD_UNKNOWN, DecisionUnanswered): [
        (
            RECORD_UNKNOWN,
            DecisionUnanswered("2"),
            replace(RECORD_UNKNOWN, state=State.STOPPED, reason="2"),
            (StopUnknown("2"),),
        )
    ],
    (State.RECORD_UNKNOWN, DecisionRefused): unrecorded(RECORD_UNKNOWN),
    (State.ABORTING, AbortFinished): [
        (
            Commit(State.ABORTING, TWO, reason="no"),
            AbortFinished(),
            Commit(State.ABORTED, TWO, reason="no"),
            (),
        ),
    ],
    (State.CHECKING, StepFailed): step_failed(Commit(State.CHECKING, TWO)),
    (State.DECIDING, StepFailed): step_failed(DECIDING),
    (State.DECISION_UNKNOWN, StepFailed): step_failed(Commit(State.DECISION_UNKNOWN, TWO)),
    (State.FINISHING, StepFailed): step_failed(FINISHING),
    (State.REWRITING, StepFailed): step_failed(rewriting(_0=LOST)),
    (State.RECORDING, StepFailed): step_failed(RECORDING),
    (State.RECORD_UNKNOWN, StepFailed): step_failed(RECORD_UNKNOWN),
}


class TestTheTable(CaseTests):
    """Of a commit, task by task."""

    table = Table("commit", MOVES, State, Event, EVENTS, VALUES, EXPECTED)


def test_a_second_seal_of_a_slot_is_refused_and_the_first_stays() -> None:
    again = replace(A, identity=ProducerIdentity(100, 2))
    with pytest.raises(IllegalMove, match="sealed twice"):
        GATHERING.handle(Sealed((again,)))
    with pytest.raises(IllegalMove, match="sealed twice"):
        GATHERING.handle(Sealed((C, C)))
    assert GATHERING.seals == {0: A, 1: B}


@pytest.mark.parametrize(("seals", "slots"), [({0: A}, 2), ({0: A, 2: C}, 2), (TWO, 1), ({}, 1)])
def test_a_finished_job_with_missing_or_foreign_seals_is_refused(seals: dict[int, Seal], slots: int) -> None:
    value = Commit(seals=seals)
    with pytest.raises(IllegalMove, match="not every slot"):
        value.handle(TasksFinished(slots))
    assert value == Commit(seals=seals)


@pytest.mark.parametrize(
    "event", [SlotUnanswered(7), SlotProven(7, Outcome.OPEN), SlotProven(7, Outcome.ABORTED)]
)
def test_news_of_a_slot_that_is_not_open_is_refused(event: Event) -> None:
    untouched = copy.deepcopy(FINISHING)
    with pytest.raises(IllegalMove, match="not open"):
        FINISHING.handle(event)
    assert untouched == FINISHING


def test_a_resumed_batch_proves_every_slot_before_anything_else() -> None:
    assert resume((A, EMPTY)) == (Commit(State.FINISHING, MIXED, {0: PROVING}), (ProveSlots((A,)),))


def test_a_resumed_batch_in_which_nothing_was_written_is_done() -> None:
    assert resume((EMPTY,)) == (Commit(State.DONE, {1: EMPTY}), ())
