"""Life of one transactional producer session: every state it can be in and every move between them.

Owns: which identity may write, which partitions are in the transaction, and how the transaction ends.
Does not know: sockets, batches, sequences, Spark, the time of day.
Invariants:
- One (producer id, epoch) carries one transaction, so after an end a new identity is needed.
- A transaction into which nothing can have been put is not ended at the coordinator (EndTxn would be refused).
- A partition or group counts as put in before the coordinator is asked to add it.
- An end without an answer is OUTCOME_UNKNOWN, which only a definite answer or a proof leaves.
- No event leaves FENCED or FATAL.
Sources: KIP-98 (the transaction's flow), KIP-360 (epoch bump with the current identity), KIP-890 (transaction version
2).

"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kafka_core.errors import IllegalMove
from kafka_core.table import Move, Moves, step
from kafka_core.values import ProducerIdentity, TopicPartition


class SessionState(Enum):
    """Where the session is."""

    UNINITIALIZED = "no identity, or one that must be renewed"
    INITIALIZING = "InitProducerId is on its way"
    READY = "an identity that has not been used"
    IN_TRANSACTION = "records and offsets may be written"
    SEALED = "everything is acknowledged, the transaction is open, another process ends it"
    COMMITTING = "EndTxn(commit) is on its way"
    ABORTING = "EndTxn(abort) is on its way"
    OUTCOME_UNKNOWN = "EndTxn(commit) got no definite answer"
    ABORTABLE_ERROR = "the transaction can only be aborted"
    FENCED = "a newer owner holds the transactional id"
    FATAL = "this session cannot continue"


# ---- events


@dataclass(frozen=True)
class Initialize:
    """Ask for an identity. A current one is bumped only if no other process bumped it (KIP-360)."""


@dataclass(frozen=True)
class Initialized:
    """The coordinator gave an identity; what was open under the id before is aborted."""

    identity: ProducerIdentity


@dataclass(frozen=True)
class Joined:
    """This process writes under an identity that another one initialised, in a transaction that the other one ends."""

    identity: ProducerIdentity


@dataclass(frozen=True)
class Begin:
    """Start a transaction. Nothing is sent: it opens at the coordinator with its first partition or group."""


@dataclass(frozen=True)
class Need:
    """Records for these partitions are about to be sent."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class PartitionsAdded:
    """AddPartitionsToTxn answered: the coordinator will write markers to these partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class NeedOffsets:
    """Source offsets of this group are about to be sent."""

    group: str


@dataclass(frozen=True)
class SealRequested:
    """Hand the open transaction over. `unacknowledged` batches must be 0."""

    unacknowledged: int


@dataclass(frozen=True)
class CommitRequested:
    """Commit here. `unacknowledged` batches must be 0."""

    unacknowledged: int


@dataclass(frozen=True)
class AbortRequested:
    """Abort here."""


@dataclass(frozen=True)
class EndAnswered:
    """EndTxn answered success. `next_identity` is transaction version 2's fresh epoch, None on version 1."""

    next_identity: ProducerIdentity | None


@dataclass(frozen=True)
class EndUnanswered:
    """EndTxn got no answer, or one that proves nothing."""

    reason: str


@dataclass(frozen=True)
class EndNotSent:
    """EndTxn was refused before it left: the transaction is as it was."""

    reason: str


@dataclass(frozen=True)
class Proven:
    """The log or the coordinator shows how the transaction ended."""

    committed: bool


@dataclass(frozen=True)
class TransactionFailed:
    """An answer means that this transaction can only be aborted."""

    reason: str


@dataclass(frozen=True)
class Fenced:
    """An answer means that a newer owner holds the id."""

    reason: str


@dataclass(frozen=True)
class SessionFailed:
    """An answer means that this session cannot continue (authorisation, protocol violation)."""

    reason: str


