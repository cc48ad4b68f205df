"""What one partition remembers of one producer, and whether it accepts the producer's next batch or marker.

Owns: epochs, sequences and the last five batches; whether a transaction is open; every refusal of the idempotent
producer.
Does not know: bytes, files, numeric error codes, the time of day (it comes in as `now_ms`).
Invariants:
- Values are immutable, so a refusal has changed nothing.
- A remembered batch is of the producer's current epoch.
- Between two accepted batches of one epoch no sequence is missing.
Sources: seed 000 sections 5.5 and 6; KIP-98, KIP-360, KIP-890; where today's Kafka answers differently from
the documents, a comment states which of the two is the default.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

SEQUENCE_LIMIT = 2**31
"""Sequences are int32 and start again at 0 after 2^31 - 1."""

REMEMBERED_BATCHES = 5
"""As many as a client may have in flight: with fewer, a re-sent batch could be taken for a gap; more have no use."""

HIGHEST_EPOCH = 2**15 - 1
"""Epochs are int16. The coordinator reserves this one for itself, to fence the last owner."""

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1


class Reason(Enum):
    """Why something is refused; the names are those of Kafka's error codes."""

    INVALID_PRODUCER_EPOCH = "a newer epoch of this producer has been here"
    OUT_OF_ORDER_SEQUENCE_NUMBER = "the batch does not follow the last one"
    UNKNOWN_PRODUCER_ID = "the producer is unknown here and does not start at sequence 0"
    INVALID_TXN_STATE = "the producer has an open transaction and the batch is not part of it"
    TRANSACTION_COORDINATOR_FENCED = "a newer coordinator has written a marker for this producer"


class SequencePlace(Enum):
    """Where an out-of-order batch lies; Kafka answers one code for all of them."""

    BEHIND = "already written and no longer remembered: a duplicate"
    AHEAD = "records before it are missing: a gap"
    NOT_AT_ZERO = "the first batch of an epoch starts at sequence 0"


@dataclass(frozen=True)
class RememberedBatch:
    """One written batch. `timestamp_ms` is its highest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Larger than the last one where the numbers wrap inside the batch."""
        return (self.last_sequence - self.offset_delta) % SEQUENCE_LIMIT

    @property
    def first_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta


@dataclass(frozen=True)
class ProducerStateEntry:
    """One producer in one partition, `epoch` -1 where it is unknown.

    `open_since`: the first offset of its open transaction. `last_seen_ms`: when it last wrote, by the broker's clock (a
    restart of the broker counts too); it is not part of the log, so not compared.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    batches: tuple[RememberedBatch, ...] = ()
    last_timestamp_ms: int = NO_TIMESTAMP
    open_since: int | None = None
    last_seen_ms: int = field(default=0, compare=False)

    @property
    def known(self) -> bool:
        """Whether anything of this producer has been written here and is remembered."""
        return self.epoch != NO_EPOCH

    @property
    def last_sequence(self) -> int:
        """Of the last batch of this epoch; -1 where there is none (then the next sequence is 0)."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


@dataclass(frozen=True)
class DataBatch:
    """A batch that is to be written at `first_offset`. A coordinator's own batches have no sequences (-1)."""

    epoch: int
    first_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int
    transactional: bool

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record."""
        if self.first_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.first_sequence + self.last_offset - self.first_offset) % SEQUENCE_LIMIT


@dataclass(frozen=True)
class Marker:
    """The end of the producer's transaction, to be written at `offset`."""

    epoch: int
    coordinator_epoch: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True)
class Accepted:
    """Write it; `state` is what is remembered then. `ended`:
    the first offset of the transaction that a marker ends."""

    state: ProducerStateEntry
    ended: int | None = None


@dataclass(frozen=True)
class Duplicate:
    """An earlier send put it into the log: repeat the answer to that, write nothing."""

    batch: RememberedBatch


