"""The transaction coordinator's view of one transactional id: every state it can be in and every move between them.

Owns: the current producer, the partitions of its transaction, how that ends, which answers a repeated request gets.
Does not know: the log's form, partitions, sockets, the time of day, where producer ids come from.
Invariants:
- A change is prepared, logged, and only then made (`pending` until then).
- While one change is pending, no other is prepared.
- A decision is never taken back: PREPARE_COMMIT leads to COMPLETE_COMMIT only, PREPARE_ABORT to COMPLETE_ABORT only.
- The epoch never goes down under one producer id.
Sources: KIP-98, KIP-360 (safe epoch bump), KIP-588 (PRODUCER_FENCED), KIP-890 (version 2), KIP-939 (no timeout).
Order of checks and codes are those of Kafka 4.3's coordinator; where 3.9 differs, the handler states it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from embedded_kafka.transactions.machine.ends import EndTxnResult, judge_v1, judge_v2
from embedded_kafka.transactions.machine.events import (
    EPOCH_BUMP_VERSION,
    MAX_EPOCH,
    NO_TIMEOUT_MS,
    Add,
    AnswerIdentity,
    Effect,
    End,
    Event,
    Expire,
    Finish,
    Init,
    Log,
    LogFailed,
    Logged,
    MarkerWritten,
    NeedProducerId,
    RefuseRequest,
    StateLoaded,
    TimeOut,
    TransactionLogEntry,
    TransactionRefusal,
    TransactionState,
    WriteMarkers,
)
from kafka_core.errors import IllegalMove
from kafka_core.table import Move, Moves, step
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity, TopicPartition

_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True)
class Transaction:
    """One transactional id: its entry in the log, and the change that is on its way into the log."""

    transactional_id: str
    current: TransactionLogEntry
    pending: TransactionLogEntry | None = None

    @property
    def state(self) -> TransactionState:
        """The state as of the log."""
        return self.current.state

    def handle(self, event: Event) -> tuple[Transaction, tuple[Effect, ...]]:
        """The next value and what the shell has to do; IllegalMove, with nothing changed, for an impossible event."""
        return step(MOVES, self, event, "transaction")

    def timed_out(self, now_ms: int) -> bool:
        """Whether the open transaction is older than its timeout; never so for a two-phase one."""
        entry = self.current
        return (
            entry.state is TransactionState.ONGOING
            and self.pending is None
            and entry.timeout_ms != NO_TIMEOUT_MS
            and entry.start_ms + entry.timeout_ms < now_ms
        )

    def expired(self, now_ms: int, after_ms: int) -> bool:
        """Whether the id is unused, without a transaction, for that long."""
        return (
            self.pending is None and (self.state, Expire) in MOVES and self.current.last_update_ms <= now_ms - after_ms
        )

    def due_ms(self, after_ms: int) -> int | None:
        """From when on `timed_out` or `expired` (unused for `after_ms`) can be true, if nothing changes; None: never.

        A pending change does not postpone the time, because it may fail.
        """
        entry = self.current
        if entry.state is TransactionState.ONGOING:
            return None if entry.timeout_ms == NO_TIMEOUT_MS else entry.start_ms + entry.timeout_ms + 1
        return entry.last_update_ms + after_ms if (self.state, Expire) in MOVES else None

    def verify(self, identity: ProducerIdentity, partition: TopicPartition) -> TransactionRefusal | None:
        """Whether this producer may write this partition now (KIP-890); a pending change is no obstacle.

        The partition stays part of the transaction until its marker is written.
        """
        entry = self.current
        if identity.producer_id != entry.producer_id:
            return TransactionRefusal.INVALID_PRODUCER_ID_MAPPING
        if identity.epoch != entry.epoch:
            return TransactionRefusal.PRODUCER_FENCED
        if entry.state in _PREPARED:
            return TransactionRefusal.CONCURRENT_TRANSACTIONS
        return None if partition in entry.partitions else TransactionRefusal.TRANSACTION_ABORTABLE


Step = tuple[Transaction, tuple[Effect, ...]]


def _prepare(value: Transaction, **changes: Any) -> Step:
    entry = replace(value.current, previous_producer_id=value.current.producer_id, **changes)
    return replace(value, pending=entry), (Log(entry),)


def _refuse(value: Transaction, refusal: TransactionRefusal, reason: str = "") -> Step:
    return value, (RefuseRequest(refusal, reason or refusal.value),)


def _checked(value: Transaction, identity: ProducerIdentity) -> TransactionRefusal | None:
    if identity.producer_id != value.current.producer_id:
        return TransactionRefusal.INVALID_PRODUCER_ID_MAPPING
    return None if identity.epoch == value.current.epoch else TransactionRefusal.PRODUCER_FENCED


# ---- InitProducerId


def _barred(value: Transaction, event: Init) -> TransactionRefusal | None:
    if value.pending is not None:
        return TransactionRefusal.CONCURRENT_TRANSACTIONS
    entry, expected = value.current, event.expected
    if expected is None or entry.epoch == NO_EPOCH or expected.producer_id == entry.producer_id:
        return None
    # The producer id was exchanged because its epochs ran out, and the answer with the new one may have been lost.
    if expected.producer_id == entry.previous_producer_id and expected.epoch >= MAX_EPOCH - 1:
        return None
    return TransactionRefusal.PRODUCER_FENCED


def on_init(value: Transaction, event: Init) -> Step:
    """Bump the epoch. The current epoch given: it becomes the last one. The last one given: the answer is repeated.
    Any other: fenced. Epochs used up: a new producer id at epoch 0."""
    refusal = _barred(value, event)
    if refusal is not None:
        return _refuse(value, refusal)
    entry, expected = value.current, event.expected
    fresh = {
        "state": TransactionState.EMPTY,
        "timeout_ms": event.timeout_ms,
        "partitions": frozenset(),
        "start_ms": -1,
        "last_update_ms": event.now_ms,
    }
    if expected is None or entry.epoch == NO_EPOCH or expected.epoch == entry.epoch:
        last_epoch = NO_EPOCH if expected is None else entry.epoch
        if not entry.exhausted:
            return _prepare(value, epoch=entry.epoch + 1, last_epoch=last_epoch, **fresh)
        if event.fresh_id is None:
            return value, (NeedProducerId(),)
        return _prepare(value, producer_id=event.fresh_id, epoch=0, last_epoch=last_epoch, **fresh)
    if expected.epoch == entry.last_epoch:
        # No other producer was initialised in between: that would have set the last epoch to -1. (At epoch 32766 Kafka
        # answers UNKNOWN_SERVER_ERROR here: it checks for a used-up epoch before it checks for a repetition.)
        return _prepare(value, **fresh)
    return _refuse(value, TransactionRefusal.PRODUCER_FENCED)


def on_init_while_open(value: Transaction, event: Init) -> Step:
    """Abort the open transaction under a bumped epoch, which no client gets; the client asks again."""
    refusal = _barred(value, event)
    if refusal is not None:
        return _refuse(value, refusal)
    return _fence(value, event.now_ms, event.server_version, event.fresh_id)


def on_init_while_ending(value: Transaction, event: Init) -> Step:
    """Ask again when the markers are written."""
    return _refuse(value, _barred(value, event) or TransactionRefusal.CONCURRENT_TRANSACTIONS)


# ---- AddPartitionsToTxn


def on_add_first(value: Transaction, event: Add) -> Step:
    """The transaction begins, and with it its clock."""
    return _add(value, event, start_ms=event.now_ms)


def on_add_more(value: Transaction, event: Add) -> Step:
    """Add what is not yet part of the transaction; nothing is logged where all is."""
    return _add(value, event, start_ms=value.current.start_ms)


def on_add_while_ending(value: Transaction, event: Add) -> Step:
    """Ask again when the markers are written."""
    # First of all checks since Kafka 4.0: the producer already has the identity of the next transaction,
    # which is not here before the end is complete. (3.9 checks the identity first.)
    refusal = None if value.pending is not None else _checked(value, event.identity)
    return _refuse(value, refusal or TransactionRefusal.CONCURRENT_TRANSACTIONS)


def _add(value: Transaction, event: Add, *, start_ms: int) -> Step:
    if value.pending is not None:
        return _refuse(value, TransactionRefusal.CONCURRENT_TRANSACTIONS)
    refusal = _checked(value, event.identity)
    if refusal is not None:
        return _refuse(value, refusal)
    if value.state is TransactionState.ONGOING and event.partitions <= value.current.partitions:
        return value, (AnswerIdentity(value.current.identity),)
    return _prepare(
        value,
        state=TransactionState.ONGOING,
        partitions=value.current.partitions | event.partitions,
        start_ms=start_ms,
        last_update_ms=event.now_ms,
        version=event.version,
    )


# ---- EndTxn


def on_end(value: Transaction, event: End) -> Step:
    """Decide: the table of ends has the result for this state (`ENDS_V1`, `ENDS_V2`)."""
    bumps = event.version >= EPOCH_BUMP_VERSION
    judge = judge_v2 if bumps else judge_v1
    ends = judge(value.current, event, busy=value.pending is not None)
    if isinstance(ends, TransactionRefusal):
        return _refuse(value, ends)
    if ends is EndTxnResult.PREPARE:
        state = TransactionState.PREPARE_COMMIT if event.commit else TransactionState.PREPARE_ABORT
        if bumps:
            return _prepare_bumped(value, state, event.now_ms, event.fresh_id)
        return _prepare(value, state=state, last_update_ms=event.now_ms, next_producer_id=NO_PRODUCER_ID, version=0)
    if ends is EndTxnResult.REPEATED:
        return value, (AnswerIdentity(value.current.identity),)
    if ends is EndTxnResult.WAIT:
        return _refuse(value, TransactionRefusal.CONCURRENT_TRANSACTIONS)
    what = "commit" if event.commit else "abort"
    return _refuse(value, TransactionRefusal.INVALID_TXN_STATE, f"cannot {what} in state {value.state.kafka_name}")


def _prepare_bumped(value: Transaction, state: TransactionState, now_ms: int, fresh_id: int | None) -> Step:
    entry = value.current
    if entry.exhausted and fresh_id is None:
        return value, (NeedProducerId(),)
    return _prepare(
        value,
        state=state,
        # The markers carry the bumped epoch, so what the old one still sends comes too late (KIP-890).
        epoch=min(entry.epoch + 1, MAX_EPOCH),
        last_epoch=entry.epoch,
        next_producer_id=fresh_id if entry.exhausted else NO_PRODUCER_ID,
        # An abort without a transaction has no start, but a completed entry needs one.
        start_ms=entry.start_ms if entry.state is TransactionState.ONGOING else now_ms,
        last_update_ms=now_ms,
        version=EPOCH_BUMP_VERSION,
    )


def _fence(value: Transaction, now_ms: int, server_version: int, fresh_id: int | None) -> Step:
    # Bumped once: 4.0 and 4.1.0 bumped twice here under version 2 (KAFKA-19367), and KAFKA-20090 gave it a new producer
    # id where the epochs run out.
    if server_version >= EPOCH_BUMP_VERSION:
        return _prepare_bumped(value, TransactionState.PREPARE_ABORT, now_ms, fresh_id)
    return _prepare(
        value,
        state=TransactionState.PREPARE_ABORT,
        epoch=min(value.current.epoch + 1, MAX_EPOCH),
        last_epoch=NO_EPOCH,
        last_update_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
        version=0,
    )


# ---- the sweep


def on_time_out(value: Transaction, event: TimeOut) -> Step:
    """Abort it under a bumped epoch, which fences its owner; nothing where it is not that old after all."""
    if not value.timed_out(event.now_ms):
        return value, ()
    return _fence(value, event.now_ms, event.server_version, event.fresh_id)


def on_expire(value: Transaction, event: Expire) -> Step:
    """Forget the id; nothing where it was used since."""
    if not value.expired(event.now_ms, event.after_ms):
        return value, ()
    return _prepare(value, state=TransactionState.DEAD, partitions=frozenset())


# ---- the log and the markers


def on_logged(value: Transaction, event: Logged) -> Step:
    """The change is made and answered. A decision: its completion is prepared, and the markers go out."""
    entry = value.pending
    if entry is None:
        raise IllegalMove("transaction: nothing was being logged; nothing has changed", {"state": value.state.name})
    after = replace(value, current=entry, pending=None)
    if entry.state in _PREPARED:
        return _complete(after, event.now_ms, resumed=False)
    return after, (AnswerIdentity(entry.identity),)


def on_log_failed(value: Transaction, event: LogFailed) -> Step:
    """The change is not made. Invariant: a completion stays pending, because its decision is in the log."""
    return (value, ()) if value.state in _PREPARED else (replace(value, pending=None), ())


def on_resume(value: Transaction, event: StateLoaded) -> Step:
    """Carry out what was decided before the coordinator went away."""
    return _complete(value, event.now_ms, resumed=True)


def _complete(value: Transaction, now_ms: int, *, resumed: bool) -> Step:
    entry = value.current
    commit = entry.state is TransactionState.PREPARE_COMMIT
    overflows = entry.version >= EPOCH_BUMP_VERSION and entry.next_producer_id != NO_PRODUCER_ID
    completed = replace(
        entry,
        state=TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
        producer_id=entry.next_producer_id if overflows else entry.producer_id,
        epoch=0 if overflows else entry.epoch,
        previous_producer_id=entry.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )
    markers = WriteMarkers(entry.identity, commit, entry.partitions, entry.version, entry.last_update_ms, resumed)
    return replace(value, pending=completed), (AnswerIdentity(completed.identity), markers)


def on_marker_written(value: Transaction, event: MarkerWritten) -> Step:
    """One partition less to wait for."""
    left = value.current.partitions - {event.partition}
    return replace(value, current=replace(value.current, partitions=left)), ()


def on_finish(value: Transaction, event: Finish) -> Step:
    """Every partition has its marker: log the completion. Otherwise the rest is tried again at the next sweep."""
    if value.current.partitions or value.pending is None:
        return value, ()
    return value, (Log(value.pending),)


def on_completed(value: Transaction, event: Logged) -> Step:
    """The next transaction may begin."""
    if value.pending is None:
        raise IllegalMove("transaction: nothing was being logged; nothing has changed", {"state": value.state.name})
    return replace(value, current=value.pending, pending=None), ()


_IDLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

_COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
_BEGUN_OR_FENCED = (TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT)
"""What may have been logged for an id without an open transaction; a fence is logged as an abort (KIP-890)."""
_LOGGED = {
    **dict.fromkeys(_IDLE, _BEGUN_OR_FENCED),
    TransactionState.ONGOING: (
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    ),
}

MOVES: Moves[TransactionState] = {
    **{(state, Init): Move(on_init, state) for state in _IDLE},
    (TransactionState.ONGOING, Init): Move(on_init_while_open, TransactionState.ONGOING),
    **{(state, Init): Move(on_init_while_ending, state) for state in _PREPARED},
    **{(state, Add): Move(on_add_first, state) for state in _IDLE},
    (TransactionState.ONGOING, Add): Move(on_add_more, TransactionState.ONGOING),
    **{(state, Add): Move(on_add_while_ending, state) for state in _PREPARED},
    **{(state, End): Move(on_end, state) for state in (*_IDLE, TransactionState.ONGOING, *_PREPARED)},
    (TransactionState.ONGOING, TimeOut): Move(on_time_out, TransactionState.ONGOING),
    **{(state, Expire): Move(on_expire, state) for state in _IDLE},
    **{(state, Logged): Move(on_logged, *_LOGGED[state]) for state in (*_IDLE, TransactionState.ONGOING)},
    **{(state, Logged): Move(on_completed, _COMPLETED[state]) for state in _PREPARED},
    **{(state, LogFailed): Move(on_log_failed, state) for state in (*_IDLE, TransactionState.ONGOING, *_PREPARED)},
    **{(state, StateLoaded): Move(on_resume, state) for state in _PREPARED},
    **{(state, MarkerWritten): Move(on_marker_written, state) for state in _PREPARED},
    **{(state, Finish): Move(on_finish, state) for state in _PREPARED},
}