Event = (
    Initialize
    | Initialized
    | Joined
    | Begin
    | Need
    | PartitionsAdded
    | NeedOffsets
    | SealRequested
    | CommitRequested
    | AbortRequested
    | EndAnswered
    | EndUnanswered
    | EndNotSent
    | Proven
    | TransactionFailed
    | Fenced
    | SessionFailed
)

# ---- effects


@dataclass(frozen=True)
class SendInitProducerId:
    """InitProducerId, with the current identity where there is one (KIP-360)."""

    current: ProducerIdentity | None


@dataclass(frozen=True)
class SendAddPartitions:
    """AddPartitionsToTxn for partitions that are not yet in the transaction (version 1 only)."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class SendOffsets:
    """The offsets of this group, as part of the transaction."""

    group: str


@dataclass(frozen=True)
class SendEndTxn:
    """EndTxn under the current identity."""

    commit: bool


Effect = SendInitProducerId | SendAddPartitions | SendOffsets | SendEndTxn


_WITHOUT_IDENTITY = frozenset(
    {SessionState.UNINITIALIZED, SessionState.INITIALIZING, SessionState.FENCED, SessionState.FATAL}
)


@dataclass(frozen=True)
class Session:
    """One process's use of one transactional id. Records may be sent for the partitions in `added`, and no others."""

    transaction_version: int
    state: SessionState = SessionState.UNINITIALIZED
    identity: ProducerIdentity | None = None
    adding: frozenset[TopicPartition] = frozenset()
    added: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    reason: str = ""

    @property
    def opened(self) -> bool:
        """Whether anything was put, or may have been put, into the transaction, so that the coordinator may have it
        open.
        """
        return bool(self.adding or self.added or self.groups)

    def handle(self, event: Event) -> tuple[Session, tuple[Effect, ...]]:
        """The next value and what the shell has to do; IllegalMove, with nothing changed, for an impossible event."""
        return step(MOVES, self, event, "producer")

    def broken_invariant(self) -> str:
        """See `table.Validated`."""
        if self.identity is None and self.state not in _WITHOUT_IDENTITY:
            return "it goes on without an identity"
        if self.opened and self.state in (SessionState.UNINITIALIZED, SessionState.INITIALIZING, SessionState.READY):
            return "an identity that is not used yet has partitions in a transaction"
        return ""


Step = tuple[Session, tuple[Effect, ...]]


def _fresh(value: Session, state: SessionState, identity: ProducerIdentity | None) -> Session:
    return Session(value.transaction_version, state, identity)


def on_initialize(value: Session, event: Initialize) -> Step:
    """Ask for an identity."""
    return replace(value, state=SessionState.INITIALIZING), (SendInitProducerId(value.identity),)


def on_initialized(value: Session, event: Initialized) -> Step:
    """The identity may be used, once."""
    return _fresh(value, SessionState.READY, event.identity), ()


def on_renew(value: Session, event: Initialize) -> Step:
    """Nothing was written under the identity: take the next one, because the coordinator may have forgotten an idle
    id.
    """
    return on_initialize(value, event)


def on_joined(value: Session, event: Joined) -> Step:
    """Nothing is sent: the identity's owner has fenced earlier producers and will end the transaction."""
    return _fresh(value, SessionState.READY, event.identity), ()


def on_begin(value: Session, event: Begin) -> Step:
    """Start a transaction under the unused identity."""
    return replace(value, state=SessionState.IN_TRANSACTION), ()


def on_need(value: Session, event: Need) -> Step:
    """Version 1 asks the coordinator first; version 2 adds partitions by the Produce itself."""
    if value.transaction_version >= 2:
        return replace(value, added=value.added | event.partitions), ()
    missing = event.partitions - value.added - value.adding
    return replace(value, adding=value.adding | missing), (SendAddPartitions(missing),) if missing else ()


def on_partitions_added(value: Session, event: PartitionsAdded) -> Step:
    """Records may follow."""
    return replace(value, adding=value.adding - event.partitions, added=value.added | event.partitions), ()


