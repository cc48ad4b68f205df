"""The states of one transactional id, its events, and the effects that its shell carries out.

Owns: the states, the logged value, the events and the effects of `moves`.
Does not know: how the log, the wire or the markers look; numeric error codes.
Invariants:
- All values are frozen.
- A `TransactionRefusal` is named as Kafka names the error code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity, TopicPartition

MAX_EPOCH = 32_767
"""Reached only by fencing and by the markers of the last transaction; no client ever gets it."""

NO_TIMEOUT_MS = 2_147_483_647
"""The timeout of a two-phase transaction (KIP-939): its owner decides, however long that takes."""

EPOCH_BUMP_VERSION = 2
"""transaction.version from which every end bumps the epoch (KIP-890); 0 and 1 do not differ for the coordinator."""


class TransactionState(Enum):
    """Kafka's states of a transactional id."""

    EMPTY = "initialised, or never used: no transaction"
    ONGOING = "a transaction is open"
    PREPARE_COMMIT = "decided: markers are being written, then it is committed"
    PREPARE_ABORT = "decided: markers are being written, then it is aborted"
    COMPLETE_COMMIT = "the last transaction is committed"
    COMPLETE_ABORT = "the last transaction is aborted"
    DEAD = "expired: a tombstone is in the log"
    PREPARE_EPOCH_FENCE = (
        "never entered and never logged: Kafka's name for what comes before PREPARE_ABORT in a fencing"
    )

    @property
    def kafka_name(self) -> str:
        """As DescribeTransactions and ListTransactions spell it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class TransactionRefusal(Enum):
    """Kafka's error codes that this machine returns; members are named as the codes are."""

    CONCURRENT_TRANSACTIONS = "another change of this id is under way; ask again"
    PRODUCER_FENCED = "the epoch is not the current one"
    INVALID_PRODUCER_ID_MAPPING = "the producer id is not the one of this transactional id"
    INVALID_TXN_STATE = "the transaction is not in a state in which this can be done"
    TRANSACTION_ABORTABLE = "the partition is not part of the transaction"


@dataclass(frozen=True)
class TransactionLogEntry:
    """The log's entry for one transactional id. `state` DEAD stands for a tombstone.

    `previous_producer_id` is the one before the latest change (the same unless that change brought a new one),
    `next_producer_id` takes over, at epoch 0, once the markers of the epoch that ran out are written.
    `version` is the transaction.version of the request that made the change, as far as it matters: 0 or 2.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    last_update_ms: int = -1
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    version: int = 0

    @property
    def identity(self) -> ProducerIdentity:
        """Producer id and epoch."""
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def exhausted(self) -> bool:
        """Whether the next epoch is one that no client may have, so that a new producer id is due."""
        return self.epoch >= MAX_EPOCH - 1


# ---- events


@dataclass(frozen=True)
class Init:
    """InitProducerId. `expected`: the identity that the client has (KIP-360). `server_version`: the version
    of the broker's own aborts."""

    timeout_ms: int
    now_ms: int
    expected: ProducerIdentity | None = None
    server_version: int = EPOCH_BUMP_VERSION
    fresh_id: int | None = None


@dataclass(frozen=True)
class Add:
    """AddPartitionsToTxn, AddOffsetsToTxn (version 0), or a Produce that adds by itself (version 2)."""

    identity: ProducerIdentity
    partitions: frozenset[TopicPartition]
    now_ms: int
    version: int = 0


@dataclass(frozen=True)
class End:
    """EndTxn: of version 2 where every end bumps the epoch, of version 0 where none does."""

    identity: ProducerIdentity
    commit: bool
    version: int
    now_ms: int
    fresh_id: int | None = None


@dataclass(frozen=True)
class TimeOut:
    """The sweep has found a transaction that is older than its timeout."""

    now_ms: int
    server_version: int = EPOCH_BUMP_VERSION
    fresh_id: int | None = None


@dataclass(frozen=True)
class Expire:
    """The sweep has found an id that no client has used for `after_ms`."""

    now_ms: int
    after_ms: int


@dataclass(frozen=True)
class Logged:
    """The entry of the latest `Log` is in the log."""

    now_ms: int


@dataclass(frozen=True)
class LogFailed:
    """The entry is not in the log and will not be."""


@dataclass(frozen=True)
class MarkerWritten:
    """A partition has its marker, or needs none."""

    partition: TopicPartition


@dataclass(frozen=True)
class Finish:
    """All markers that could be written are written."""


@dataclass(frozen=True)
class StateLoaded:
    """The coordinator is back and has read its log."""

    now_ms: int


Event = Init | Add | End | TimeOut | Expire | Logged | LogFailed | MarkerWritten | Finish | StateLoaded

# ---- effects


@dataclass(frozen=True)
class Log:
    """Append the entry; then hand in `Logged` or `LogFailed`, and append nothing else for this id before."""

    entry: TransactionLogEntry


@dataclass(frozen=True)
class AnswerIdentity:
    """The request is done; `identity` is the client's identity from now on."""

    identity: ProducerIdentity


@dataclass(frozen=True)
class RefuseRequest:
    """The request is refused and has changed nothing."""

    refusal: TransactionRefusal
    reason: str


@dataclass(frozen=True)
class NeedProducerId:
    """Hand in the same event again with a fresh producer id."""


@dataclass(frozen=True)
class WriteMarkers:
    """Write a marker to each partition; `MarkerWritten` for each, then `Finish`.

    `since_ms`: when the end was decided. `resumed`: some may have been written before a crash.
    """

    identity: ProducerIdentity
    commit: bool
    partitions: frozenset[TopicPartition]
    version: int
    since_ms: int
    resumed: bool = False


Effect = Log | AnswerIdentity | RefuseRequest | NeedProducerId | WriteMarkers
