"""The error codes in a coordinator's answer: which one decides, and the error for one that is not retriable.

Owns: the messages for coordinators' refusals.
Does not know: sockets, when to retry (`asking` decides from the table of codes).
Invariants: an answer that omits a partition, or covers another one, is a protocol violation, not a success.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kafka_core.errors import (
    AbortableError,
    AuthorizationFailed,
    ExactlyOnceError,
    OptionsError,
    OutcomeUnknown,
    ProducerFenced,
    ProtocolViolation,
)
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code, action_for, name_of
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.missing_rights import to_grant


def error_of(request_class: type[Any], action: Action, code: int, key: str) -> ExactlyOnceError:
    """The caller's error for a code that must not be retried. `key`: the transactional id or the group."""
    api, name = m.api_name(request_class.API_KEY), name_of(code)
    facts: dict[str, Any] = {"api": api, "key": key, "code": name}
    if action is Action.FENCED:
        return ProducerFenced(
            f"{api} for {key!r} answered {name}: a newer producer owns this id, so this one stops and its "
            "open transaction is aborted; if two queries share a pipeline name, rename one of them; "
            "two writes of one batch.id keep it, and one of them runs",
            facts,
        )
    if action is Action.ABORT:
        return AbortableError(f"{api} for {key!r} answered {name}: this transaction can only be aborted", facts)
    if action is Action.AUTHORIZE:
        return AuthorizationFailed(
            f"{api} for {key!r} was refused: {name}; grant {to_grant(request_class.API_KEY, code)}; no "
            "record of the open transaction is visible",
            facts,
        )
    if action is Action.REFUSE and code == Code.INVALID_TRANSACTION_TIMEOUT:
        return OptionsError(
            f"the broker refuses the transaction timeout for {key!r}: it exceeds the broker's "
            "transaction.max.timeout.ms; nothing was written; lower kafka.transaction.timeout.ms",
            facts,
        )
    if request_class is m.TxnOffsetCommitRequest and code == Code.GROUP_ID_NOT_FOUND:
        return OptionsError(
            f"{key!r} is no consumer group: the brokers have a group of another type under that name (a share group, for example), "
            "which takes no offsets; nothing of the batch is visible; name another group with offsets.group",
            facts,
        )
    return ProtocolViolation(f"{api} for {key!r} answered {name}, which is not a valid answer to this request", facts)


def codes_of(
    request_class: type[Any], asked: Collection[TopicPartition], found: Mapping[TopicPartition, int]
) -> list[int]:
    """The codes of the requested partitions; ProtocolViolation where the answer has others or lacks one."""
    mismatch = set(asked) ^ set(found)
    if mismatch:
        where = min(mismatch)
        raise ProtocolViolation(
            f"{m.api_name(request_class.API_KEY)} {'leaves out' if where in asked else 'answered for'} {where}, which was "
            f"{'' if where in asked else 'not '}requested; whether the request took effect is unknown, "
            "so the transaction is aborted",
            {"partition": str(where)},
        )
    return list(found.values())


def decisive_code(api_key: int, codes: Sequence[int]) -> int:
    """The decisive code of an answer that has several."""
    # One partition's refusal gives its neighbours OPERATION_NOT_ATTEMPTED. That code alone would be retried,
    # and it explains nothing to a reader.
    found: int = Code.NONE
    for code in codes:
        action = action_for(api_key, code)
        if action not in (Action.DONE, Action.RETRY, Action.REDISCOVER):
            return code
        if action is not Action.DONE and found in (Code.NONE, Code.OPERATION_NOT_ATTEMPTED):
            found = code
    return found


def not_found_error(kind: str, key: str, action: Action, code: int) -> ExactlyOnceError:
    """The error for a FindCoordinator code that must not be retried. `kind`: "group" or "transaction"."""
    facts = {"key": key, "code": name_of(code)}
    if action is Action.AUTHORIZE:
        right = "READ on the group" if kind == "group" else "WRITE on the transactional id prefix"
        return AuthorizationFailed(f"no right to use {kind} {key!r}: {name_of(code)}; grant {right}", facts)
    return ProtocolViolation(f"FindCoordinator answered {name_of(code)} for {key!r}", facts)


def no_answer(request_class: type[Any], key: str, last: str, deadline_ms: float) -> OutcomeUnknown:
    """The error where time was over before an answer was definite. `last`: why the last one was not."""
    api = m.api_name(request_class.API_KEY)
    return OutcomeUnknown(
        f"{api} for {key!r} got no definite answer within the time allowed "
        f"(last: {last}); this does not decide the transaction; the next run starts a new epoch",
        {"api": api, "key": key, "timeout_ms": deadline_ms},
    )