def on_need_offsets(value: Session, event: NeedOffsets) -> Step:
    """Send them. From here on the coordinator may have them, whatever its answer: the transaction has to be ended."""
    return replace(value, groups=value.groups | {event.group}), (SendOffsets(event.group),)


def on_seal(value: Session, event: SealRequested) -> Step:
    """Hand over; an empty transaction stays unopened and needs no end."""
    _refuse_unacknowledged(event.unacknowledged)
    return replace(value, state=SessionState.SEALED), ()


def on_commit(value: Session, event: CommitRequested) -> Step:
    """Commit. Where nothing was put in, there is nothing to end, and the identity is still unused."""
    _refuse_unacknowledged(event.unacknowledged)
    if not value.opened:
        return _fresh(value, SessionState.READY, value.identity), ()
    return replace(value, state=SessionState.COMMITTING), (SendEndTxn(commit=True),)


def on_abort(value: Session, event: AbortRequested) -> Step:
    """Abort. Where nothing was put in, there is nothing to end."""
    if not value.opened:
        return _fresh(value, SessionState.READY, value.identity), ()
    return replace(value, state=SessionState.ABORTING), (SendEndTxn(commit=False),)


def _refuse_unacknowledged(unacknowledged: int) -> None:
    if unacknowledged:
        raise IllegalMove(
            "producer: a transaction with unacknowledged batches can be neither sealed nor committed",
            {"unacknowledged": unacknowledged},
        )


def on_ended(value: Session, event: EndAnswered) -> Step:
    """Version 2 gave the next epoch; version 1 must bump it, or a replayed EndTxn could hit the next transaction."""
    if event.next_identity is not None and event.next_identity != value.identity:
        return _fresh(value, SessionState.READY, event.next_identity), ()
    return _fresh(value, SessionState.UNINITIALIZED, value.identity), ()


def on_end_unanswered(value: Session, event: EndUnanswered) -> Step:
    """Not a failure: the commit may stand. Ask again."""
    return replace(value, state=SessionState.OUTCOME_UNKNOWN, reason=event.reason), ()


def on_end_not_sent(value: Session, event: EndNotSent) -> Step:
    """Definitely not committed; the transaction is still open and can be aborted."""
    return replace(value, state=SessionState.ABORTABLE_ERROR, reason=event.reason), ()


def on_abort_unanswered(value: Session, event: EndUnanswered) -> Step:
    """Whatever happened to the abort, the transaction cannot have committed; a new identity ends what is left."""
    return _fresh(value, SessionState.UNINITIALIZED, value.identity), ()


def on_still_unknown(value: Session, event: EndUnanswered) -> Step:
    """Ask again, for as long as the caller allows."""
    return replace(value, reason=event.reason), ()


def on_proven(value: Session, event: Proven) -> Step:
    """Definite: committed, or aborted by the broker. Either way the identity is used up and nothing is left to end."""
    return _fresh(value, SessionState.UNINITIALIZED, value.identity), ()


def on_transaction_failed(value: Session, event: TransactionFailed) -> Step:
    """Only an abort may follow (KIP-360)."""
    return replace(value, state=SessionState.ABORTABLE_ERROR, reason=event.reason), ()


def on_fenced(value: Session, event: Fenced) -> Step:
    """Stop: what this session had open is aborted by the newer owner's InitProducerId."""
    return replace(value, state=SessionState.FENCED, reason=event.reason), ()


def on_session_failed(value: Session, event: SessionFailed) -> Step:
    """Stop."""
    return replace(value, state=SessionState.FATAL, reason=event.reason), ()


def ignore(value: Session, event: Event) -> Step:
    """An answer that comes too late to matter."""
    return value, ()


