"""Every (state, event) pair of the sequence machine: where it leads, or that it is refused and nothing has changed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from kafka_core.errors import IllegalMove
from pyspark_kafka_eos.client.writing.sequences import (
    MOVES,
    Acknowledged,
    Batch,
    Effect,
    Enqueue,
    Event,
    GiveUp,
    NotDelivered,
    OutOfOrder,
    Rejected,
    Release,
    Resume,
    SendNext,
    Sequences,
    SequencesState,
    Stamp,
    Transmit,
)
from tests.support.tables import CaseTests, Table

# Three batches of two records each, as they stand when they wait (sent before or never) and when they are in flight.
NEW = [Batch(n, 2 * n, 2, attempts=0) for n in range(8)]
SENT = [Batch(n, 2 * n, 2, attempts=1) for n in range(8)]
AGAIN = [Batch(n, 2 * n, 2, attempts=2) for n in range(8)]

IDLE = Sequences()
SENDING = Sequences(SequencesState.SENDING, next_sequence=6, waiting=(NEW[2],), in_flight=(SENT[0], SENT[1]))
KNOWN = replace(SENDING, in_flight=(SENT[1],), acknowledged=2, first_offset=0)
FULL = Sequences(SequencesState.SENDING, next_sequence=12, waiting=(NEW[5],), in_flight=tuple(SENT[:5]))
LAST = Sequences(SequencesState.SENDING, next_sequence=2, in_flight=(SENT[0],))
RETRYING = Sequences(SequencesState.RETRYING, next_sequence=6, waiting=(SENT[0], NEW[2]), in_flight=(SENT[1],))
ALONE = Sequences(SequencesState.RETRYING, next_sequence=6, waiting=(SENT[1], NEW[2]), in_flight=(AGAIN[0],))
QUIET = Sequences(SequencesState.RETRYING, next_sequence=6, waiting=(SENT[0], SENT[1], NEW[2]))
ONLY_NEW_BEHIND = Sequences(SequencesState.RETRYING, next_sequence=6, waiting=(NEW[1], NEW[2]), in_flight=(AGAIN[0],))
REJECTED = Sequences(
    SequencesState.REJECTED, next_sequence=4, waiting=(NEW[1],), in_flight=(SENT[0],), reason="too large"
)

Case = tuple[Sequences, Event, Sequences, tuple[Effect, ...]]


def retrying(**changes: object) -> Sequences:
    return Sequences(**{"state": SequencesState.RETRYING, "next_sequence": 6, **changes})  # type: ignore[arg-type]


EXPECTED: dict[tuple[SequencesState, type], list[Case]] = {
    (SequencesState.IDLE, Enqueue): [
        (
            IDLE,
            Enqueue(0, 2),
            Sequences(SequencesState.SENDING, next_sequence=2, waiting=(NEW[0],)),
            (Stamp(0, 0),),
        ),
    ],
    (SequencesState.IDLE, SendNext): [(IDLE, SendNext(), IDLE, ())],
    (SequencesState.IDLE, Resume): [
        (IDLE, Resume(40), Sequences(SequencesState.IDLE, next_sequence=40), ()),
        (
            Sequences(next_sequence=8, first_offset=100, acknowledged=8),
            Resume(2),
            Sequences(next_sequence=2, first_offset=100, acknowledged=8),
            (),
        ),
    ],
    (SequencesState.SENDING, Enqueue): [
        (
            SENDING,
            Enqueue(3, 2),
            Sequences(SequencesState.SENDING, 8, waiting=(NEW[2], NEW[3]), in_flight=(SENT[0], SENT[1])),
            (Stamp(3, 6),),
        ),
    ],
    (SequencesState.SENDING, SendNext): [
        (SENDING, SendNext(), SENDING, ()),
        (KNOWN, SendNext(), replace(KNOWN, waiting=(), in_flight=(SENT[1], SENT[2])), (Transmit(2, 4, 1),)),
        (FULL, SendNext(), FULL, ()),
        (LAST, SendNext(), LAST, ()),
    ],
    (SequencesState.SENDING, Acknowledged): [
        (
            SENDING,
            Acknowledged(0, 100),
            Sequences(SequencesState.SENDING, 6, (NEW[2],), (SENT[1],), first_offset=100, acknowledged=2),
            (Release(0),),
        ),
        (LAST, Acknowledged(0, 7), Sequences(SequencesState.IDLE, 2, first_offset=7, acknowledged=2), (Release(0),)),
    ],
    (SequencesState.SENDING, NotDelivered): [
        (SENDING, NotDelivered(0, "lost"), RETRYING, ()),
    ],
    (SequencesState.SENDING, OutOfOrder): [
        (SENDING, OutOfOrder(2), retrying(waiting=(SENT[1], NEW[2]), in_flight=(SENT[0],)), ()),
        (
            SENDING,
            OutOfOrder(0),
            Sequences(
                SequencesState.REJECTED,
                6,
                (NEW[2],),
                (SENT[0], SENT[1]),
                reason="OUT_OF_ORDER_SEQUENCE_NUMBER for the oldest batch",
            ),
            (GiveUp("OUT_OF_ORDER_SEQUENCE_NUMBER for the oldest batch"),),
        ),
    ],
    (SequencesState.SENDING, Rejected): [
        (
            SENDING,
            Rejected(2, "too large"),
            Sequences(SequencesState.REJECTED, 6, (NEW[2],), (SENT[0], SENT[1]), reason="too large"),
            (GiveUp("too large"),),
        ),
    ],
    (SequencesState.RETRYING, Enqueue): [
        (
            RETRYING,
            Enqueue(3, 2),
            retrying(next_sequence=8, waiting=(SENT[0], NEW[2], NEW[3]), in_flight=(SENT[1],)),
            (Stamp(3, 6),),
        ),
    ],
    (SequencesState.RETRYING, SendNext): [
        (RETRYING, SendNext(), RETRYING, ()),
        (QUIET, SendNext(), ALONE, (Transmit(0, 0, 2),)),
        (ALONE, SendNext(), ALONE, ()),
    ],
    (SequencesState.RETRYING, Acknowledged): [
        (
            ALONE,
            Acknowledged(0, 50),
            retrying(waiting=(SENT[1], NEW[2]), first_offset=50, acknowledged=2),
            (Release(0),),
        ),
        (
            ONLY_NEW_BEHIND,
            Acknowledged(0, 50),
            Sequences(SequencesState.SENDING, 6, waiting=(NEW[1], NEW[2]), first_offset=50, acknowledged=2),
            (Release(0),),
        ),
        (
            retrying(next_sequence=2, in_flight=(AGAIN[0],)),
            Acknowledged(0, -1),
            Sequences(SequencesState.IDLE, 2, acknowledged=2),
            (Release(0),),
        ),
    ],
    (SequencesState.RETRYING, NotDelivered): [
        (RETRYING, NotDelivered(2, "lost"), QUIET, ()),
        (ALONE, NotDelivered(0, "lost"), retrying(waiting=(AGAIN[0], SENT[1], NEW[2])), ()),
    ],
    (SequencesState.RETRYING, OutOfOrder): [
        (RETRYING, OutOfOrder(2), QUIET, ()),
        (
            ALONE,
            OutOfOrder(0),
            Sequences(
                SequencesState.REJECTED,
                6,
                (SENT[1], NEW[2]),
                (AGAIN[0],),
                reason="OUT_OF_ORDER_SEQUENCE_NUMBER for the oldest batch",
            ),
            (GiveUp("OUT_OF_ORDER_SEQUENCE_NUMBER for the oldest batch"),),
        ),
    ],
    (SequencesState.RETRYING, Rejected): [
        (
            RETRYING,
            Rejected(2, "fenced"),
            Sequences(SequencesState.REJECTED, 6, (SENT[0], NEW[2]), (SENT[1],), reason="fenced"),
            (GiveUp("fenced"),),
        ),
    ],
    (SequencesState.REJECTED, SendNext): [(REJECTED, SendNext(), REJECTED, ())],
    (SequencesState.REJECTED, Acknowledged): [(REJECTED, Acknowledged(0, 1), REJECTED, ())],
    (SequencesState.REJECTED, NotDelivered): [(REJECTED, NotDelivered(0, "lost"), REJECTED, ())],
    (SequencesState.REJECTED, OutOfOrder): [(REJECTED, OutOfOrder(0), REJECTED, ())],
    (SequencesState.REJECTED, Rejected): [(REJECTED, Rejected(0, "other"), REJECTED, ())],
}

VALUES = {
    SequencesState.IDLE: IDLE,
    SequencesState.SENDING: SENDING,
    SequencesState.RETRYING: RETRYING,
    SequencesState.REJECTED: REJECTED,
}
EVENTS: dict[type, Event] = {
    Enqueue: Enqueue(9, 1),
    Resume: Resume(40),
    SendNext: SendNext(),
    Acknowledged: Acknowledged(0, 0),
    NotDelivered: NotDelivered(0, "lost"),
    OutOfOrder: OutOfOrder(0),
    Rejected: Rejected(0, "no"),
}


class TestTheTable(CaseTests):
    """Of the sequences of one partition."""

    table = Table("sequences", MOVES, SequencesState, Event, EVENTS, VALUES, EXPECTED)


@pytest.mark.parametrize("event", [Acknowledged(4, 0), NotDelivered(4, "lost"), Rejected(4, "no"), OutOfOrder(4)])
def test_an_answer_for_a_batch_that_is_not_in_flight_is_refused(event: Event) -> None:
    untouched = copy.deepcopy(SENDING)
    with pytest.raises(IllegalMove, match="not in flight"):
        SENDING.handle(event)
    assert untouched == SENDING
