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
    EndAnswered,
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
    SessionState,
    TransactionFailed,
)
from tests.support.tables import CaseTests, Table

ME = ProducerIdentity(7, 3)
NEXT = ProducerIdentity(7, 4)
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
ONE, OTHER, BOTH = frozenset((P0,)), frozenset((P1,)), frozenset((P0, P1))


def session(state: SessionState, version: int = 1, **changes: object) -> Session:
    return replace(Session(version, state, ME), **changes)  # type: ignore[arg-type]


def written(state: SessionState, version: int = 1, **changes: object) -> Session:
    return session(state, version, **{"added": ONE, **changes})


NEW = Session(1)
VALUES: dict[SessionState, Session] = {
    SessionState.UNINITIALIZED: NEW,
    SessionState.INITIALIZING: Session(1, SessionState.INITIALIZING),
    SessionState.READY: session(SessionState.READY),
    **{
        state: written(state)
        for state in SessionState
        if state not in (SessionState.UNINITIALIZED, SessionState.INITIALIZING, SessionState.READY)
    },
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
    EndAnswered: EndAnswered(None),
    EndUnanswered: EndUnanswered("silence"),
    EndNotSent: EndNotSent("acl"),
    Proven: Proven(True),
    TransactionFailed: TransactionFailed("no"),
    Fenced: Fenced("newer"),
    SessionFailed: SessionFailed("acl"),
}

Case = tuple[Session, Event, Session, tuple[Effect, ...]]

IN = written(SessionState.IN_TRANSACTION)
SEALED = written(SessionState.SEALED)
SPENT = session(SessionState.UNINITIALIZED)
LIVE = [
    state
    for state in SessionState
    if state not in (SessionState.UNINITIALIZED, SessionState.FENCED, SessionState.FATAL)
]
LATE: tuple[Event, ...] = (
    PartitionsAdded(OTHER),
    TransactionFailed("no"),
    Fenced("newer"),
    SessionFailed("acl"),
    EndUnanswered("silence"),
)