_LIVE = (
    SessionState.INITIALIZING,
    SessionState.READY,
    SessionState.IN_TRANSACTION,
    SessionState.SEALED,
    SessionState.COMMITTING,
    SessionState.ABORTING,
    SessionState.OUTCOME_UNKNOWN,
    SessionState.ABORTABLE_ERROR,
)
_LATE = (PartitionsAdded, TransactionFailed, Fenced, SessionFailed, EndUnanswered)

MOVES: Moves[SessionState] = {
    (SessionState.UNINITIALIZED, Initialize): Move(on_initialize, SessionState.INITIALIZING),
    (SessionState.UNINITIALIZED, Joined): Move(on_joined, SessionState.READY),
    (SessionState.INITIALIZING, Initialized): Move(on_initialized, SessionState.READY),
    (SessionState.READY, Begin): Move(on_begin, SessionState.IN_TRANSACTION),
    (SessionState.READY, Initialize): Move(on_renew, SessionState.INITIALIZING),
    (SessionState.IN_TRANSACTION, Need): Move(on_need, SessionState.IN_TRANSACTION),
    (SessionState.IN_TRANSACTION, PartitionsAdded): Move(on_partitions_added, SessionState.IN_TRANSACTION),
    (SessionState.IN_TRANSACTION, NeedOffsets): Move(on_need_offsets, SessionState.IN_TRANSACTION),
    (SessionState.IN_TRANSACTION, SealRequested): Move(on_seal, SessionState.SEALED),
    (SessionState.IN_TRANSACTION, CommitRequested): Move(on_commit, SessionState.COMMITTING, SessionState.READY),
    (SessionState.IN_TRANSACTION, AbortRequested): Move(on_abort, SessionState.ABORTING, SessionState.READY),
    (SessionState.IN_TRANSACTION, TransactionFailed): Move(on_transaction_failed, SessionState.ABORTABLE_ERROR),
    (SessionState.SEALED, CommitRequested): Move(on_commit, SessionState.COMMITTING, SessionState.READY),
    (SessionState.SEALED, AbortRequested): Move(on_abort, SessionState.ABORTING, SessionState.READY),
    (SessionState.SEALED, TransactionFailed): Move(on_transaction_failed, SessionState.ABORTABLE_ERROR),
    (SessionState.COMMITTING, EndAnswered): Move(on_ended, SessionState.READY, SessionState.UNINITIALIZED),
    (SessionState.COMMITTING, EndUnanswered): Move(on_end_unanswered, SessionState.OUTCOME_UNKNOWN),
    (SessionState.COMMITTING, EndNotSent): Move(on_end_not_sent, SessionState.ABORTABLE_ERROR),
    (SessionState.ABORTING, EndAnswered): Move(on_ended, SessionState.READY, SessionState.UNINITIALIZED),
    (SessionState.ABORTING, EndUnanswered): Move(on_abort_unanswered, SessionState.UNINITIALIZED),
    (SessionState.OUTCOME_UNKNOWN, EndAnswered): Move(on_ended, SessionState.READY, SessionState.UNINITIALIZED),
    (SessionState.OUTCOME_UNKNOWN, EndUnanswered): Move(on_still_unknown, SessionState.OUTCOME_UNKNOWN),
    (SessionState.OUTCOME_UNKNOWN, Proven): Move(on_proven, SessionState.UNINITIALIZED),
    (SessionState.ABORTABLE_ERROR, AbortRequested): Move(on_abort, SessionState.ABORTING, SessionState.READY),
    (SessionState.ABORTABLE_ERROR, PartitionsAdded): Move(ignore, SessionState.ABORTABLE_ERROR),
    (SessionState.ABORTABLE_ERROR, TransactionFailed): Move(ignore, SessionState.ABORTABLE_ERROR),
    **{(state, Fenced): Move(on_fenced, SessionState.FENCED) for state in _LIVE},
    **{(state, SessionFailed): Move(on_session_failed, SessionState.FATAL) for state in _LIVE},
    **{(state, late): Move(ignore, state) for state in (SessionState.FENCED, SessionState.FATAL) for late in _LATE},
}
