"""The one tree of errors. The class determines who must act; the message gives the state of the data and what
to do.

Owns: every exception that leaves this package.
Does not know: sockets, Spark, Kafka's numeric codes (`protocol.error_codes` maps those to these classes).
Invariants:
- Every class pickles and unpickles to an equal error (Spark carries errors between processes): the message
  and the facts are the only constructor arguments, and both reach `Exception.__init__`.
- A message has no character that does something else than to be read, also where it repeats what others have said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from kafka_core.foreign_text import Lines, harmless

Fact = str | int | float | bool | None | tuple["Fact", ...]


class ExactlyOnceError(Exception):
    """Base of all errors of this package.

    `facts` are the values behind the message, by role (slot=3, producer_epoch=7), for programs. The message
    is for people. Both survive pickle.
    """

    who_acts: ClassVar[str] = "the reader of this message"
    who_acts_at_the_end: ClassVar[str] = ""
    """The same where the error ends a command or a job, which nothing repeats by itself; "" where that makes no
    difference.
    """

    def __init__(self, message: str, facts: Mapping[str, Fact] | None = None) -> None:
        self.message = harmless(message)
        self.facts: dict[str, Fact] = dict(facts or {})
        super().__init__(self.message, self.facts)

    def __str__(self) -> str:
        if not self.facts:
            return self.message
        return f"{self.message} [{harmless(', '.join(f'{name}={value}' for name, value in self.facts.items()))}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactlyOnceError) and type(self) is type(other) and self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.message))


# ---- the user acts: options, rows, plans. Nothing has been written, or the written records are aborted.


class UserError(ExactlyOnceError):
    """The job asks for something impossible; change the job. No record of the batch is visible."""

    who_acts = "the author of the job"


class OptionsError(UserError):
    """An option is unknown, misspelt, missing or has a value that cannot work. Raised before anything is written."""

    @classmethod
    def listing(cls, said: str, problems: Sequence[str]) -> OptionsError:
        """One error for all problems, a line each. The first problem is on the first line, because many logs keep only
        that.
        `said`: what they prevent, without a colon."""
        first, *others = problems
        return cls(Lines.joined([f"{said}: {first}", *others]))

    def problems(self) -> list[str]:
        """Those of `listing`."""
        return self.message.partition(": ")[2].splitlines()


class InvalidRow(UserError):
    """A row cannot become a record: no topic, bad partition, malformed headers. The batch is aborted, no
    record is visible."""


class RecordTooLarge(InvalidRow):
    """A row is larger than its topic allows. Facts: row, partition, size_bytes, limit_bytes; callers add topic and
    key.
    """


class BatchTooLarge(UserError):
    """A batch of records in a topic takes more memory than max.unpacked.bytes allows. The batch is whole, and nothing
    of it was used.
    Facts: limit_bytes, base_offset.
    """


class NondeterministicPlan(UserError):
    """A replayed slot does not have the decided records: the query's plan gives other rows on replay."""


class PipelineConflict(UserError):
    """The ledger has another owner or a later batch under this pipeline name; continuing would lose or repeat
    data."""


class UnknownPipeline(UserError):
    """Neither the ledger nor a coordinator has the named pipeline or transactional id. Nothing was
    changed."""

    who_acts = "the one who gave the name"


class StorageInUse(UserError):
    """A data directory or a port belongs to another process. Nothing in it was changed."""


class WrongInstallation(UserError):
    """The driver or the executors lack something that the package needs: the package itself, its version, their Python,
    a directory for the compiled kernels. No query was started. Facts: where, python, host."""

    who_acts = "the one who installs the package on driver and executors"


# ---- we act: a bug here.


class InternalError(ExactlyOnceError):
    """A rule of this package was broken by this package."""

    who_acts = "the maintainers of this package"


class IllegalMove(InternalError):
    """A state machine was given an event that its table does not allow in its state. Nothing has changed."""


# ---- the peer is at fault: the broker, or the bytes it sent.


class ProtocolViolation(ExactlyOnceError):
    """The peer sent something that the protocol does not allow."""

    who_acts = "the operator of the broker"


class CorruptBatch(ProtocolViolation):
    """Bytes are not a valid record batch: bad CRC, impossible length or count. No part of it was used."""


class UnsupportedVersion(ExactlyOnceError):
    """The peer uses a protocol version that this package does not support. Nothing has been written."""

    who_acts = "the operator of the broker"


class AuthorizationFailed(ExactlyOnceError):
    """An ACL forbids the request. The message names the resource and the operation to grant."""

    who_acts = "the operator of the broker"


