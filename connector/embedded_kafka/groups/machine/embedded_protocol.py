"""What consumers of the classic protocol say to each other inside JoinGroup and SyncGroup, of which the broker needs
some where a group has members of both protocols.

Owns: ConsumerProtocolSubscription, read; ConsumerProtocolAssignment, read and written.
Does not know: groups, ids of topics.
Source: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment schemas, versions 0 to 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from embedded_kafka.groups.record_bytes import Reader, text
from kafka_core.errors import CorruptBatch

CONSUMER = "consumer"
"""The protocol type of Kafka's consumers; the broker cannot decode the metadata of others
(Connect, Schema Registry)."""

_HIGHEST_VERSION = 3
_FIRST_WITH_OWNED, _FIRST_WITH_GENERATION, _FIRST_WITH_RACK = 1, 2, 3
_GARBLED = "it ends too early, or a name in it is null or not UTF-8"
_NO_USER_DATA = struct.pack(">i", -1)

Named = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic's name, its partitions)."""


class NotConsumers(Exception):
    """The bytes are no message of Kafka's consumers."""


@dataclass(frozen=True)
class Subscription:
    """What one member asks for. `owned`: what it says that it still uses; empty before version 1."""

    topics: tuple[str, ...]
    owned: Named = ()
    rack_id: str | None = None
    version: int = field(default=0, compare=False)


def read_subscription(metadata: bytes) -> Subscription:
    """The metadata of one of a member's protocols. NotConsumers."""
    reader = Reader(metadata)
    try:
        version = min(_version(reader), _HIGHEST_VERSION)
        topics = tuple(reader.array(reader.text))
        # What the assignor of the clients' side says to itself; it may be null.
        reader.exactly(max(reader.number(">i"), 0))
        owned = _named(reader) if version >= _FIRST_WITH_OWNED else ()
        if version >= _FIRST_WITH_GENERATION:
            reader.number(">i")
        rack_id = reader.nullable_text() if version >= _FIRST_WITH_RACK else None
    except CorruptBatch as error:
        raise NotConsumers(_GARBLED) from error
    return Subscription(topics, owned, rack_id, version)


def read_assignment(assignment: bytes) -> Named:
    """A member's partitions; none where it was never assigned any. NotConsumers."""
    if not assignment:
        return ()
    reader = Reader(assignment)
    try:
        _version(reader)
        return _named(reader)
    except CorruptBatch as error:
        raise NotConsumers(_GARBLED) from error


def write_assignment(partitions: Iterable[tuple[str, Iterable[int]]], version: int) -> bytes:
    """The assignment, in the version of the member's subscription; all have the same form."""
    parts = []
    for name, numbers in partitions:
        listed = list(numbers)
        parts.append(text(name) + struct.pack(f">i{len(listed)}i", len(listed), *listed))
    return struct.pack(">hi", version, len(parts)) + b"".join(parts) + _NO_USER_DATA


def _named(reader: Reader) -> Named:
    return tuple(reader.array(lambda: (reader.text(), tuple(reader.array(lambda: reader.number(">i"))))))


def _version(reader: Reader) -> int:
    version = reader.number(">h")
    if version < 0:
        raise NotConsumers(f"there is no version {version}")
    return version
