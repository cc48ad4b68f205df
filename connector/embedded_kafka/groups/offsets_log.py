"""Records of `__consumer_offsets` in Kafka's own form: committed offsets and the metadata of groups.

Owns: bytes of keys and values. Written: OffsetCommitKey 1 with OffsetCommitValue 3 (1 where a time of expiry is set),
GroupMetadataKey 2 with GroupMetadataValue 3, as Kafka 2.3 and later write them. Read: every version up to 4.
Does not know: when they are written.
Invariants:
- Decoding an encoded value returns an equal value.
- A garbled value raises CorruptBatch, a newer one UnsupportedVersion; no part of either is used.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from embedded_kafka.groups.machine.moves import Group, GroupState, Limits, Member
from embedded_kafka.groups.offsets import NEVER, NO_LEADER_EPOCH, CommittedOffset
from embedded_kafka.groups.record_bytes import Reader, blob, text
from kafka_core.values import TopicPartition

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
FIRST_FLEXIBLE = 4
HIGHEST_VALUE_VERSION = 4


@dataclass(frozen=True)
class OffsetKey:
    """The record is about one partition's offset."""

    group_id: str
    where: TopicPartition


@dataclass(frozen=True)
class GroupKey:
    """The record is about the group itself."""

    group_id: str


def encode_offset_key(group_id: str, where: TopicPartition) -> bytes:
    """The key of a commit."""
    return (
        struct.pack(">h", OFFSET_KEY_VERSION) + text(group_id) + text(where.topic) + struct.pack(">i", where.partition)
    )


def encode_group_key(group_id: str) -> bytes:
    """The key of a group's metadata."""
    return struct.pack(">h", GROUP_KEY_VERSION) + text(group_id)


def encode_offset(offset: CommittedOffset) -> bytes:
    """The value of a commit."""
    if offset.expire_ms != NEVER:
        return (
            struct.pack(">hq", OFFSET_VALUE_VERSION_WITH_EXPIRY, offset.offset)
            + text(offset.metadata)
            + struct.pack(">qq", offset.commit_ms, offset.expire_ms)
        )
    return (
        struct.pack(">hqi", OFFSET_VALUE_VERSION, offset.offset, offset.leader_epoch)
        + text(offset.metadata)
        + struct.pack(">q", offset.commit_ms)
    )


def encode_group(group: Group) -> bytes:
    """The value of a group's metadata: the generation with its assignment."""
    parts = [
        struct.pack(">h", GROUP_VALUE_VERSION),
        text(group.protocol_type or ""),
        struct.pack(">i", group.generation),
        text(group.protocol_name),
        text(group.leader),
        struct.pack(">qi", group.state_since_ms, len(group.members)),
    ]
    for member in group.members.values():
        parts += [
            text(member.member_id),
            text(member.instance_id),
            text(member.client_id),
            text(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            blob(member.metadata(group.protocol_name)),
            blob(member.assignment),
        ]
    return b"".join(parts)


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """The decoded key; None for a kind that only newer Kafka versions write."""
    reader = Reader(key)
    version = reader.number(">h")
    if version in (0, OFFSET_KEY_VERSION):
        group_id, topic = reader.text(), reader.text()
        return OffsetKey(group_id, TopicPartition(topic, reader.number(">i")))
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.text())
    return None


def decode_offset(value: bytes, log_offset: int) -> CommittedOffset:
    """The value of a commit at `log_offset`."""
    reader = Reader(value)
    version = reader.version("a committed offset", highest=HIGHEST_VALUE_VERSION, first_flexible=FIRST_FLEXIBLE)
    offset = reader.number(">q")
    leader_epoch = reader.number(">i") if version >= 3 else NO_LEADER_EPOCH
    metadata = reader.text()
    commit_ms = reader.number(">q")
    expire_ms = reader.number(">q") if version == 1 else NEVER
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, log_offset)


def decode_group(group_id: str, value: bytes, limits: Limits) -> Group:
    """A group's value. Every member is assumed to support the one protocol that its generation used."""
    reader = Reader(value)
    version = reader.version("a group's metadata", highest=HIGHEST_VALUE_VERSION, first_flexible=FIRST_FLEXIBLE)
    protocol_type = reader.text() or None
    generation = reader.number(">i")
    protocol_name = reader.nullable_text()
    leader = reader.nullable_text()
    since_ms = reader.number(">q") if version >= 2 else -1
    members = {}
    for _ in range(reader.count()):
        member = _decode_member(reader, version, protocol_name or "")
        members[member.member_id] = member
    return Group(
        group_id,
        limits,
        GroupState.STABLE if members else GroupState.EMPTY,
        generation,
        protocol_type,
        protocol_name,
        leader,
        members,
        state_since_ms=since_ms,
    )


def _decode_member(reader: Reader, version: int, protocol: str) -> Member:
    member_id = reader.text()
    instance_id = reader.nullable_text() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_ms = reader.number(">i") if version >= 1 else -1
    session_ms = reader.number(">i")
    subscription, assignment = reader.blob(), reader.blob()
    reader.tags()
    return Member(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_ms,
        session_ms if version == 0 else rebalance_ms,
        ((protocol, subscription),),
        assignment,
    )