class LoginRefused(AuthorizationFailed):
    """The broker refuses the user, the password, the ticket or the certificate of this client. Nothing was asked of it.
    Facts: server.
    """

    who_acts = "the author of the job"


class BrokerNotTrusted(AuthorizationFailed):
    """The broker's certificate is expired, revoked or for another host, so nothing was sent to it. Facts: server."""


class UnknownTopic(ExactlyOnceError):
    """A topic or partition does not exist (any more)."""

    who_acts = "the author of the job"


class DataLoss(ExactlyOnceError):
    """Records that the query has yet to read are gone from Kafka. Nothing was skipped: the query stops before them."""

    who_acts = "the author of the job"


# ---- no action yet, or the next attempt acts.


class RetriableError(ExactlyOnceError):
    """The same request may succeed later. No change is known to have happened."""

    who_acts = "nobody: it is retried"
    who_acts_at_the_end = "you: nothing repeats this by itself, so start it again"


class BrokerUnavailable(RetriableError):
    """No broker, coordinator or leader answered within the time allowed."""

    who_acts_at_the_end = "you: see whether the brokers run and answer at this address, then start it again; nothing repeats this by itself"


class TokenUnavailable(BrokerUnavailable):
    """The token endpoint or the token provider gave no token within the time allowed, so no broker was asked. Facts:
    endpoint.
    """

    who_acts_at_the_end = "you: see whether the endpoint answers, then start it again; nothing repeats this by itself"


class BlocksUnavailable(RetriableError):
    """No producer id is available: the store of blocks is unreachable, or it is unknown whether it granted a
    block.

    Such a block is abandoned: none of its ids is ever handed out because of that attempt.
    """


class RepairPending(RetriableError):
    """A part of a decided batch was aborted by the broker, and this run cannot write it again. What of the batch is
    committed stays committed, nothing is skipped; the next run writes that part.
    """

    who_acts = "nobody: the next run repairs the batch"
    who_acts_at_the_end = "nobody: the query's next run repairs the batch"


class AbortableError(ExactlyOnceError):
    """This transaction can only be aborted; the task's next attempt starts a new one under a new epoch."""

    who_acts = "the next attempt of the task"
    who_acts_at_the_end = "you: nothing repeats this by itself, so start it again"


class TransactionTooOld(AbortableError):
    """Too little of the transaction's timeout is left for a safe decision, or it is no longer open: another write took
    it over, or it timed out. The batch is aborted and done again.
    """


class AttemptRefused(AbortableError):
    """A task of a batch in one transaction may not write (any more): it was started a second time after its first start
    may have written, or another task failed or is lost. Or, in either scope, the tasks read their input from two
    attempts of a stage. The batch is aborted and done again.
    """


class ProducerFenced(ExactlyOnceError):
    """A newer owner holds this transactional id. This process must stop; its open transaction was aborted."""

    who_acts = "the newer owner; this process stops"


# ---- the outcome is not known yet.


class OutcomeUnknown(ExactlyOnceError):
    """A request may or may not have taken effect. Neither a success nor a failure: the outcome must be asked
    for again."""

    who_acts = "the next run, which proves the outcome before it does anything else"


# ---- the operator acts: a decided batch cannot be finished automatically.


class DecisionBroken(ExactlyOnceError):
    """A batch is decided but cannot be proven or finished, or the ledger cannot take its decision. Nothing is skipped;
    the query must not continue by itself.
    """

    who_acts = "the operator"


class LedgerUnreadable(DecisionBroken):
    """The ledger contains something that this version cannot read, or it is not the required compacted
    topic."""


class WrongClock(ExactlyOnceError):
    """Records have the time of the machine that writes them, and the broker does not take that time: the two clocks are
    further apart than the topic allows. No row is at fault, no record is visible. Facts: topic, host, machine_time_ms.
    """

    who_acts = "the operator of the machine whose clock is wrong"


# ---- the operator acts: the broker cannot hand out producer ids. None was handed out twice.


class NoProducerIds(ExactlyOnceError):
    """No producer id can ever be handed out in the present state."""

    who_acts = "the operator of the broker"


class ProducerIdsExhausted(NoProducerIds):
    """The last block of ids below 2^63 is claimed."""


class GarbledBlock(NoProducerIds):
    """The stored latest block of ids cannot be read, so no block is claimed after it and nothing is
    overwritten."""


# ---- the operator acts: the broker's own files. Nothing in them was changed.


class LogDamaged(ExactlyOnceError):
    """Bytes in the middle of a partition's log have changed; continuing would lose the rest of it. Facts:
    file, position, offset."""

    who_acts = "the operator of the broker"
