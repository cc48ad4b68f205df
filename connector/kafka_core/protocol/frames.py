"""Shared by all readers of frames here: the request's header, limits, varints, rejection of malformed frames.

Owns: the limits on what one request may hold.
Does not know: any API.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_core.errors import ProtocolViolation

ELEMENTS_AT_MOST = 100_000
"""Array elements of one request, all arrays together: each costs microseconds and some 200 bytes, so the
limit is a moment's work and 20 MB. Half is near what a reader of all 20,000 partitions sends with its nested
arrays; double delays other clients."""

_TAGS_AT_MOST = 64
"""Tagged fields of one struct, which are skipped; Kafka's own requests have at most three."""


class MalformedRequest(ProtocolViolation):
    """A frame is not a request that this broker can read. No part of it was executed; the connection is
    unusable."""


@dataclass(frozen=True)
class RequestHeader:
    """The header of a request. `body_at`: where in the frame the request itself begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def skip_tags(frame: memoryview, at: int) -> int:
    """The position behind the tagged fields at `at`; raises ValueError, IndexError."""
    count, at = varint(frame, at)
    if count > _TAGS_AT_MOST:
        raise ValueError(f"{count} tagged fields")
    for _ in range(count):
        _, at = varint(frame, at)
        size, at = varint(frame, at)
        at += size
    if at > len(frame):
        raise ValueError("a tagged field is longer than the frame")
    return at


def varint(frame: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint and where it ends; raises ValueError, IndexError."""
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a varint of more than five bytes")


def judge_count(elements: int, header: RequestHeader) -> None:
    """Raises MalformedRequest for too many array elements."""
    if elements > ELEMENTS_AT_MOST:
        raise MalformedRequest(
            "a request has more array elements than are allowed",
            {"api_key": header.api_key, "api_version": header.api_version, "limit": ELEMENTS_AT_MOST},
        )
