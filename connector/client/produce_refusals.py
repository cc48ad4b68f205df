"""What a leader's refusal of a batch means to the caller.

Owns: the error for each Produce code that is not retried, and for an answer about other partitions.
Does not know: which batches are in flight, what is sent again.
Invariants: each message states what happens to the micro-batch and what to change.
"""

from __future__ import annotations

from collections.abc import Collection

from connector.client.missing_rights import to_grant
from connector.errors import (
    AbortableError,
    AuthorizationFailed,
    ExactlyOnceError,
    ProducerFenced,
    ProtocolViolation,
    RecordTooLarge,
)
from connector.model import TopicPartition
from connector.protocol import messages as m
from connector.protocol.error_codes import Action, Code, name_of


def refusal(
    where: TopicPartition,
    code: int,
    action: Action,
    detail: str | None,
    size_bytes: int,
    transactional_id: str | None,
) -> ExactlyOnceError:
    """The error for a batch of `size_bytes` (-1: unknown), refused for good. `detail`: the broker's text."""
    name = name_of(code)
    facts = {"partition": str(where), "transactional_id": transactional_id, "code": name}
    more = f" ({detail})" if detail else ""
    if action is Action.FENCED:
        return ProducerFenced(
            f"{where} answered {name}{more}: a newer attempt, or the coordinator after the transaction timeout, "
            "raised the epoch; the records of this attempt are aborted",
            facts,
        )
    if code in (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
        return RecordTooLarge(
            f"{where} rejects a batch of {size_bytes} bytes ({name}): it exceeds the topic's "
            "max.message.bytes; the micro-batch is aborted; raise that setting or lower kafka.batch.size",
            {**facts, "size_bytes": size_bytes},
        )
    if action is Action.AUTHORIZE:
        return AuthorizationFailed(
            f"{where} answered {name}{more}; grant {to_grant(m.ProduceRequest.API_KEY, code)}; the micro-batch is aborted",
            facts,
        )
    if action is Action.BUG:
        return ProtocolViolation(
            f"{where} answered {name}{more}, which is not a valid answer to Produce", facts
        )
    return AbortableError(f"{where} answered {name}{more}; the transaction can only be aborted", facts)


def answered_astray(
    unanswered: Collection[TopicPartition], unasked: Collection[TopicPartition], transactional_id: str | None
) -> ProtocolViolation:
    """The error for an answer that omits requested partitions, or names others."""
    said = [f"leaves out {', '.join(map(str, sorted(unanswered)))}"] if unanswered else []
    said += [f"names {', '.join(map(str, sorted(unasked)))}, which was not requested"] if unasked else []
    return ProtocolViolation(
        f"a Produce answer {' and '.join(said)}; whether the batches were written is unknown, so the transaction is aborted; "
        "check the components between this client and the broker",
        {
            "transactional_id": transactional_id,
            "left_out": tuple(map(str, sorted(unanswered))),
            "unasked": tuple(map(str, sorted(unasked))),
        },
    )
