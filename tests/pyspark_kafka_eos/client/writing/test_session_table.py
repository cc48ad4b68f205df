"""Every (state, event) pair of the producer session: where it leads, or that it is refused and nothing has changed."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from kafka_core.errors import IllegalMove
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.writing import producer as producer_shell
from pyspark_kafka_eos.client.writing.session import (
    MOVES,
    AbortRequested,
    Begin,
    CommitRequested,
    Effect,
    Ended,
    EndNotSent,
    EndUnanswered,
    Event,
    Fenced,
    Initialize,
    Initialized,
    Joined,
    Need,
    NeedOffsets,
    PartitionsAdded,
    Proven,
    SealRequested,
    SendAddPartitions,
    SendEndTxn,
    SendInitProducerId,
    SendOffsets,
    Session,
    SessionFailed,
    State,
    TransactionFailed,
)
from tests.support.tables import CaseTests, Table

ME = ProducerIdentity(7, 3)
NEXT = ProducerIdentity(7, 4)
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
ONE, OTHER, BOTH = frozenset((P0,)), frozenset((P1,)), frozenset((P0, P1))


def session(state: State, version: int = 1, **changes: object) -> Session:
    return replace(Session(version, state, ME), **changes)  # type: ignore[arg-type]


def written(state: State, version: int = 1, **changes: object) -> Session:
    return session(state, version, **{"added": ONE, **changes})


NEW = Session(1)
VALUES: dict[State, Session] = {
    State.UNINITIALIZED: NEW,
    State.INITIALIZING: Session(1, State.INITIALIZING),
    State.READY: session(State.READY),
    **{state: written(state) for state in State if state not in (State.UNINITIALIZED, State.INITIALIZING, State.READY)},
}
EVENTS: dict[type, Event] = {
    Initialize: Initialize(),
    Initialized: Initialized(NEXT),
    Joined: Joined(NEXT),
    Begin: Begin(),
    Need: Need(ONE),
    PartitionsAdded: PartitionsAdded(ONE),
    NeedOffsets: NeedOffsets("group"),
    SealRequested: SealRequested(0),
    CommitRequested: CommitRequested(0),
    AbortRequested: AbortRequested(),
    Ended: Ended(None),
    EndUnanswered: EndUnanswered("silence"),
    EndNotSent: EndNotSent("acl"),
    Proven: Proven(True),
    TransactionFailed: TransactionFailed("no"),
    Fenced: Fenced("newer"),
    SessionFailed: SessionFailed("acl"),
}

Case = tuple[Session, Event, Session, tuple[Effect, ...]]

IN = written(State.IN_TRANSACTION)
SEALED = written(State.SEALED)
SPENT = session(State.UNINITIALIZED)
LIVE = [state for state in State if state not in (State.UNINITIALIZED, State.FENCED, State.FATAL)]
LATE: tuple[Event, ...] = (
    PartitionsAdded(OTHER),
    TransactionFailed("no"),
    Fenced("newer"),
    SessionFailed("acl"),
    EndUnanswered("silence"),
)

EXPECTED: dict[tuple[State, type], list[Case]] = {
    (State.UNINITIALIZED, Initialize): [
        (NEW, Initialize(), Session(1, State.INITIALIZING), (SendInitProducerId(None),)),
        (SPENT, Initialize(), session(State.INITIALIZING), (SendInitProducerId(ME),)),
    ],
    (State.UNINITIALIZED, Joined): [(NEW, Joined(ME), session(State.READY), ())],
    (State.INITIALIZING, Initialized): [
        (Session(1, State.INITIALIZING), Initialized(ME), session(State.READY), ()),
        (
            written(State.INITIALIZING, groups=frozenset(("g",)), reason="old"),
            Initialized(NEXT),
            session(State.READY, identity=NEXT),
            (),
        ),
    ],
    (State.READY, Initialize): [
        (session(State.READY), Initialize(), session(State.INITIALIZING), (SendInitProducerId(ME),)),
    ],
    (State.READY, Begin): [(session(State.READY), Begin(), session(State.IN_TRANSACTION), ())],
    (State.IN_TRANSACTION, Need): [
        (
            session(State.IN_TRANSACTION),
            Need(BOTH),
            session(State.IN_TRANSACTION, adding=BOTH),
            (SendAddPartitions(BOTH),),
        ),
        (IN, Need(ONE), IN, ()),
        (IN, Need(BOTH), replace(IN, adding=OTHER), (SendAddPartitions(OTHER),)),
        (replace(IN, adding=OTHER), Need(OTHER), replace(IN, adding=OTHER), ()),
        (
            session(State.IN_TRANSACTION, 2),
            Need(BOTH),
            session(State.IN_TRANSACTION, 2, added=BOTH),
            (),
        ),
    ],
    (State.IN_TRANSACTION, PartitionsAdded): [
        (replace(IN, adding=OTHER), PartitionsAdded(OTHER), replace(IN, added=BOTH), ()),
    ],
    (State.IN_TRANSACTION, NeedOffsets): [
        (IN, NeedOffsets("g"), replace(IN, groups=frozenset(("g",))), (SendOffsets("g"),)),
    ],
    (State.IN_TRANSACTION, SealRequested): [(IN, SealRequested(0), SEALED, ())],
    (State.IN_TRANSACTION, CommitRequested): [
        (IN, CommitRequested(0), written(State.COMMITTING), (SendEndTxn(True),)),
        (session(State.IN_TRANSACTION), CommitRequested(0), session(State.READY), ()),
    ],
    (State.IN_TRANSACTION, AbortRequested): [
        (IN, AbortRequested(), written(State.ABORTING), (SendEndTxn(False),)),
        (session(State.IN_TRANSACTION), AbortRequested(), session(State.READY), ()),
        (
            session(State.IN_TRANSACTION, adding=ONE),
            AbortRequested(),
            session(State.ABORTING, adding=ONE),
            (SendEndTxn(False),),
        ),
    ],
    (State.IN_TRANSACTION, TransactionFailed): [
        (IN, TransactionFailed("no"), written(State.ABORTABLE_ERROR, reason="no"), ()),
    ],
    (State.SEALED, CommitRequested): [
        (SEALED, CommitRequested(0), written(State.COMMITTING), (SendEndTxn(True),)),
        (session(State.SEALED), CommitRequested(0), session(State.READY), ()),
    ],
    (State.SEALED, AbortRequested): [
        (SEALED, AbortRequested(), written(State.ABORTING), (SendEndTxn(False),)),
        (session(State.SEALED), AbortRequested(), session(State.READY), ()),
    ],
    (State.SEALED, TransactionFailed): [
        (SEALED, TransactionFailed("no"), written(State.ABORTABLE_ERROR, reason="no"), ()),
    ],
    (State.COMMITTING, Ended): [
        (written(State.COMMITTING), Ended(None), SPENT, ()),
        (written(State.COMMITTING, 2), Ended(NEXT), session(State.READY, 2, identity=NEXT), ()),
        (written(State.COMMITTING, 2), Ended(ME), session(State.UNINITIALIZED, 2), ()),
    ],
    (State.COMMITTING, EndUnanswered): [
        (
            written(State.COMMITTING),
            EndUnanswered("silence"),
            written(State.OUTCOME_UNKNOWN, reason="silence"),
            (),
        ),
    ],
    (State.COMMITTING, EndNotSent): [
        (
            written(State.COMMITTING),
            EndNotSent("acl"),
            written(State.ABORTABLE_ERROR, reason="acl"),
            (),
        ),
    ],
    (State.ABORTING, Ended): [
        (written(State.ABORTING), Ended(None), SPENT, ()),
        (written(State.ABORTING, 2), Ended(NEXT), session(State.READY, 2, identity=NEXT), ()),
    ],
    (State.ABORTING, EndUnanswered): [(written(State.ABORTING), EndUnanswered("silence"), SPENT, ())],
    (State.OUTCOME_UNKNOWN, Ended): [
        (written(State.OUTCOME_UNKNOWN), Ended(None), SPENT, ()),
        (written(State.OUTCOME_UNKNOWN, 2), Ended(NEXT), session(State.READY, 2, identity=NEXT), ()),
    ],
    (State.OUTCOME_UNKNOWN, EndUnanswered): [
        (
            written(State.OUTCOME_UNKNOWN),
            EndUnanswered("again"),
            written(State.OUTCOME_UNKNOWN, reason="again"),
            (),
        ),
    ],
    (State.OUTCOME_UNKNOWN, Proven): [
        (written(State.OUTCOME_UNKNOWN), Proven(True), SPENT, ()),
        (written(State.OUTCOME_UNKNOWN), Proven(False), SPENT, ()),
    ],
    (State.ABORTABLE_ERROR, AbortRequested): [
        (
            written(State.ABORTABLE_ERROR, reason="no"),
            AbortRequested(),
            written(State.ABORTING, reason="no"),
            (SendEndTxn(False),),
        ),
        (session(State.ABORTABLE_ERROR, reason="no"), AbortRequested(), session(State.READY), ()),
    ],
    (State.ABORTABLE_ERROR, PartitionsAdded): [
        (written(State.ABORTABLE_ERROR), PartitionsAdded(OTHER), written(State.ABORTABLE_ERROR), ()),
    ],
    (State.ABORTABLE_ERROR, TransactionFailed): [
        (
            written(State.ABORTABLE_ERROR, reason="1"),
            TransactionFailed("2"),
            written(State.ABORTABLE_ERROR, reason="1"),
            (),
        ),
    ],
    **{
        (state, Fenced): [
            (VALUES[state], Fenced("newer"), replace(VALUES[state], state=State.FENCED, reason="newer"), ())
        ]
        for state in LIVE
    },
    **{
        (state, SessionFailed): [
            (VALUES[state], SessionFailed("acl"), replace(VALUES[state], state=State.FATAL, reason="acl"), ())
        ]
        for state in LIVE
    },
    **{
        (state, type(late)): [(VALUES[state], late, VALUES[state], ())]
        for state in (State.FENCED, State.FATAL)
        for late in LATE
    },
}


class TestTheTable(CaseTests):
    """Of a transactional producer's session."""

    table = Table("producer", MOVES, State, Event, EVENTS, VALUES, EXPECTED)


@pytest.mark.parametrize("before", [IN, SEALED], ids=["IN_TRANSACTION", "SEALED"])
@pytest.mark.parametrize("event", [SealRequested(1), CommitRequested(1)], ids=["SealRequested", "CommitRequested"])
def test_neither_a_seal_nor_a_commit_with_unacknowledged_batches(before: Session, event: Event) -> None:
    untouched = copy.deepcopy(before)
    with pytest.raises(IllegalMove):
        before.handle(event)
    assert before == untouched


def test_every_effect_is_given_by_a_move_and_carried_out_by_the_session() -> None:
    given = {type(effect) for _, (_, _, _, effects) in TestTheTable.table.allowed for effect in effects}
    shell = Path(producer_shell.__file__).read_text(encoding="utf-8")

    assert given == set(get_args(Effect))
    assert [kind.__name__ for kind in get_args(Effect) if f"pm.{kind.__name__})" not in shell] == []


def test_only_the_ends_have_no_way_out() -> None:
    left = {
        before.state
        for before, _, after, _ in (case for _, case in TestTheTable.table.allowed)
        if after.state is not before.state
    }
    assert set(State) - left == {State.FENCED, State.FATAL}
