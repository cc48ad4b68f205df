"""Records about groups of the consumer protocol: what is written is read back equal, in Kafka's order and form."""

from __future__ import annotations

import random
import struct

import pytest

from embedded_kafka.groups.consumers_log import (
    ConsumerKey,
    ConsumersRead,
    RecordKind,
    Records,
    decode_consumer_key,
    encode_consumer_key,
    records_of,
)
from embedded_kafka.groups.machine.consumer_events import Catalogue, Depart, Expel
from embedded_kafka.groups.machine.consumer_moves import ConsumerEvent, handle
from embedded_kafka.groups.machine.consumer_value import ConsumerGroup, ConsumerLimits
from embedded_kafka.groups.machine.events import AnswerLeave, Loaded, Sync
from kafka_core.errors import CorruptBatch, UnsupportedVersion
from tests.embedded_kafka.groups.machine.consumer_tools import (
    EXISTING,
    NOW,
    beat,
    classic_joining,
    joining,
    moved,
    shares,
)

EMPTY = ConsumerGroup("g")
STORY: list[ConsumerEvent] = [
    joining("a", rack_id="r1", assignor="range"),
    joining("b", topics=("t", "u")),
    beat("a", 2),
    joining("s1", instance_id="i", topics=(), regex="t.*", catalogue=Catalogue(EXISTING.topics, {"t.*": frozenset("t")})),
    beat("a", 2, owned=shares(0, 1)),
    Depart(NOW, "s1", "i", -2),
    joining("s2", instance_id="i", topics=(), regex="t.*", catalogue=Catalogue(EXISTING.topics, {"t.*": frozenset("t")})),
    Depart(NOW, "b", None, -1),
    beat("a", 3),
    classic_joining("c", protocols=("range", "sticky")),
    classic_joining("", instance_id="k"),
    Expel(NOW, (("a", None), ("c", None))),
    Sync(NOW, 7, 7, "new", "k"),
]  # fmt: skip


def read(records: Records) -> list[ConsumerGroup]:
    reading = ConsumersRead()
    for key, value in records:
        known = decode_consumer_key(key)
        assert known is not None
        reading.take(known, value)
    return [handle(group, Loaded(NOW))[0] for group in reading.groups(ConsumerLimits())]


def live(group: ConsumerGroup) -> ConsumerGroup:
    """With the deadlines of a restart."""
    return handle(group, Loaded(NOW))[0] if not group.members else moved(unsettled(group), Loaded(NOW))


def unsettled(group: ConsumerGroup) -> ConsumerGroup:
    """As a reader makes it, before its state is known."""
    return ConsumerGroup(
        group.group_id, group.limits, epoch=group.epoch, assignment_epoch=group.assignment_epoch, members=group.members,
        targets=group.targets, topics=group.topics, matches=group.matches,
    )  # fmt: skip


@pytest.mark.parametrize("steps", range(1, len(STORY) + 1))
def test_reading_the_records_of_every_change_gives_the_group_as_it_is(steps: int) -> None:
    group, written = EMPTY, records_of("g", None, EMPTY)
    for event in STORY[:steps]:
        after, (answer,) = handle(group, event)
        assert answer == AnswerLeave((None, None)) if isinstance(event, Expel) else answer.refusal is None
        written += records_of("g", group, after)
        group = after

    assert read(written) == [live(group)]


def test_after_a_groups_tombstones_nothing_is_left_of_it() -> None:
    group = moved(EMPTY, *STORY)

    assert read(records_of("g", None, group) + records_of("g", group, None)) == []


def test_compaction_in_any_order_of_keys_gives_the_same_group() -> None:
    group = moved(EMPTY, *STORY)
    newest = records_of("g", None, group)
    random.Random(1).shuffle(newest)

    assert read(newest) == [live(group)]


def test_a_heartbeat_that_changes_nothing_but_a_deadline_writes_nothing() -> None:
    group = moved(EMPTY, joining("a"))

    assert records_of("g", group, moved(group, beat("a", 2, now_ms=NOW + 100))) == []


def test_the_order_is_one_that_kafka_loads() -> None:
    """A member's tombstone is behind those of what it has and shall have, the group's is last."""
    group = moved(EMPTY, joining("a"))

    def kinds(records: Records) -> list[RecordKind]:
        keys = [decode_consumer_key(key) for key, _ in records]
        return [key.kind for key in keys if key is not None]

    assert kinds(records_of("g", None, group)) == [
        RecordKind.MEMBER, RecordKind.TOPICS, RecordKind.EPOCH, RecordKind.TARGET, RecordKind.TARGET_EPOCH, RecordKind.CURRENT,
    ]  # fmt: skip
    assert kinds(records_of("g", group, None)) == [
        RecordKind.CURRENT, RecordKind.TARGET, RecordKind.TARGET_EPOCH, RecordKind.MEMBER, RecordKind.TOPICS, RecordKind.EPOCH,
    ]  # fmt: skip


def test_keys_are_kafkas() -> None:
    assert encode_consumer_key(ConsumerKey(RecordKind.EPOCH, "g")) == b"\x00\x03\x00\x01g"
    assert encode_consumer_key(ConsumerKey(RecordKind.CURRENT, "g", "m")) == b"\x00\x08\x00\x01g\x00\x01m"
    assert decode_consumer_key(b"\x00\x02\x00\x01g") is None


@pytest.mark.parametrize("kind", RecordKind)
def test_a_garbled_value_is_refused_and_a_newer_one_too(kind: RecordKind) -> None:
    for key, value in records_of("g", None, moved(EMPTY, *STORY)):
        known = decode_consumer_key(key)
        assert known is not None
        assert value is not None
        if known.kind is kind:
            for end in range(2, len(value) - 1):
                with pytest.raises(CorruptBatch):
                    ConsumersRead().take(known, value[:end])
            with pytest.raises(UnsupportedVersion):
                ConsumersRead().take(known, struct.pack(">h", 1) + value[2:])
            return
    raise AssertionError(f"the story writes no {kind.name}")