EXPECTED: dict[tuple[SessionState, type], list[Case]] = {
    (SessionState.UNINITIALIZED, Initialize): [
        (NEW, Initialize(), Session(1, SessionState.INITIALIZING), (SendInitProducerId(None),)),
        (SPENT, Initialize(), session(SessionState.INITIALIZING), (SendInitProducerId(ME),)),
    ],
    (SessionState.UNINITIALIZED, Joined): [(NEW, Joined(ME), session(SessionState.READY), ())],
    (SessionState.INITIALIZING, Initialized): [
        (Session(1, SessionState.INITIALIZING), Initialized(ME), session(SessionState.READY), ()),
        (
            written(SessionState.INITIALIZING, groups=frozenset(("g",)), reason="old"),
            Initialized(NEXT),
            session(SessionState.READY, identity=NEXT),
            (),
        ),
    ],
    (SessionState.READY, Initialize): [
        (session(SessionState.READY), Initialize(), session(SessionState.INITIALIZING), (SendInitProducerId(ME),)),
    ],
    (SessionState.READY, Begin): [(session(SessionState.READY), Begin(), session(SessionState.IN_TRANSACTION), ())],
    (SessionState.IN_TRANSACTION, Need): [
        (
            session(SessionState.IN_TRANSACTION),
            Need(BOTH),
            session(SessionState.IN_TRANSACTION, adding=BOTH),
            (SendAddPartitions(BOTH),),
        ),
        (IN, Need(ONE), IN, ()),
        (IN, Need(BOTH), replace(IN, adding=OTHER), (SendAddPartitions(OTHER),)),
        (replace(IN, adding=OTHER), Need(OTHER), replace(IN, adding=OTHER), ()),
        (
            session(SessionState.IN_TRANSACTION, 2),
            Need(BOTH),
            session(SessionState.IN_TRANSACTION, 2, added=BOTH),
            (),
        ),
    ],
    (SessionState.IN_TRANSACTION, PartitionsAdded): [
        (replace(IN, adding=OTHER), PartitionsAdded(OTHER), replace(IN, added=BOTH), ()),
    ],
    (SessionState.IN_TRANSACTION, NeedOffsets): [
        (IN, NeedOffsets("g"), replace(IN, groups=frozenset(("g",))), (SendOffsets("g"),)),
    ],
    (SessionState.IN_TRANSACTION, SealRequested): [(IN, SealRequested(0), SEALED, ())],
    (SessionState.IN_TRANSACTION, CommitRequested): [
        (IN, CommitRequested(0), written(SessionState.COMMITTING), (SendEndTxn(True),)),
        (session(SessionState.IN_TRANSACTION), CommitRequested(0), session(SessionState.READY), ()),
    ],
    (SessionState.IN_TRANSACTION, AbortRequested): [
        (IN, AbortRequested(), written(SessionState.ABORTING), (SendEndTxn(False),)),
        (session(SessionState.IN_TRANSACTION), AbortRequested(), session(SessionState.READY), ()),
        (
            session(SessionState.IN_TRANSACTION, adding=ONE),
            AbortRequested(),
            session(SessionState.ABORTING, adding=ONE),
            (SendEndTxn(False),),
        ),
    ],
    (SessionState.IN_TRANSACTION, TransactionFailed): [
        (IN, TransactionFailed("no"), written(SessionState.ABORTABLE_ERROR, reason="no"), ()),
    ],
    (SessionState.SEALED, CommitRequested): [
        (SEALED, CommitRequested(0), written(SessionState.COMMITTING), (SendEndTxn(True),)),
        (session(SessionState.SEALED), CommitRequested(0), session(SessionState.READY), ()),
    ],
    (SessionState.SEALED, AbortRequested): [
        (SEALED, AbortRequested(), written(SessionState.ABORTING), (SendEndTxn(False),)),
        (session(SessionState.SEALED), AbortRequested(), session(SessionState.READY), ()),
    ],
    (SessionState.SEALED, TransactionFailed): [
        (SEALED, TransactionFailed("no"), written(SessionState.ABORTABLE_ERROR, reason="no"), ()),
    ],
    (SessionState.COMMITTING, EndAnswered): [
        (written(SessionState.COMMITTING), EndAnswered(None), SPENT, ()),
        (written(SessionState.COMMITTING, 2), EndAnswered(NEXT), session(SessionState.READY, 2, identity=NEXT), ()),
        (written(SessionState.COMMITTING, 2), EndAnswered(ME), session(SessionState.UNINITIALIZED, 2), ()),
    ],
    (SessionState.COMMITTING, EndUnanswered): [
        (
            written(SessionState.COMMITTING),
            EndUnanswered("silence"),
            written(SessionState.OUTCOME_UNKNOWN, reason="silence"),
            (),
        ),
    ],
    (SessionState.COMMITTING, EndNotSent): [
        (
            written(SessionState.COMMITTING),
            EndNotSent("acl"),
            written(SessionState.ABORTABLE_ERROR, reason="acl"),
            (),
        ),
    ],
    (SessionState.ABORTING, EndAnswered): [
        (written(SessionState.ABORTING), EndAnswered(None), SPENT, ()),
        (written(SessionState.ABORTING, 2), EndAnswered(NEXT), session(SessionState.READY, 2, identity=NEXT), ()),
    ],
    (SessionState.ABORTING, EndUnanswered): [(written(SessionState.ABORTING), EndUnanswered("silence"), SPENT, ())],
    (SessionState.OUTCOME_UNKNOWN, EndAnswered): [
        (written(SessionState.OUTCOME_UNKNOWN), EndAnswered(None), SPENT, ()),
        (
            written(SessionState.OUTCOME_UNKNOWN, 2),
            EndAnswered(NEXT),
            session(SessionState.READY, 2, identity=NEXT),
            (),
        ),
    ],
    (SessionState.OUTCOME_UNKNOWN, EndUnanswered): [
        (
            written(SessionState.OUTCOME_UNKNOWN),
            EndUnanswered("again"),
            written(SessionState.OUTCOME_UNKNOWN, reason="again"),
            (),
        ),
    ],
    (SessionState.OUTCOME_UNKNOWN, Proven): [
        (written(SessionState.OUTCOME_UNKNOWN), Proven(True), SPENT, ()),
        (written(SessionState.OUTCOME_UNKNOWN), Proven(False), SPENT, ()),
    ],
    (SessionState.ABORTABLE_ERROR, AbortRequested): [
        (
            written(SessionState.ABORTABLE_ERROR, reason="no"),
            AbortRequested(),
            written(SessionState.ABORTING, reason="no"),
            (SendEndTxn(False),),
        ),
        (session(SessionState.ABORTABLE_ERROR, reason="no"), AbortRequested(), session(SessionState.READY), ()),
    ],
    (SessionState.ABORTABLE_ERROR, PartitionsAdded): [
        (written(SessionState.ABORTABLE_ERROR), PartitionsAdded(OTHER), written(SessionState.ABORTABLE_ERROR), ()),
    ],
    (SessionState.ABORTABLE_ERROR, TransactionFailed): [
        (
            written(SessionState.ABORTABLE_ERROR, reason="1"),
            TransactionFailed("2"),
            written(SessionState.ABORTABLE_ERROR, reason="1"),
            (),
        ),
    ],
    **{
        (state, Fenced): [
            (VALUES[state], Fenced("newer"), replace(VALUES[state], state=SessionState.FENCED, reason="newer"), ())
        ]
        for state in LIVE
    },
    **{
        (state, SessionFailed): [
            (VALUES[state], SessionFailed("acl"), replace(VALUES[state], state=SessionState.FATAL, reason="acl"), ())
        ]
        for state in LIVE
    },
    **{
        (state, type(late)): [(VALUES[state], late, VALUES[state], ())]
        for state in (SessionState.FENCED, SessionState.FATAL)
        for late in LATE
    },
}


class TestTheTable(CaseTests):
    """Of a transactional producer's session."""

    table = Table("producer", MOVES, SessionState, Event, EVENTS, VALUES, EXPECTED)


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
    assert set(SessionState) - left == {SessionState.FENCED, SessionState.FATAL}
