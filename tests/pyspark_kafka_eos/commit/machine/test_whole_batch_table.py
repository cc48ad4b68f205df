"""Every (state, event) pair of the commit in one transaction: where it leads, or that it is refused and nothing
changes.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.commit.machine import events as ev
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
    ev.TasksFailed: ev.TasksFailed("boom"),
    ev.AllAlive: ev.AllAlive(),
    ev.NotAlive: ev.NotAlive("old"),
    ev.DecisionDurable: ev.DecisionDurable(),
    ev.DecisionUnanswered: ev.DecisionUnanswered("silence"),
    ev.DecisionRefused: ev.DecisionRefused("fenced"),
    Shown: Shown(),
    ev.AbortFinished: ev.AbortFinished(),
    ev.StepFailed: ev.StepFailed("no broker"),
}


def at(state: State, reason: str = "") -> BatchCommit:
    return BatchCommit(state, None if state is State.WRITING else SEAL, reason)


EXPECTED: dict[tuple[State, type], tuple[BatchCommit, tuple[Effect, ...]]] = {
    (State.WRITING, Written): (at(State.CHECKING), (ev.CheckAlive((SEAL,)),)),
    (State.WRITING, ev.TasksFailed): (
        BatchCommit(State.ABORTING, None, "boom"),
        (AbortBatch("boom"),),
    ),
    (State.CHECKING, ev.AllAlive): (at(State.DECIDING), (ev.RecordDecision((SEAL,)),)),
    (State.CHECKING, ev.NotAlive): (at(State.ABORTING, "old"), (AbortBatch("old"),)),
    (State.DECIDING, ev.DecisionDurable): (at(State.SHOWING), (AwaitVisible(SEAL),)),
    (State.DECIDING, ev.DecisionUnanswered): (at(State.UNKNOWN, "silence"), (ev.AskDecision(),)),
    (State.DECIDING, ev.DecisionRefused): (at(State.ABORTING, "fenced"), (AbortBatch("fenced"),)),
    (State.UNKNOWN, ev.DecisionDurable): (at(State.SHOWING), (AwaitVisible(SEAL),)),
    (State.UNKNOWN, ev.DecisionUnanswered): (at(State.STOPPED, "silence"), (ev.StopUnknown("silence"),)),
    (State.UNKNOWN, ev.DecisionRefused): (at(State.ABORTING, "fenced"), (AbortBatch("fenced"),)),
    (State.SHOWING, Shown): (at(State.DONE), ()),
    (State.ABORTING, ev.AbortFinished): (at(State.ABORTED), ()),
    **{
        (state, ev.StepFailed): (at(State.STOPPED, "no broker"), ())
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
            asked += isinstance(effect, ev.RecordDecision)
            assert not (given_up and isinstance(effect, ev.RecordDecision | ev.AskDecision | AwaitVisible))
            given_up |= isinstance(effect, AbortBatch)
    assert asked <= 1
    assert replace(value).state in State
