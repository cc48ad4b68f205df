"""Records of the transaction log, against bytes that Kafka 4.3's own generated classes wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_kafka.transactions.machine.events import TransactionLogEntry, TransactionState
from embedded_kafka.transactions.state_log import (
    TAG_LAST_EPOCH,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kafka_core.errors import CorruptBatch, UnsupportedVersion
from kafka_core.values import TopicPartition

PREPARED = TransactionLogEntry(
    producer_id=4001,
    epoch=32_767,
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    partitions=frozenset({TopicPartition("a", 0), TopicPartition("a", 300), TopicPartition("b", 1)}),
    start_ms=1_700_000_000_000,
    last_update_ms=1_700_000_000_123,
)
PREPARED_V1 = replace(PREPARED, previous_producer_id=4001, next_producer_id=5000, version=2)
EMPTY = TransactionLogEntry(producer_id=0, epoch=0, timeout_ms=60_000, last_update_ms=1_700_000_000_123)

KAFKA = {
    (PREPARED, 0): "00000000000000000fa17fff0000ea60020000000200016100000002000000000000012c0001620000000100"
    "0000010000018bcfe5687b0000018bcfe56800",
    (PREPARED_V1, 1): "00010000000000000fa17fff0000ea600203026103000000000000012c0002620200000001000000018bcf"
    "e5687b0000018bcfe568000300080000000000000fa10108000000000000138802020002",
    (EMPTY, 0): "0000000000000000000000000000ea6000ffffffff0000018bcfe5687bffffffffffffffff",
    (EMPTY, 1): "0001000000000000000000000000ea6000000000018bcfe5687bffffffffffffffff00",
}


@pytest.mark.parametrize(("entry", "version"), KAFKA)
def test_values_are_byte_for_byte_kafkas(entry: TransactionLogEntry, version: int) -> None:
    known = bytes.fromhex(KAFKA[entry, version])
    assert encode_value(entry, version) == known
    assert decode_value(known) == entry


def test_keys_are_byte_for_byte_kafkas() -> None:
    known = bytes.fromhex("000000056d792dc3a4")
    assert encode_key("my-ä") == known
    assert decode_key(known) == "my-ä"


def test_keys_of_another_version_are_somebody_elses() -> None:
    assert decode_key(b"\x00\x01whatever") is None


def test_a_dead_id_is_a_tombstone() -> None:
    assert encode_value(replace(EMPTY, state=TransactionState.DEAD), 1) is None


def test_the_last_epoch_is_in_the_record_of_version_1() -> None:
    """Rule: seed 001 public interfaces. Kafka's record has no such field up to 4.4.0 (KAFKA-20357 comes later), so it
    is a tagged one of ours.
    """
    entry = replace(EMPTY, epoch=6, last_epoch=5)
    value = encode_value(entry, 1)
    assert value is not None and decode_value(value) == entry
    plain = encode_value(replace(entry, last_epoch=-1), 1)
    assert plain is not None
    # What Kafka reads is unchanged: the same bytes, then one tag more, which it steps over.
    assert value == plain[:-1] + b"\x01" + b"\xe8\x02" + b"\x02" + b"\x00\x05"
    assert TAG_LAST_EPOCH == 0xE8 & 0x7F | 2 << 7


def test_tags_of_a_newer_kafka_are_stepped_over() -> None:
    value = encode_value(EMPTY, 1)
    assert value is not None
    assert decode_value(value[:-1] + b"\x01\x03\x02\x00\x07") == EMPTY


def test_a_value_of_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        decode_value(b"\x00\x02" + bytes(40))


def test_a_state_that_kafka_does_not_have_is_refused() -> None:
    value = bytearray(bytes.fromhex(KAFKA[EMPTY, 1]))
    value[16] = 9
    with pytest.raises(CorruptBatch, match="state"):
        decode_value(bytes(value))


@pytest.mark.parametrize(("entry", "version"), KAFKA)
def test_a_value_that_is_cut_anywhere_is_refused(entry: TransactionLogEntry, version: int) -> None:
    whole = bytes.fromhex(KAFKA[entry, version])
    for size in range(len(whole)):
        with pytest.raises(CorruptBatch):
            decode_value(whole[:size])


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
places = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))
shorts, longs = st.integers(-1, 2**15 - 1), st.integers(-1, 2**63 - 1)
entries = st.builds(
    TransactionLogEntry,
    producer_id=longs,
    epoch=shorts,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(
        [state for state in TransactionState if state not in (TransactionState.DEAD, TransactionState.EMPTY)]
    ),
    partitions=st.frozensets(places, max_size=20),
    start_ms=longs,
    last_update_ms=longs,
    last_epoch=shorts,
    previous_producer_id=longs,
    next_producer_id=longs,
    version=st.sampled_from([0, 2]),
)


@given(entries)
def test_what_is_encoded_is_decoded(entry: TransactionLogEntry) -> None:
    value = encode_value(entry, 1)
    assert value is not None and decode_value(value) == entry
    old = encode_value(entry, 0)
    assert old is not None
    assert decode_value(old) == replace(entry, last_epoch=-1, previous_producer_id=-1, next_producer_id=-1, version=0)


@given(st.binary(max_size=120))
def test_garbage_is_refused_or_read_and_nothing_else(garbage: bytes) -> None:
    try:
        decode_value(garbage)
    except (CorruptBatch, UnsupportedVersion):
        return


@given(names)
def test_keys_come_back(name: str) -> None:
    assert decode_key(encode_key(name)) == name