@dataclass(frozen=True)
class AppendRefusal:
    """It must not be written. `place` is more precise than the code where sequences are out of order."""

    reason: Reason
    message: str
    place: SequencePlace | None = None


def judge(
    state: ProducerStateEntry,
    batch: DataBatch,
    now_ms: int,
    *,
    strict_first_sequence: bool = False,
    transaction_version: int = 0,
) -> Accepted | Duplicate | AppendRefusal:
    """What to do with a client's batch.

    `strict_first_sequence`: the documents' rule that an unknown producer starts at 0, else
    UNKNOWN_PRODUCER_ID. Kafka since 2.5 (KIP-360) accepts any first sequence, because state may have been
    removed with the records. `transaction_version` is the class of a batch that begins a transaction: with 2
    and above Kafka (4.x) requires 0 again, because such a producer's epoch is fresh.
    """
    if batch.epoch == state.epoch:
        for written in state.batches:
            if written.first_sequence == batch.first_sequence and written.last_sequence == batch.last_sequence:
                return Duplicate(written)
    refusal = (
        _check_epoch(state, batch.epoch)
        or _check_sequence(state, batch, strict_first_sequence, transaction_version)
        or _check_transaction(state, batch)
    )
    return refusal or Accepted(after_batch(state, batch, now_ms))


def judge_unsequenced(state: ProducerStateEntry, batch: DataBatch, now_ms: int) -> Accepted | AppendRefusal:
    """What to do with a batch that a coordinator writes in a producer's name: it has no sequences to check."""
    refusal = _check_epoch(state, batch.epoch) or _check_transaction(state, batch)
    return refusal or Accepted(after_batch(state, batch, now_ms))


def judge_marker(
    state: ProducerStateEntry, marker: Marker, now_ms: int, *, transaction_version: int = 0
) -> Accepted | AppendRefusal:
    """What to do with a marker. Its epoch is at least the last one seen; with transaction version 2 above it
    (KIP-1228), but

    - one of the same epoch where nothing is open is accepted again (KAFKA-19999, Kafka 4.3): its answer was
      lost, or the coordinator was restarted, and a refusal would leave the transaction prepared indefinitely;
    - at the highest epoch, above which there is none, it ends what is open (KAFKA-20090, Kafka 4.3).
    """
    again = marker.epoch == state.epoch and (state.open_since is None or marker.epoch == HIGHEST_EPOCH)
    lowest = state.epoch + 1 if transaction_version >= 2 and not again else state.epoch
    if marker.epoch < lowest:
        return AppendRefusal(
            Reason.INVALID_PRODUCER_EPOCH,
            f"a marker of producer {state.producer_id} at offset {marker.offset} has epoch {marker.epoch}; the last seen epoch is "
            f"{state.epoch} (transaction version {transaction_version})",
        )
    if marker.coordinator_epoch < state.coordinator_epoch:
        return AppendRefusal(
            Reason.TRANSACTION_COORDINATOR_FENCED,
            f"a marker of producer {state.producer_id} at offset {marker.offset} comes from coordinator epoch "
            f"{marker.coordinator_epoch}; epoch {state.coordinator_epoch} has written here",
        )
    return Accepted(after_marker(state, marker, now_ms), state.open_since)


def after_batch(state: ProducerStateEntry, batch: DataBatch, now_ms: int) -> ProducerStateEntry:
    """The state once the batch is in the log. Judges nothing: a batch in the log has been judged before."""
    written = RememberedBatch(
        batch.last_sequence, batch.last_offset, batch.last_offset - batch.first_offset, batch.timestamp_ms
    )
    # A batch of another epoch cannot be a duplicate, so the remembered batches are dropped.
    kept = state.batches[1 - REMEMBERED_BATCHES :] if batch.epoch == state.epoch else ()
    opens = batch.transactional and state.open_since is None
    return ProducerStateEntry(
        producer_id=state.producer_id,
        epoch=batch.epoch,
        coordinator_epoch=state.coordinator_epoch,
        batches=(*kept, written),
        last_timestamp_ms=batch.timestamp_ms,
        open_since=batch.first_offset if opens else state.open_since,
        last_seen_ms=now_ms,
    )


