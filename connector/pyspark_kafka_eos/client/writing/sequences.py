"""Sequence numbers of one producer epoch on one partition: which batch may be sent, re-sent, or has arrived.

Owns: the assignment of sequences and the order in which batches may be (re-)sent.
Does not know: bytes, sockets, leaders, time, transactions.
Invariants:
- A batch's sequence is assigned once and never changes (KIP-360, simplified error handling, 1).
- At most `MAX_IN_FLIGHT` batches await an answer; while none of the epoch's was acknowledged, one. A leader that does
  not know the producer takes any sequence as its first: the second batch, where the first one got a retriable error.
- A batch that is being re-sent is the oldest, and it is alone in flight.
- After a rejection nothing more is sent.
- Where several tasks write in turn (scope=batch), one continues only when none of its own batches is on its way.
Sources: KIP-98; the idempotent producer's sections 5.2 (sequence numbers), 5.4 (drain) and 6 (in flight, order).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from kafka_core.errors import IllegalMove
from kafka_core.table import Move, Moves, step

MAX_IN_FLIGHT = 5
"""The broker remembers the last five batches of a producer per partition to recognise a duplicate. A sixth in flight
could push the oldest out of that memory, and its re-sending would be taken for a gap. Half only waits more often."""

SEQUENCE_LIMIT = 2**31
"""Sequences are int32 and start again at 0 after 2^31 - 1."""


class SequencesState(Enum):
    """How the partition's batches stand."""

    IDLE = "everything enqueued is acknowledged"
    SENDING = "batches wait or are in flight, none has failed"
    RETRYING = "a batch got no definite answer: only the oldest may be sent, alone"
    REJECTED = "a batch can never be written under this epoch"


@dataclass(frozen=True)
class Batch:
    """A batch by its sequences; `token` is the shell's name for its bytes."""

    token: int
    base_sequence: int
    count: int
    attempts: int = 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the batch's last record; smaller than the first where the numbers wrap."""
        return (self.base_sequence + self.count - 1) % SEQUENCE_LIMIT


# ---- events


@dataclass(frozen=True)
class Enqueue:
    """A closed batch of `count` records is to be written after everything enqueued before."""

    token: int
    count: int


@dataclass(frozen=True)
class Resume:
    """Other tasks have written under this epoch since, in turn; batches enqueued from now on follow theirs."""

    next_sequence: int


@dataclass(frozen=True)
class SendNext:
    """The connection has room: which batch may go?"""


@dataclass(frozen=True)
class Acknowledged:
    """The broker has the batch, now or from an earlier send;
    `offset` is -1 where the broker no longer has it."""

    base_sequence: int
    offset: int


@dataclass(frozen=True)
class NotDelivered:
    """No definite answer, or one that asks for another try: the batch may or may not have been written."""

    base_sequence: int
    reason: str


@dataclass(frozen=True)
class OutOfOrder:
    """The broker expected another sequence (OUT_OF_ORDER_SEQUENCE_NUMBER)."""

    base_sequence: int


@dataclass(frozen=True)
class Rejected:
    """The broker will never take this batch under this epoch."""

    base_sequence: int
    reason: str


Event = Enqueue | Resume | SendNext | Acknowledged | NotDelivered | OutOfOrder | Rejected

# ---- effects


@dataclass(frozen=True)
class Stamp:
    """Put this sequence on the batch's bytes. Happens once per batch."""

    token: int
    base_sequence: int


@dataclass(frozen=True)
class Transmit:
    """Send the batch's bytes, as they are."""

    token: int
    base_sequence: int
    attempt: int


@dataclass(frozen=True)
class Release:
    """The batch has arrived; its bytes are no longer needed."""

    token: int


@dataclass(frozen=True)
class GiveUp:
    """Nothing more can be written to this partition under this epoch; the transaction can only be aborted."""

    reason: str


Effect = Stamp | Transmit | Release | GiveUp


