"""The one tree of errors. The class says who must act; the message says what is known of the data and what to do.

Owns: every exception that leaves this package.
Does not know: sockets, Spark, Kafka's numeric codes (those map to these classes in `protocol.error_codes`).
Invariants: every class pickles and unpickles to an equal error (Spark carries errors between processes), because the
message and the facts are the only constructor arguments and both reach `Exception.__init__`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

Fact = str | int | float | bool | None | tuple["Fact", ...]


class ExactlyOnceError(Exception):
    """Base of all errors of this package.

    `facts` are the numbers behind the message, by role (slot=3, producer_epoch=7), for programs; the message is for
    people. Both survive pickle.
    """

    who_acts: ClassVar[str] = "the reader of this message"

    def __init__(self, message: str, facts: Mapping[str, Fact] | None = None) -> None:
        self.message = message
        self.facts: dict[str, Fact] = dict(facts or {})
        super().__init__(message, self.facts)

    def __str__(self) -> str:
        if not self.facts:
            return self.message
        return f"{self.message} [{', '.join(f'{name}={value}' for name, value in self.facts.items())}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactlyOnceError) and type(self) is type(other) and self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.message))


# ---- the user acts: options, rows, plans. Nothing has been written, or what was written is aborted.


class UserError(ExactlyOnceError):
    """The job asks for something that cannot be done; changing the job mends it. Nothing of the batch is visible."""

    who_acts = "the author of the job"


class OptionsError(UserError):
    """An option is unknown, misspelt, missing or has a value that cannot work. Raised before anything is written."""


class InvalidRow(UserError):
    """A row cannot become a record: no topic, bad partition, malformed headers. The batch is aborted, none of it shows."""


class RecordTooLarge(InvalidRow):
    """A row is larger than its topic allows. Facts: row, partition, size_bytes, limit_bytes; callers add topic and key."""


class NondeterministicPlan(UserError):
    """A replayed slot does not have the records that were decided: the query's plan gives other rows on replay."""


class PipelineConflict(UserError):
    """The ledger knows another owner or a later batch under this pipeline name; going on would lose or repeat data."""


class UnknownPipeline(UserError):
    """Neither the ledger nor a coordinator knows the pipeline, or the transactional id, that was named. Nothing was changed."""

    who_acts = "the one who gave the name"


class StorageInUse(UserError):
    """A data directory or a port belongs to another process. Nothing in it was changed."""


# ---- we act: a bug here.


class InternalError(ExactlyOnceError):
    """A rule of this package was broken by this package."""

    who_acts = "the maintainers of this package"


class IllegalMove(InternalError):
    """A state machine was given an event that its table does not allow in its state. Nothing has changed."""


# ---- the peer acts: the broker or the bytes it sent.


class ProtocolViolation(ExactlyOnceError):
    """The peer sent what the protocol does not allow."""

    who_acts = "the operator of the broker"


class CorruptBatch(ProtocolViolation):
    """Bytes that should be a record batch are not: bad CRC, impossible length or count. Nothing of it was used."""


class UnsupportedVersion(ExactlyOnceError):
    """The peer speaks a version that this package does not. Nothing has been written."""

    who_acts = "the operator of the broker"


class AuthorizationFailed(ExactlyOnceError):
    """An ACL forbids the request. The message names the resource and the operation that has to be granted."""

    who_acts = "the operator of the broker"


class UnknownTopic(ExactlyOnceError):
    """A topic or partition does not exist (any more)."""

    who_acts = "the author of the job"


class DataLoss(ExactlyOnceError):
    """Records that the query has yet to read are gone from Kafka. Nothing was skipped: the query stops before them."""

    who_acts = "the author of the job"


# ---- nobody acts yet, or the next attempt does.


class RetriableError(ExactlyOnceError):
    """The same request may succeed later; nothing is known to have changed."""

    who_acts = "nobody: it is retried"


class BrokerUnavailable(RetriableError):
    """No broker, coordinator or leader answered within the time allowed."""


class BlocksUnavailable(RetriableError):
    """No producer id is at hand: the store of blocks cannot be asked, or whether it granted a block is not known.

    Such a block is abandoned: none of its ids is ever handed out on the strength of that attempt.
    """


class AbortableError(ExactlyOnceError):
    """This transaction can only be aborted; the task's next attempt starts a new one under a new epoch."""

    who_acts = "the next attempt of the task"


class TransactionTooOld(AbortableError):
    """Too little of the transaction's time is left to decide it safely; the batch is aborted and done again."""


class AttemptRefused(AbortableError):
    """A task of a batch in one transaction may not write (any more): it was started a second time after its first start may have
    written, or another task failed or is lost. The batch is aborted and done again under a new epoch."""


class ProducerFenced(ExactlyOnceError):
    """A newer owner holds this transactional id. This process must stop; its open transaction was aborted."""

    who_acts = "the newer owner; this process stops"


# ---- nobody can know yet.


class OutcomeUnknown(ExactlyOnceError):
    """A request may or may not have taken effect. Neither a success nor a failure: it has to be asked again."""

    who_acts = "the next run, which proves the outcome before it does anything else"


# ---- the operator acts: a decided batch cannot be finished by itself.


class DecisionBroken(ExactlyOnceError):
    """A batch is decided but cannot be proven or finished. Nothing is skipped; the query must not go on by itself."""

    who_acts = "the operator"


class LedgerUnreadable(DecisionBroken):
    """The ledger holds something that this version cannot read, or is not the compacted topic it has to be."""


# ---- the operator acts: the broker can hand out no producer ids. None was handed out twice.


class NoProducerIds(ExactlyOnceError):
    """No producer id will ever be handed out as things stand."""

    who_acts = "the operator of the broker"


class ProducerIdsExhausted(NoProducerIds):
    """The last block of ids below 2^63 is claimed."""


class GarbledBlock(NoProducerIds):
    """What is kept of the latest block of ids cannot be read, so nothing is claimed behind it and nothing overwritten."""


# ---- the operator acts: the broker's own files. Nothing in them was changed.


class LogDamaged(ExactlyOnceError):
    """Bytes in the middle of a partition's log have changed; going on would lose what follows. Facts: file, position, offset."""

    who_acts = "the operator of the broker"
