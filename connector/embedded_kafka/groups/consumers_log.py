"""Records of `__consumer_offsets` about groups of the consumer protocol, in Kafka's own form: key types 3 to 8 and 16.

Owns: bytes of keys and values; which records lead from one value of a group to the next; what comes of reading them.
Does not know: when they are written.
Invariants:
- Reading the records of every change gives the group as it was, except for its deadlines.
- The order is Kafka's: a member before its target and what it has, tombstones the other way round. Kafka refuses to
  load another one.
Source: Kafka's ConsumerGroup*Key and *Value schemas. Type 4, the topics, is that of Kafka 4.0; later ones read it and
write a hash in its place.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from embedded_kafka.groups.machine.consumer_value import (
    ClassicSide,
    Consumer,
    ConsumerGroup,
    ConsumerLimits,
    Epochs,
    Phase,
    Shares,
    Subscribed,
    TopicId,
    by_topic_id,
)
from embedded_kafka.groups.record_bytes import NO_TAGS, Reader, compact_array, compact_text, text, varint

Record = tuple[bytes, bytes | None]
Records = list[Record]


class RecordKind(Enum):
    """What a record is about; the values are the versions of Kafka's keys."""

    EPOCH = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    EXPRESSION = 16


_OF_A_PART = frozenset({RecordKind.MEMBER, RecordKind.TARGET, RecordKind.CURRENT, RecordKind.EXPRESSION})
_VERSION = struct.pack(">h", 0)
_SINCE = 0
"""The tag of the epochs that brought a member its partitions (KIP-1251)."""
_CLASSIC = 0
"""The tag, in another record, of what a member of the classic protocol has besides."""


@dataclass(frozen=True)
class ConsumerKey:
    """The record is about a group, or about one part of it: a member by its id, or an expression."""

    kind: RecordKind
    group_id: str
    part: str = ""


def encode_consumer_key(key: ConsumerKey) -> bytes:
    """The key in Kafka's form."""
    member = text(key.part) if key.kind in _OF_A_PART else b""
    return struct.pack(">h", key.kind.value) + text(key.group_id) + member


def decode_consumer_key(key: bytes) -> ConsumerKey | None:
    """The decoded key; None where it is about something else."""
    reader = Reader(key)
    version = reader.number(">h")
    if version not in {kind.value for kind in RecordKind}:
        return None
    kind = RecordKind(version)
    return ConsumerKey(kind, reader.text(), reader.text() if kind in _OF_A_PART else "")


# ---- what a change writes


def records_of(group_id: str, before: ConsumerGroup | None, after: ConsumerGroup | None) -> Records:
    """The records that lead from one value to the next; None for a group that is not there."""
    old, new = _parts(before, after), _parts(after, before)
    gone = [key for key in old if key not in new]
    gone.sort(key=lambda key: -key.kind.value)
    changed = [
        (key, value)
        for key, part in new.items()
        if (value := _encoded(key, part)) is not None and value != _encoded(key, old.get(key))
    ]
    changed.sort(key=lambda one: _WRITTEN.index(one[0].kind))
    written: Records = [(encode_consumer_key(key), None) for key in gone]
    return written + [(encode_consumer_key(key), value) for key, value in changed]


_WRITTEN = (
    RecordKind.MEMBER,
    RecordKind.EXPRESSION,
    RecordKind.TOPICS,
    RecordKind.EPOCH,
    RecordKind.TARGET,
    RecordKind.TARGET_EPOCH,
    RecordKind.CURRENT,
)


def _parts(group: ConsumerGroup | None, other: ConsumerGroup | None) -> dict[ConsumerKey, Any]:
    """What each record of the group says, as values, without what is the same object in the other value: a group has
    many members, and most changes are of one."""
    if group is None:
        return {}
    name = group.group_id
    parts: dict[ConsumerKey, Any] = {
        ConsumerKey(RecordKind.EPOCH, name): group.epoch,
        ConsumerKey(RecordKind.TARGET_EPOCH, name): group.assignment_epoch,
        ConsumerKey(RecordKind.TOPICS, name): group.topics,
    }
    before = ConsumerGroup(name) if other is None else other
    for each, member in group.members.items():
        if before.members.get(each) is not member:
            parts[ConsumerKey(RecordKind.MEMBER, name, each)] = member
            parts[ConsumerKey(RecordKind.CURRENT, name, each)] = member
    for kind, mine, its in (
        (RecordKind.TARGET, group.targets, before.targets),
        (RecordKind.EXPRESSION, group.matches, before.matches),
    ):
        if mine is not its:
            parts |= {ConsumerKey(kind, name, each): part for each, part in mine.items() if part is not its.get(each)}
    return parts