@dataclass(frozen=True)
class Sequences:
    """One partition under one (producer id, epoch). `waiting` and `in_flight` are in the order of their sequences.

    `first_offset` is where sequence 0 was written (-1 while unknown), `acknowledged` counts records that
    arrived. Where several tasks write in turn, both cover only what was written here.
    """

    state: SequencesState = SequencesState.IDLE
    next_sequence: int = 0
    waiting: tuple[Batch, ...] = ()
    in_flight: tuple[Batch, ...] = ()
    first_offset: int = -1
    acknowledged: int = 0
    reason: str = ""

    @property
    def last_sequence(self) -> int:
        """The last sequence assigned, -1 before the first."""
        return (self.next_sequence - 1) % SEQUENCE_LIMIT if self.acknowledged or self.unacknowledged else -1

    @property
    def unacknowledged(self) -> int:
        """Batches that have not arrived."""
        return len(self.waiting) + len(self.in_flight)

    def handle(self, event: Event) -> tuple[Sequences, tuple[Effect, ...]]:
        """The next value and what the shell has to do; IllegalMove, with nothing changed, for an impossible event."""
        return step(MOVES, self, event, "sequences")


Step = tuple[Sequences, tuple[Effect, ...]]


def _oldest(value: Sequences) -> Batch:
    # Both queues are in sequence order and a re-queued batch may be older than one still in flight.
    heads = [queue[0] for queue in (value.in_flight, value.waiting) if queue]
    return min(heads, key=lambda batch: (batch.base_sequence - _floor(value)) % SEQUENCE_LIMIT)


def _first_is_on_its_way(value: Sequences) -> bool:
    # Sequence 0 comes again after a whole round. Behind other tasks' batches (`Resume`) the first one here has another
    # sequence.
    return not value.acknowledged and any(batch.base_sequence == 0 for batch in value.in_flight)


