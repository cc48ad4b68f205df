"""Records of `__consumer_offsets` are Kafka's, byte for byte; what cannot be read is refused."""

from __future__ import annotations

import random
import string

import pytest

from embedded_kafka.groups.machine.moves import Group, GroupState, Limits, Member
from embedded_kafka.groups.offsets import CommittedOffset
from embedded_kafka.groups.offsets_log import (
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.java_hash import java_hash, partition_of
from kafka_core.errors import CorruptBatch, UnsupportedVersion
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

WHERE = TopicPartition("orders", 7)
LIMITS = Limits()

# Written out by hand from OffsetCommitKey.json, OffsetCommitValue.json, GroupMetadataKey.json and
# GroupMetadataValue.json.
OFFSET_KEY = bytes.fromhex("0001 0001") + b"g" + bytes.fromhex("0006") + b"orders" + bytes.fromhex("00000007")
OFFSET_V3 = bytes.fromhex("0003 000000000000002a 00000005 0002") + b"md" + bytes.fromhex("0000018bcfe56800")
OFFSET_V1 = bytes.fromhex("0001 000000000000002a 0002") + b"md" + bytes.fromhex("0000018bcfe56800 0000018bcfe56be8")
GROUP_KEY = bytes.fromhex("0002 0001") + b"g"
GROUP_V3 = (
    bytes.fromhex("0003 0008")
    + b"consumer"
    + bytes.fromhex("00000004 0005")
    + b"range"
    + bytes.fromhex("0001")
    + b"a"
    + bytes.fromhex("0000018bcfe56800 00000001")
    + bytes.fromhex("0001")
    + b"a"
    + bytes.fromhex("0003")
    + b"i-a"
    + bytes.fromhex("0002")
    + b"cl"
    + bytes.fromhex("0002")
    + b"/h"
    + bytes.fromhex("0000ea60 00002710 00000003")
    + b"sub"
    + bytes.fromhex("00000002")
    + b"as"
)

COMMIT = CommittedOffset(42, 5, "md", 1_700_000_000_000)
MEMBER = Member("a", "i-a", "cl", "/h", 10_000, 60_000, (("range", b"sub"),), b"as")
GROUP = Group(
    "g",
    LIMITS,
    GroupState.STABLE,
    4,
    "consumer",
    "range",
    "a",
    {"a": MEMBER},
    state_since_ms=1_700_000_000_000,
)


def test_what_is_written_is_what_kafka_writes() -> None:
    assert encode_offset_key("g", WHERE) == OFFSET_KEY
    assert encode_offset(COMMIT) == OFFSET_V3
    assert encode_offset(CommittedOffset(42, 5, "md", 1_700_000_000_000, 1_700_000_001_000)) == OFFSET_V1
    assert encode_group_key("g") == GROUP_KEY
    assert encode_group(GROUP) == GROUP_V3


def test_what_kafka_writes_is_read() -> None:
    assert decode_key(OFFSET_KEY) == OffsetKey("g", WHERE)
    assert decode_key(b"\0\0" + OFFSET_KEY[2:]) == OffsetKey("g", WHERE)
    assert decode_key(GROUP_KEY) == GroupKey("g")
    assert decode_offset(OFFSET_V3, 9) == CommittedOffset(42, 5, "md", 1_700_000_000_000, log_offset=9)
    assert decode_offset(OFFSET_V1, 9) == CommittedOffset(42, -1, "md", 1_700_000_000_000, 1_700_000_001_000, 9)
    assert decode_group("g", GROUP_V3, LIMITS) == GROUP


@pytest.mark.parametrize("version", [0, 2])
def test_the_older_forms_of_a_commit_have_no_leader_epoch(version: int) -> None:
    value = version.to_bytes(2, "big") + OFFSET_V3[2:10] + OFFSET_V3[14:]
    assert decode_offset(value, 0) == CommittedOffset(42, -1, "md", 1_700_000_000_000, log_offset=0)


def test_the_flexible_form_of_a_commit_is_read_with_fields_that_are_not_known() -> None:
    value = bytes.fromhex("0004 000000000000002a 00000005 03") + b"md" + bytes.fromhex("0000018bcfe56800")
    assert decode_offset(value + b"\0", 0).metadata == "md"
    assert decode_offset(value + bytes.fromhex("01 00 10") + bytes(16), 0).offset == 42


def test_the_older_and_newer_forms_of_a_group_are_read() -> None:
    member_v0 = b"\0\1a\0\2cl\0\2/h" + bytes.fromhex("00002710 00000003") + b"sub" + b"\0\0\0\2as"
    v0 = b"\0\0\0\x08consumer\0\0\0\4\0\5range\0\1a\0\0\0\1" + member_v0
    read = decode_group("g", v0, LIMITS)
    assert read.members["a"].rebalance_timeout_ms == 10_000
    assert (read.members["a"].instance_id, read.state_since_ms) == (None, -1)

    member_v4 = b"\2a\4i-a\3cl\3/h" + bytes.fromhex("0000ea60 00002710") + b"\4sub\3as\0"
    v4 = (
        b"\0\4\x09consumer\0\0\0\4\6range\2a"
        + bytes.fromhex("0000018bcfe56800")
        + b"\2"
        + member_v4
        + bytes.fromhex("01 05 01 ff")
    )
    assert decode_group("g", v4, LIMITS) == GROUP


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    empty = Group("g", LIMITS, GroupState.EMPTY, 5, "consumer", state_since_ms=12)
    value = encode_group(empty)
    assert value == b"\0\3\0\x08consumer\0\0\0\5" + b"\xff\xff\xff\xff" + (12).to_bytes(8, "big") + b"\0\0\0\0"
    assert decode_group("g", value, LIMITS) == empty


def test_a_key_of_a_newer_kind_is_left_alone() -> None:
    assert decode_key(b"\0\3\0\1g") is None


@pytest.mark.parametrize("version", [-1, 5, 32_767])
def test_a_value_of_an_unknown_version_is_refused(version: int) -> None:
    start = version.to_bytes(2, "big", signed=True)
    with pytest.raises(UnsupportedVersion):
        decode_offset(start + OFFSET_V3[2:], 0)
    with pytest.raises(UnsupportedVersion):
        decode_group("g", start + GROUP_V3[2:], LIMITS)


def test_a_record_that_ends_anywhere_too_early_is_corrupt() -> None:
    for at in range(len(OFFSET_KEY)):
        with pytest.raises(CorruptBatch):
            decode_key(OFFSET_KEY[:at])
    for at in range(len(OFFSET_V3)):
        with pytest.raises(CorruptBatch):
            decode_offset(OFFSET_V3[:at], 0)
    for at in range(len(GROUP_V3)):
        with pytest.raises(CorruptBatch):
            decode_group("g", GROUP_V3[:at], LIMITS)


def test_any_flipped_byte_is_read_as_something_or_refused_and_nothing_else() -> None:
    for at in range(len(GROUP_V3)):
        for flip in (0x01, 0x80, 0xFF):
            value = bytearray(GROUP_V3)
            value[at] ^= flip
            try:
                decode_group("g", bytes(value), LIMITS)
            except (CorruptBatch, UnsupportedVersion):
                continue


def test_a_text_that_does_not_fit_is_refused() -> None:
    encode_group_key("g" * 32_767)
    with pytest.raises(Refused) as refused:
        encode_group_key("g" * 32_768)
    assert refused.value.code is Code.INVALID_REQUEST


@pytest.mark.parametrize("seed", range(20))
def test_what_is_decoded_from_what_was_encoded_is_equal(seed: int) -> None:
    chance = random.Random(seed)

    def text() -> str:
        return "".join(chance.choices(string.printable + "äλ語😀", k=chance.randrange(40)))

    where = TopicPartition(text(), chance.randrange(1 << 31))
    group_id = text()
    assert decode_key(encode_offset_key(group_id, where)) == OffsetKey(group_id, where)

    commit = CommittedOffset(chance.randrange(1 << 63), chance.randrange(100), text(), chance.randrange(1 << 50))
    assert decode_offset(encode_offset(commit), -1) == commit

    members = {
        name: Member(
            name,
            chance.choice([None, text()]),
            text(),
            text(),
            chance.randrange(1 << 31),
            chance.randrange(1 << 31),
            (("range", chance.randbytes(chance.randrange(99))),),
            chance.randbytes(chance.randrange(99)),
        )
        for name in {text() or "x" for _ in range(3)}
    }
    leader = next(iter(members))
    group = Group(group_id, LIMITS, GroupState.STABLE, 3, "consumer", "range", leader, members, state_since_ms=7)
    assert decode_group(group_id, encode_group(group), LIMITS) == group


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(1 << 31)), ("😀", 1772899)],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_lowest_hash_has_a_partition() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("a", 50) == 47
