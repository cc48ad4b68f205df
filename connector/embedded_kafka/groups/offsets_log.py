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
from embedded_kafka.refusals import Refused
from kafka_core.errors import CorruptBatch, UnsupportedVersion
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
FIRST_FLEXIBLE = 4
HIGHEST_VALUE_VERSION = 4

MAX_TEXT_BYTES = 32_767
"""The format stores a text's length as a signed 16-bit number."""


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
        struct.pack(">h", OFFSET_KEY_VERSION)
        + _text(group_id)
        + _text(where.topic)
        + struct.pack(">i", where.partition)
    )


def encode_group_key(group_id: str) -> bytes:
    """The key of a group's metadata."""
    return struct.pack(">h", GROUP_KEY_VERSION) + _text(group_id)


def encode_offset(offset: CommittedOffset) -> bytes:
    """The value of a commit."""
    if offset.expire_ms != NEVER:
        return (
            struct.pack(">hq", OFFSET_VALUE_VERSION_WITH_EXPIRY, offset.offset)
            + _text(offset.metadata)
            + struct.pack(">qq", offset.commit_ms, offset.expire_ms)
        )
    return (
        struct.pack(">hqi", OFFSET_VALUE_VERSION, offset.offset, offset.leader_epoch)
        + _text(offset.metadata)
        + struct.pack(">q", offset.commit_ms)
    )


def encode_group(group: Group) -> bytes:
    """The value of a group's metadata: the generation with its assignment."""
    parts = [
        struct.pack(">h", GROUP_VALUE_VERSION),
        _text(group.protocol_type or ""),
        struct.pack(">i", group.generation),
        _text(group.protocol_name),
        _text(group.leader),
        struct.pack(">qi", group.state_since_ms, len(group.members)),
    ]
    for member in group.members.values():
        parts += [
            _text(member.member_id),
            _text(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _bytes(member.metadata(group.protocol_name)),
            _bytes(member.assignment),
        ]
    return b"".join(parts)


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """The decoded key; None for a kind that only newer Kafka versions write."""
    reader = _Reader(key)
    version = reader.number(">h")
    if version in (0, OFFSET_KEY_VERSION):
        group_id, topic = reader.text(), reader.text()
        return OffsetKey(group_id, TopicPartition(topic, reader.number(">i")))
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.text())
    return None


def decode_offset(value: bytes, log_offset: int) -> CommittedOffset:
    """The value of a commit at `log_offset`."""
    reader = _Reader(value)
    version = reader.version("a committed offset")
    offset = reader.number(">q")
    leader_epoch = reader.number(">i") if version >= 3 else NO_LEADER_EPOCH
    metadata = reader.text()
    commit_ms = reader.number(">q")
    expire_ms = reader.number(">q") if version == 1 else NEVER
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, log_offset)


def decode_group(group_id: str, value: bytes, limits: Limits) -> Group:
    """A group's value. Every member is assumed to support the one protocol that its generation used."""
    reader = _Reader(value)
    version = reader.version("a group's metadata")
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


def _decode_member(reader: _Reader, version: int, protocol: str) -> Member:
    member_id = reader.text()
    instance_id = reader.nullable_text() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_ms = reader.number(">i") if version >= 1 else -1
    session_ms = reader.number(">i")
    subscription, assignment = reader.blob(), reader.blob()
    reader.skip_tags()
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


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    if len(encoded) > MAX_TEXT_BYTES:
        raise Refused(Code.INVALID_REQUEST, f"a string of {len(encoded)} bytes does not fit into Kafka's record")
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class _Reader:
    """Reads a record's key or value from its start; CorruptBatch where it ends too early or is malformed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._flexible = False

    def version(self, what: str) -> int:
        version = self.number(">h")
        if not 0 <= version <= HIGHEST_VALUE_VERSION:
            raise UnsupportedVersion(
                f"{what} in __consumer_offsets has a version that this broker does not support; nothing of "
                "it was used; run the Kafka that wrote it",
                {"version": version, "highest_known": HIGHEST_VALUE_VERSION},
            )
        self._flexible = version >= FIRST_FLEXIBLE
        return version

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self._next(struct.calcsize(form)))[0])

    def count(self) -> int:
        return self._varint() - 1 if self._flexible else self.number(">i")

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise self._corrupt("a required string is null")
        return text

    def nullable_text(self) -> str | None:
        size = self._varint() - 1 if self._flexible else self.number(">h")
        if size == -1:
            return None
        try:
            return self._next(size).decode()
        except UnicodeDecodeError as error:
            raise self._corrupt("a string is not UTF-8") from error

    def blob(self) -> bytes:
        return self._next(self.count())

    def skip_tags(self) -> None:
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._next(self._varint())

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._next(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self._corrupt("a varint has more than five bytes")

    def _next(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise self._corrupt("it ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _corrupt(self, why: str) -> CorruptBatch:
        return CorruptBatch(
            f"a record of __consumer_offsets cannot be read: {why}",
            {"at_byte": self._at, "bytes": len(self._data)},
        )