def _floor(value: Sequences) -> int:
    # Everything unacknowledged lies in the half circle below next_sequence, so distances from here order it.
    return (value.next_sequence - SEQUENCE_LIMIT // 2) % SEQUENCE_LIMIT


def _take_out(value: Sequences, base_sequence: int) -> tuple[Batch, tuple[Batch, ...]]:
    for index, batch in enumerate(value.in_flight):
        if batch.base_sequence == base_sequence:
            return batch, value.in_flight[:index] + value.in_flight[index + 1 :]
    raise IllegalMove(
        "sequences: an answer for a batch that is not in flight; nothing has changed",
        {"base_sequence": base_sequence},
    )


def _requeue(value: Sequences, batch: Batch) -> tuple[Batch, ...]:
    floor = _floor(value)
    both = (*value.waiting, batch)
    return tuple(sorted(both, key=lambda each: (each.base_sequence - floor) % SEQUENCE_LIMIT))


def on_enqueue(value: Sequences, event: Enqueue) -> Step:
    """Assign the next sequences, once and permanently, and queue the batch."""
    batch = Batch(event.token, value.next_sequence, event.count)
    following = (value.next_sequence + event.count) % SEQUENCE_LIMIT
    state = SequencesState.SENDING if value.state is SequencesState.IDLE else value.state
    after = replace(value, state=state, next_sequence=following, waiting=(*value.waiting, batch))
    return after, (Stamp(batch.token, batch.base_sequence),)


def on_resume(value: Sequences, event: Resume) -> Step:
    """Continue where the others ended. Only with nothing on its way: a re-sent batch must not meet theirs."""
    return replace(value, next_sequence=event.next_sequence), ()


def on_send_next(value: Sequences, event: SendNext) -> Step:
    """Send the next batch while fewer than five are in flight, and none before the epoch's first batch is
    acknowledged.
    """
    if not value.waiting or len(value.in_flight) >= MAX_IN_FLIGHT or _first_is_on_its_way(value):
        return value, ()
    return _transmit(value)


def on_send_next_alone(value: Sequences, event: SendNext) -> Step:
    """Re-send the oldest, and nothing beside it: later batches would only be refused as out of order."""
    if value.in_flight:
        return value, ()
    return _transmit(value)


def _transmit(value: Sequences) -> Step:
    batch = replace(value.waiting[0], attempts=value.waiting[0].attempts + 1)
    after = replace(value, waiting=value.waiting[1:], in_flight=(*value.in_flight, batch))
    return after, (Transmit(batch.token, batch.base_sequence, batch.attempts),)


def on_acknowledged(value: Sequences, event: Acknowledged) -> Step:
    """The batch is written: forget its bytes. Re-sending is over when all that follows was never sent before."""
    batch, rest = _take_out(value, event.base_sequence)
    # Sequence 0 comes again after a whole round; that one is not at the beginning.
    at_start = batch.base_sequence == 0 and value.acknowledged < SEQUENCE_LIMIT // 2
    first = event.offset if at_start else value.first_offset
    after = replace(value, in_flight=rest, acknowledged=value.acknowledged + batch.count, first_offset=first)
    if not after.unacknowledged:
        after = replace(after, state=SequencesState.IDLE)
    elif value.state is SequencesState.RETRYING and not any(
        each.attempts for each in (*after.waiting, *after.in_flight)
    ):
        after = replace(after, state=SequencesState.SENDING)
    return after, (Release(batch.token),)


def on_not_delivered(value: Sequences, event: NotDelivered) -> Step:
    """Queue the batch again where its sequence belongs; from now on only the oldest is sent."""
    batch, rest = _take_out(value, event.base_sequence)
    return replace(value, state=SequencesState.RETRYING, in_flight=rest, waiting=_requeue(value, batch)), ()


def on_out_of_order(value: Sequences, event: OutOfOrder) -> Step:
    """Behind a batch that is being re-sent this is expected; for the oldest it means records are missing."""
    if _oldest(value).base_sequence != event.base_sequence:
        return on_not_delivered(value, NotDelivered(event.base_sequence, "an earlier batch is being re-sent"))
    return on_rejected(value, Rejected(event.base_sequence, "OUT_OF_ORDER_SEQUENCE_NUMBER for the oldest batch"))


def on_rejected(value: Sequences, event: Rejected) -> Step:
    """All later batches of the partition fail with it (KIP-360, simplified error handling, 2)."""
    _take_out(value, event.base_sequence)
    return replace(value, state=SequencesState.REJECTED, reason=event.reason), (GiveUp(event.reason),)


def ignore(value: Sequences, event: Event) -> Step:
    """Nothing to do, and nothing wrong."""
    return value, ()


MOVES: Moves[SequencesState] = {
    (SequencesState.IDLE, Enqueue): Move(on_enqueue, SequencesState.SENDING),
    (SequencesState.IDLE, Resume): Move(on_resume, SequencesState.IDLE),
    (SequencesState.IDLE, SendNext): Move(ignore, SequencesState.IDLE),
    (SequencesState.SENDING, Enqueue): Move(on_enqueue, SequencesState.SENDING),
    (SequencesState.SENDING, SendNext): Move(on_send_next, SequencesState.SENDING),
    (SequencesState.SENDING, Acknowledged): Move(on_acknowledged, SequencesState.SENDING, SequencesState.IDLE),
    (SequencesState.SENDING, NotDelivered): Move(on_not_delivered, SequencesState.RETRYING),
    (SequencesState.SENDING, OutOfOrder): Move(on_out_of_order, SequencesState.REJECTED, SequencesState.RETRYING),
    (SequencesState.SENDING, Rejected): Move(on_rejected, SequencesState.REJECTED),
    (SequencesState.RETRYING, Enqueue): Move(on_enqueue, SequencesState.RETRYING),
    (SequencesState.RETRYING, SendNext): Move(on_send_next_alone, SequencesState.RETRYING),
    (SequencesState.RETRYING, Acknowledged): Move(
        on_acknowledged, SequencesState.RETRYING, SequencesState.IDLE, SequencesState.SENDING
    ),
    (SequencesState.RETRYING, NotDelivered): Move(on_not_delivered, SequencesState.RETRYING),
    (SequencesState.RETRYING, OutOfOrder): Move(on_out_of_order, SequencesState.RETRYING, SequencesState.REJECTED),
    (SequencesState.RETRYING, Rejected): Move(on_rejected, SequencesState.REJECTED),
    # Answers that were on their way when the rejection came.
    (SequencesState.REJECTED, SendNext): Move(ignore, SequencesState.REJECTED),
    (SequencesState.REJECTED, Acknowledged): Move(ignore, SequencesState.REJECTED),
    (SequencesState.REJECTED, NotDelivered): Move(ignore, SequencesState.REJECTED),
    (SequencesState.REJECTED, OutOfOrder): Move(ignore, SequencesState.REJECTED),
    (SequencesState.REJECTED, Rejected): Move(ignore, SequencesState.REJECTED),
}

Handler = Callable[[Sequences, Event], Step]