def _encoded(key: ConsumerKey, part: Any) -> bytes | None:
    if part is None:
        return None
    tags = b"" if key.kind is RecordKind.MEMBER and part.classic is not None else NO_TAGS
    return _VERSION + _ENCODE[key.kind](part) + tags


def _epoch(epoch: int) -> bytes:
    return struct.pack(">i", epoch)


def _expression(names: frozenset[str]) -> bytes:
    # Of which version of the metadata it is, and when it was resolved: Kafka, when it reads this, does it anew.
    return compact_array([compact_text(name) for name in sorted(names)]) + struct.pack(">qq", 0, 0)


def _topics(topics: Mapping[str, Subscribed]) -> bytes:
    return compact_array(
        [
            topic.topic_id + compact_text(name) + struct.pack(">i", topic.partitions) + compact_array([]) + NO_TAGS
            for name, topic in sorted(topics.items())
        ]
    )


def _member(member: Consumer) -> bytes:
    fields = b"".join(
        (
            compact_text(member.instance_id),
            compact_text(member.rack_id),
            compact_text(member.client_id),
            compact_text(member.client_host),
            compact_array([compact_text(name) for name in member.topics]),
            compact_text(member.regex),
            struct.pack(">i", member.rebalance_timeout_ms),
            compact_text(member.assignor),
        )
    )
    return fields if member.classic is None else fields + _one_tag(_CLASSIC, _classic_side(member.classic))


def _classic_side(side: ClassicSide) -> bytes:
    protocols = [compact_text(name) + varint(len(data) + 1) + data + NO_TAGS for name, data in side.protocols]
    return struct.pack(">i", side.session_timeout_ms) + compact_array(protocols) + NO_TAGS


def _one_tag(number: int, value: bytes) -> bytes:
    return varint(1) + varint(number) + varint(len(value)) + value


def _current(member: Consumer) -> bytes:
    state = struct.pack(">iib", member.epoch, member.previous_epoch, member.phase.value)
    return state + _shares(member.assigned, member.since) + _shares(member.revoking, member.since)


def _numbers(numbers: list[int]) -> bytes:
    return varint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def _shares(shares: Shares, since: Epochs | None = None) -> bytes:
    """`since`: the partitions' epochs, which a tagged field has since Kafka 4.3; earlier ones pass over it."""

    def tags(topic: TopicId, partitions: list[int]) -> bytes:
        if since is None:
            return NO_TAGS
        return _one_tag(_SINCE, _numbers([since[topic, partition] for partition in partitions]))

    return compact_array(
        [topic + _numbers(partitions) + tags(topic, partitions) for topic, partitions in by_topic_id(shares)]
    )


_ENCODE: Mapping[RecordKind, Callable[[Any], bytes]] = {
    RecordKind.EPOCH: _epoch,
    RecordKind.TOPICS: _topics,
    RecordKind.MEMBER: _member,
    RecordKind.TARGET_EPOCH: _epoch,
    RecordKind.TARGET: _shares,
    RecordKind.CURRENT: _current,
    RecordKind.EXPRESSION: _expression,
}


# ---- what reading gives


@dataclass
class _Read:
    epoch: int | None = None
    assignment_epoch: int = 0
    topics: dict[str, Subscribed] = field(default_factory=dict)
    members: dict[str, Consumer] = field(default_factory=dict)
    targets: dict[str, Shares] = field(default_factory=dict)
    current: dict[str, dict[str, Any]] = field(default_factory=dict)
    matches: dict[str, frozenset[str]] = field(default_factory=dict)


