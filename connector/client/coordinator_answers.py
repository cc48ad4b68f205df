"""What a coordinator's answer means: the code that decides, and the error for one after which nobody may ask again.

Owns: the sentences for coordinators' refusals.
Does not know: sockets, when to ask again (`asking`, by the table of codes).
Invariants: an answer that leaves out a partition, or is about another one, is a protocol violation and never a success.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from connector.client.missing_rights import to_grant
from connector.errors import (
    AbortableError,
    AuthorizationFailed,
    ExactlyOnceError,
    OptionsError,
    ProducerFenced,
    ProtocolViolation,
)
from connector.model import TopicPartition
from connector.protocol import messages as m
from connector.protocol.error_codes import Action, Code, action_for, name_of


def error_of(request_class: type[Any], action: Action, code: int, key: str) -> ExactlyOnceError:
    """What a code that nobody may ask again after means for the caller. `key`: the transactional id or the group."""
    api, name = m.api_name(request_class.API_KEY), name_of(code)
    facts: dict[str, Any] = {"api": api, "key": key, "code": name}
    if action is Action.FENCED:
        return ProducerFenced(
            f"{api} for {key!r} answered {name}: a newer owner holds this id; this one stops, and what it had open "
            "is aborted; if two queries share a pipeline name, give one of them another",
            facts,
        )
    if action is Action.ABORT:
        return AbortableError(
            f"{api} for {key!r} answered {name}: this transaction can only be aborted", facts
        )
    if action is Action.AUTHORIZE:
        return AuthorizationFailed(
            f"{api} for {key!r} was refused: {name}; grant {to_grant(request_class.API_KEY, code)}; nothing of the open "
            "transaction is visible",
            facts,
        )
    if action is Action.REFUSE and code == Code.INVALID_TRANSACTION_TIMEOUT:
        return OptionsError(
            f"the broker refuses the transaction timeout for {key!r}: it is above its transaction.max.timeout.ms; "
            "nothing was written; lower kafka.transaction.timeout.ms",
            facts,
        )
    return ProtocolViolation(f"{api} for {key!r} answered {name}, which has no place there", facts)


def codes_of(
    request_class: type[Any], asked: Collection[TopicPartition], found: Mapping[TopicPartition, int]
) -> list[int]:
    """The codes of the partitions asked for; ProtocolViolation where the answer is about others, or leaves one out."""
    astray = set(asked) ^ set(found)
    if astray:
        where = min(astray)
        raise ProtocolViolation(
            f"{m.api_name(request_class.API_KEY)} {'leaves out' if where in asked else 'answered for'} {where}, which was "
            f"{'' if where in asked else 'not '}asked for; whether it took effect is unknown, so the transaction is aborted",
            {"partition": str(where)},
        )
    return list(found.values())


def gravest(api_key: int, codes: Sequence[int]) -> int:
    """The code that decides about an answer with many."""
    # One partition's refusal makes its neighbours answer OPERATION_NOT_ATTEMPTED, which alone would be retried, and
    # which says nothing to a reader.
    found: int = Code.NONE
    for code in codes:
        action = action_for(api_key, code)
        if action not in (Action.DONE, Action.RETRY, Action.REDISCOVER):
            return code
        if action is not Action.DONE and found in (Code.NONE, Code.OPERATION_NOT_ATTEMPTED):
            found = code
    return found


def not_found_error(kind: str, key: str, action: Action, code: int) -> ExactlyOnceError:
    """What a FindCoordinator that nobody may ask again after means. `kind`: "group" or "transaction"."""
    facts = {"key": key, "code": name_of(code)}
    if action is Action.AUTHORIZE:
        return AuthorizationFailed(
            f"no right to use {kind} {key!r}: {name_of(code)}; grant "
            "DESCRIBE and WRITE on the transactional id prefix, READ on the group",
            facts,
        )
    return ProtocolViolation(f"FindCoordinator answered {name_of(code)} for {key!r}", facts)
