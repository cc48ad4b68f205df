"""Every (state, event) pair of the commit in one transaction: where it leads, or that it is refused and nothing changes."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.commit.machine.events import (
    AbortFinished,
    AllAlive,
    AskDecision,
    CheckAlive,
    DecisionDurable,
    DecisionRefused,
    DecisionUnanswered,
    NotAlive,
    RecordDecision,
    StepFailed,
    StopUnknown,
    TasksFailed,
)
from pyspark_kafka_eos.commit.machine.whole_batch import (
    MOVES,
    AbortBatch,
    AwaitVisible,
    BatchCommit,
    Effect,
    Event,
    Shown,
    State,
    Written,
)
from pyspark_kafka_eos.model import Seal
from tests.support.tables import CaseTests, Table

SEAL = Seal("pipe.batch", 0, ProducerIdentity(7, 3), 2, records=10)
EVENTS: dict[type, Event] = {
    Written: Written(SEAL),
    TasksFailed: TasksFailed("boom"),
    AllAlive: AllAlive(),
    NotAlive: NotAlive("old"),
    DecisionDurable: DecisionDurable(),
    DecisionUnanswered: DecisionUnanswered("silence"),
    DecisionRefused: DecisionRefused("fenced"),
    Shown: Shown(),
    AbortFinished: AbortFinished(),
    StepFailed: StepFailed("no broker"),
}


def at(state: State, reason: str = "") -> BatchCommit:
    return BatchCommit(state, None if state is State.WRITING else SEAL, reason)


EXPECTED: dict[tuple[State, type], tuple[BatchCommit, tuple[Effect, ...]]] = {
    (State.WRITING, Written): (at(State.CHECKING), (CheckAlive((SEAL,)),)),
    (State.WRITING, TasksFailed): (
        BatchCommit(State.ABORTING, None, "boom"),
        (AbortBatch("boom"),),
    ),
    (State.CHECKING, AllAlive): (at(State.DECIDING), (RecordDecision((SEAL,)),)),
    (State.CHECKING, NotAlive): (at(State.ABORTING, "old"), (AbortBatch("old"),)),
    (State.DECIDING, DecisionDurable): (at(State.SHOWING), (AwaitVisible(SEAL),)),
    (State.DECIDING, DecisionUnanswered): (at(State.UNKNOWN, "silence"), (AskDecision(),)),
    (State.DECIDING, DecisionRefused): (at(State.ABORTING, "fenced"), (AbortBatch("fenced"),)),
    (State.UNKNOWN, DecisionDurable): (at(State.SHOWING), (AwaitVisible(SEAL),)),
    (State.UNKNOWN, DecisionUnanswered): (at(State.STOPPED, "silence"), (StopUnknown("silence"),)),
    (State.UNKNOWN, DecisionRefused): (at(State.ABORTING, "fenced"), (AbortBatch("fenced"),)),
    (State.SHOWING, Shown): (at(State.DONE), ()),
    (State.ABORTING, AbortFinished): (at(State.ABORTED), ()),
    **{
        (state, StepFailed): (at(State.STOPPED, "no broker"), ())
        for state in (State.CHECKING, State.DECIDING, State.UNKNOWN, State.SHOWING, State.ABORTING)
    },
}


class TestTheTable(CaseTests):
    """Of a commit in one transaction."""

    table = Table(
        "batch commit",
        MOVES,
        State,
        Event,
        EVENTS,
        {state: at(state) for state in State},
        {pair: [(at(pair[0]), EVENTS[pair[1]], *leads)] for pair, leads in EXPECTED.items()},
    )


@given(st.integers())
def test_whatever_is_answered_a_try_is_never_both_aborted_and_asked_to_commit_afterwards(seed: int) -> None:
    chance = random.Random(seed)
    value, asked, given_up = BatchCommit(), 0, False
    for _ in range(12):
        kind = chance.choice([k for k in EVENTS if (value.state, k) in MOVES] or [None])
        if kind is None:
            break
        value, effects = value.handle(EVENTS[kind])
        for effect in effects:
            asked += isinstance(effect, RecordDecision)
            assert not (given_up and isinstance(effect, RecordDecision | AskDecision | AwaitVisible))
            given_up |= isinstance(effect, AbortBatch)
    assert asked <= 1
    assert replace(value).state in State