class ConsumersRead:
    """The groups of one partition, while its records are read. Compaction leaves them in any order."""

    def __init__(self) -> None:
        self._groups: dict[str, _Read] = {}

    def __contains__(self, group_id: str) -> bool:
        read = self._groups.get(group_id)
        return read is not None and read.epoch is not None

    def take(self, key: ConsumerKey, value: bytes | None) -> None:
        """The next record. CorruptBatch, UnsupportedVersion."""
        read = self._groups.setdefault(key.group_id, _Read())
        reader = None if value is None else Reader(value)
        if reader is not None:
            reader.version("a consumer group's record", highest=0, first_flexible=0)
        if key.kind is RecordKind.EPOCH:
            read.epoch = None if reader is None else reader.number(">i")
        elif key.kind is RecordKind.TARGET_EPOCH:
            read.assignment_epoch = 0 if reader is None else reader.number(">i")
        elif key.kind is RecordKind.TOPICS:
            read.topics = {} if reader is None else dict(reader.array(lambda: _read_topic(reader)))
        elif key.kind is RecordKind.MEMBER:
            _keep(read.members, key, None if reader is None else _read_member(key.part, reader))
        elif key.kind is RecordKind.TARGET:
            _keep(read.targets, key, None if reader is None else _read_shares(reader))
        elif key.kind is RecordKind.EXPRESSION:
            _keep(read.matches, key, None if reader is None else _read_expression(reader))
        else:
            _keep(read.current, key, None if reader is None else _read_current(reader))

    def groups(self, limits: ConsumerLimits) -> Iterator[ConsumerGroup]:
        """Those that exist."""
        for group_id, read in self._groups.items():
            if read.epoch is not None:
                members = {each: replace(member, **read.current.get(each, {})) for each, member in read.members.items()}
                targets = {each: shares for each, shares in read.targets.items() if each in members}
                yield ConsumerGroup(
                    group_id,
                    limits,
                    epoch=read.epoch,
                    assignment_epoch=read.assignment_epoch,
                    members=members,
                    targets=targets,
                    topics=read.topics,
                    matches=read.matches,
                )


def _keep(kept: dict[str, Any], key: ConsumerKey, value: Any) -> None:
    if value is None:
        kept.pop(key.part, None)
    else:
        kept[key.part] = value


def _read_topic(reader: Reader) -> tuple[str, Subscribed]:
    topic_id, name = reader.exactly(16), reader.text()
    partitions = reader.number(">i")

    def racks() -> None:
        reader.number(">i")
        reader.array(reader.text)
        reader.tags()

    reader.array(racks)
    reader.tags()
    return name, Subscribed(topic_id, partitions)


def _read_member(member_id: str, reader: Reader) -> Consumer:
    member = Consumer(
        member_id,
        instance_id=reader.nullable_text(),
        rack_id=reader.nullable_text(),
        client_id=reader.text(),
        client_host=reader.text(),
        topics=tuple(reader.array(reader.text)),
        regex=reader.nullable_text() or "",
        rebalance_timeout_ms=reader.number(">i"),
        assignor=reader.nullable_text(),
    )
    side = reader.tags().get(_CLASSIC)
    return member if side is None else replace(member, classic=_read_classic_side(reader.inner(side)))


def _read_classic_side(reader: Reader) -> ClassicSide:
    session_ms = reader.number(">i")

    def protocol() -> tuple[str, bytes]:
        name, metadata = reader.text(), reader.blob()
        reader.tags()
        return name, metadata

    return ClassicSide(session_ms, tuple(reader.array(protocol)))


def _read_expression(reader: Reader) -> frozenset[str]:
    names = frozenset(reader.array(reader.text))
    reader.number(">q"), reader.number(">q")
    return names


def _read_shares(reader: Reader) -> Shares:
    return frozenset(_read_epochs(reader, 0))


def _read_epochs(reader: Reader, unknown: int) -> Epochs:
    """Partitions with the epochs that brought them; `unknown` where an older Kafka wrote none."""

    def topic() -> list[tuple[tuple[TopicId, int], int]]:
        topic_id = reader.exactly(16)
        partitions = reader.array(lambda: reader.number(">i"))
        tags = reader.tags()
        if _SINCE not in tags:
            return [((topic_id, partition), unknown) for partition in partitions]
        epochs = reader.inner(tags[_SINCE])
        return [
            ((topic_id, partition), epoch)
            for partition, epoch in zip(partitions, epochs.array(lambda: epochs.number(">i")), strict=False)
        ]

    return dict(itertools.chain.from_iterable(reader.array(topic)))


def _read_current(reader: Reader) -> dict[str, Any]:
    epoch, previous = reader.number(">i"), reader.number(">i")
    phase = reader.number(">b")
    assigned, revoking = _read_epochs(reader, epoch), _read_epochs(reader, epoch)
    return {
        "epoch": epoch,
        "previous_epoch": previous,
        "phase": Phase(phase) if phase in {each.value for each in Phase} else Phase.UNRELEASED_PARTITIONS,
        "assigned": frozenset(assigned),
        "revoking": frozenset(revoking),
        "since": {**assigned, **revoking},
    }
