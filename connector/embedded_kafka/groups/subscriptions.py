"""The topics that a group's members consume, where they use the consumer protocol.

Owns: decoding the one part of a member's metadata that the broker uses.
Does not know: assignments.
"""

from __future__ import annotations

import struct

from embedded_kafka.groups.machine.moves import Group, GroupState

CONSUMER = "consumer"
"""The protocol type of Kafka's consumers; the broker cannot decode the metadata of others
(Connect, Schema Registry)."""


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics of all members together; None where they are unknown, so any topic may be among them."""
    if group.protocol_type != CONSUMER:
        return None
    if not group.members:
        return frozenset()
    if group.protocol_name is None or group.state is GroupState.DEAD:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(_topics(member.metadata(group.protocol_name)))
        except (struct.error, UnicodeDecodeError):
            return None
    return frozenset(topics)


def _topics(metadata: bytes) -> list[str]:
    """ConsumerProtocolSubscription: version, then the topics; the rest differs by version."""
    _version, count = struct.unpack_from(">hi", metadata, 0)
    at = 6
    topics = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", metadata, at)
        at += 2
        if size < 0 or at + size > len(metadata):
            raise struct.error("a topic's name is longer than the metadata")
        topics.append(metadata[at : at + size].decode())
        at += size
    return topics
