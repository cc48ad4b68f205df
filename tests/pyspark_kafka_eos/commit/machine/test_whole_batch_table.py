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
    BatchCommitState,
    Effect,
    Event,
    Shown,
    Written,
)
from pyspark_kafka_eos.model import Seal
from tests.support.tables import CaseTests, Table

SEAL = Seal("pipe:batch", 0, ProducerIdentity(7, 3), 2, records=10)
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


def at(state: BatchCommitState, reason: str = "") -> BatchCommit:
    return BatchCommit(state, None if state is BatchCommitState.WRITING else SEAL, reason)


EXPECTED: dict[tuple[BatchCommitState, type], tuple[BatchCommit, tuple[Effect, ...]]] = {
    (BatchCommitState.WRITING, Written): (at(BatchCommitState.CHECKING), (ev.CheckAlive((SEAL,)),)),
    (BatchCommitState.WRITING, ev.TasksFailed): (
        BatchCommit(BatchCommitState.ABORTING, None, "boom"),
        (AbortBatch("boom"),),
    ),
    (BatchCommitState.CHECKING, ev.AllAlive): (at(BatchCommitState.DECIDING), (ev.RecordDecision((SEAL,)),)),
    (BatchCommitState.CHECKING, ev.NotAlive): (at(BatchCommitState.ABORTING, "old"), (AbortBatch("old"),)),
    (BatchCommitState.DECIDING, ev.DecisionDurable): (at(BatchCommitState.SHOWING), (AwaitVisible(SEAL),)),
    (BatchCommitState.DECIDING, ev.DecisionUnanswered): (at(BatchCommitState.UNKNOWN, "silence"), (ev.AskDecision(),)),
    (BatchCommitState.DECIDING, ev.DecisionRefused): (at(BatchCommitState.ABORTING, "fenced"), (AbortBatch("fenced"),)),
    (BatchCommitState.UNKNOWN, ev.DecisionDurable): (at(BatchCommitState.SHOWING), (AwaitVisible(SEAL),)),
    (BatchCommitState.UNKNOWN, ev.DecisionUnanswered): (
        at(BatchCommitState.STOPPED, "silence"),
        (ev.StopUnknown("silence"),),
    ),
    (BatchCommitState.UNKNOWN, ev.DecisionRefused): (at(BatchCommitState.ABORTING, "fenced"), (AbortBatch("fenced"),)),
    (BatchCommitState.SHOWING, Shown): (at(BatchCommitState.DONE), ()),
    (BatchCommitState.ABORTING, ev.AbortFinished): (at(BatchCommitState.ABORTED), ()),
    **{
        (state, ev.StepFailed): (at(BatchCommitState.STOPPED, "no broker"), ())
        for state in (
            BatchCommitState.CHECKING,
            BatchCommitState.DECIDING,
            BatchCommitState.UNKNOWN,
            BatchCommitState.SHOWING,
            BatchCommitState.ABORTING,
        )
    },
}


class TestTheTable(CaseTests):
    """Of a commit in one transaction."""

    table = Table(
        "batch commit",
        MOVES,
        BatchCommitState,
        Event,
        EVENTS,
        {state: at(state) for state in BatchCommitState},
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
    assert replace(value).state in BatchCommitState