def after_marker(state: ProducerStateEntry, marker: Marker, now_ms: int) -> ProducerStateEntry:
    """The state once the marker is in the log. A marker that bumps the epoch makes 0 the next sequence; one of the same
    epoch (transaction version 1) leaves the sequences where they are.
    """
    return replace(
        state,
        epoch=marker.epoch,
        coordinator_epoch=marker.coordinator_epoch,
        batches=state.batches if marker.epoch == state.epoch else (),
        last_timestamp_ms=marker.timestamp_ms,
        open_since=None,
        last_seen_ms=now_ms,
    )


def expired(state: ProducerStateEntry, now_ms: int, after_ms: int) -> bool:
    """Whether the producer may be forgotten.

    Kafka measures from the records' own timestamps; a producer of old records would be forgotten at every sweep and its
    duplicates taken for new. Here it is the broker's time of the last write.
    """
    return state.open_since is None and now_ms - state.last_seen_ms >= after_ms


def _check_epoch(state: ProducerStateEntry, epoch: int) -> AppendRefusal | None:
    if epoch >= state.epoch:
        return None
    return AppendRefusal(
        Reason.INVALID_PRODUCER_EPOCH,
        f"producer {state.producer_id} writes with epoch {epoch}; the last seen epoch is {state.epoch}",
    )


def _check_sequence(
    state: ProducerStateEntry, batch: DataBatch, strict_first_sequence: bool, transaction_version: int
) -> AppendRefusal | None:
    first = batch.first_sequence
    who = f"producer {state.producer_id} epoch {batch.epoch}"
    if not state.known and first != 0 and strict_first_sequence:
        return AppendRefusal(
            Reason.UNKNOWN_PRODUCER_ID, f"{who} is unknown here and starts at sequence {first} instead of 0"
        )
    begins = batch.transactional and state.open_since is None
    if begins and transaction_version >= 2 and not state.batches and first != 0:
        return _out_of_order(
            SequencePlace.NOT_AT_ZERO, f"{who} starts at sequence {first}; no batch of it is known here"
        )
    if not state.known:
        return None
    if batch.epoch != state.epoch:
        if first == 0:
            return None
        return _out_of_order(
            SequencePlace.NOT_AT_ZERO,
            f"{who} starts at sequence {first}; the epoch is new here (before: {state.epoch})",
        )
    if not state.batches:
        # A marker bumped the epoch, or a coordinator's batch came first.
        return None if first == 0 else _out_of_order(SequencePlace.NOT_AT_ZERO, f"{who} starts at sequence {first}")
    expected = (state.last_sequence + 1) % SEQUENCE_LIMIT
    if first == expected:
        return None
    # Sequences wrap, so "before" and "after" are what is nearer on the circle; half of it is far beyond any real
    # distance.
    ahead = (first - expected) % SEQUENCE_LIMIT
    if ahead < SEQUENCE_LIMIT // 2:
        return _out_of_order(
            SequencePlace.AHEAD, f"{who} sends sequence {first}, expected {expected}: {ahead} records are missing"
        )
    return _out_of_order(
        SequencePlace.BEHIND,
        f"{who} sends sequence {first}, expected {expected}: it lies behind and is none of the last "
        f"{REMEMBERED_BATCHES} batches",
    )


def _out_of_order(place: SequencePlace, message: str) -> AppendRefusal:
    return AppendRefusal(Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, message, place)


def _check_transaction(state: ProducerStateEntry, batch: DataBatch) -> AppendRefusal | None:
    if state.open_since is None or batch.transactional:
        return None
    return AppendRefusal(
        Reason.INVALID_TXN_STATE,
        f"producer {state.producer_id} has had a transaction open since offset {state.open_since}; the batch is not transactional",
    )
