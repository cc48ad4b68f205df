"""The answer to a request that is refused as a whole: the error code in every field that can hold one.

Owns: how an answer mirrors its request.
Does not know: what any API means; it follows the fields of Kafka's own schemas.
"""

from __future__ import annotations

from typing import Any

from embedded_kafka.wire.server import REQUESTS, ApiVersionsRequest, Message, response_class
from kafka_core.protocol.error_codes import Code

_SAME: dict[str, tuple[str, ...]] = {
    "partition_index": ("partition_index", "index", "partition"),
    "index": ("index", "partition_index"),
    "partition": ("partition", "partition_index"),
    "name": ("name", "topic"),
    "topic": ("topic", "name"),
    "key": ("key",),
    "transactional_id": ("transactional_id",),
    "group_id": ("group_id",),
}
"""Field of the answer -> fields of the request that carry the same thing, in other versions or under another name."""

_OF_THE_ERROR = ("error_code", "partition_error_code")
"""Fields that hold the code; AddPartitionsToTxn has its own name for it."""


def refusal(request: Message, code: Code) -> Message:
    """An answer to `request` with `code` at the top level, or else for each requested item."""
    cls = response_class(request.API_KEY)
    # A client parses an error of ApiVersions as version 0, whatever version its request had (KIP-511).
    version = 0 if request.API_KEY == ApiVersionsRequest.API_KEY else request.API_VERSION
    values = _mirror(request, REQUESTS[request.API_KEY]._struct, cls, cls._struct, version, code)
    return cls(version=version, **values)


def _mirror(asked: Any, asked_struct: Any, answer: Any, answer_struct: Any, version: int, code: Code) -> dict[str, Any]:
    values: dict[str, Any] = {}
    lists = _lists_of(asked, asked_struct, version)
    for name, field in answer_struct.fields.items():
        if not field.for_version_q(version):
            continue
        if name in _OF_THE_ERROR:
            values[name] = int(code)
        elif field.is_struct_array() and not field.tagged_field_q(version):
            item = getattr(answer, field.type_str)
            values[name] = [
                item(**_mirror(one, struct, item, field.array_of, version, code))
                for one, struct in (lists.pop(0) if lists else [])
            ]
        elif not isinstance(asked, int | str) and asked is not None:
            for other in _SAME.get(name, (name,)):
                if hasattr(asked, other) and not isinstance(getattr(asked, other), list):
                    values[name] = getattr(asked, other)
                    break
        elif name in _SAME:
            values[name] = asked
    return values


def _lists_of(asked: Any, struct: Any, version: int) -> list[list[tuple[Any, Any]]]:
    """The request's lists, in the order of its schema: structs, or the plain names and numbers of a list."""
    if struct is None:
        return []
    found: list[list[tuple[Any, Any]]] = []
    for name, field in struct.fields.items():
        if field.is_array() and field.for_version_q(version) and not field.tagged_field_q(version):
            inner = field.array_of if field.is_struct_array() else None
            found.append([(one, inner) for one in getattr(asked, name) or []])
    return found
