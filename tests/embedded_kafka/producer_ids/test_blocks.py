"""The arithmetic of blocks and their JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_kafka.producer_ids.block import MAX_PRODUCER_ID, Block, encode, later, next_block, parse
from kafka_core.errors import GarbledBlock, NoProducerIds, ProducerIdsExhausted

OF_THE_DOCUMENTS = b'{"version":1,"broker":35,"block_start":"4000","block_end":"4999"}'


def test_the_first_block_is_0_to_999() -> None:
    """Rule: seed 000 §5.1.2, seed 002 (step 2): no node yet, so 0 to 999."""
    assert next_block(None) == Block(0, 999)


def test_the_next_block_starts_behind_the_latest_and_has_1000_ids() -> None:
    """Rule: seed 000 §5.1.2: the segment is chosen by block_end."""
    assert next_block(Block(4000, 4999)) == Block(5000, 5999)


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_the_next_block_starts_behind_one_of_any_other_size(size: int) -> None:
    assert next_block(Block(7, 7), size) == Block(8, 7 + size)


def test_a_block_that_would_go_beyond_a_long_is_refused_for_good_in_kafkas_words() -> None:
    """Rule: seed 000 §5.1.2: above 2^63-1-1000 it is fatal, "Have exhausted all producerIds."."""
    latest = Block(0, MAX_PRODUCER_ID - 999)

    with pytest.raises(ProducerIdsExhausted) as refused:
        next_block(latest)

    assert refused.value.message == "Have exhausted all producerIds."
    assert refused.value.facts["block_end"] == latest.end
    assert isinstance(refused.value, NoProducerIds)


def test_the_last_block_ends_at_the_largest_long() -> None:
    """Rule: seed 000 §5.1.2: a block_end of exactly 2^63-1-1000 still has a successor."""
    assert next_block(Block(0, MAX_PRODUCER_ID - 1000)).end == MAX_PRODUCER_ID


@pytest.mark.parametrize("size", [0, -1, 2**31])
def test_a_block_has_at_least_one_id_and_at_most_an_int32_of_them(size: int) -> None:
    with pytest.raises(ValueError):
        next_block(None, size)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, 2**63)])
def test_a_block_outside_0_to_the_largest_long_cannot_be_made(start: int, end: int) -> None:
    with pytest.raises(ValueError):
        Block(start, end)


def test_the_later_of_two_blocks_ends_later_and_nothing_is_earlier_than_any() -> None:
    low, high = Block(0, 9), Block(5, 10)

    assert later(low, high) == later(high, low) == high
    assert later(None, low) == later(low, None) == low
    assert later(None, None) is None


def test_the_json_is_kafkas_to_the_byte() -> None:
    """Rule: seed 000 §5.1.2: the format of the node's information."""
    assert encode(Block(4000, 4999), 35) == OF_THE_DOCUMENTS


def test_a_block_of_any_broker_is_read_from_kafkas_json() -> None:
    """Rule: seed 000 §5.1.2: the latest block is read first, whoever claimed it."""
    assert parse(OF_THE_DOCUMENTS) == Block(4000, 4999)


@given(
    st.integers(0, MAX_PRODUCER_ID).flatmap(
        lambda start: st.tuples(st.just(start), st.integers(start, min(MAX_PRODUCER_ID, start + 2**31 - 2)))
    ),
    st.integers(-1, 2**31 - 1),
)
def test_what_is_written_is_read_back(bounds: tuple[int, int], broker_id: int) -> None:
    block = Block(*bounds)

    assert parse(encode(block, broker_id)) == block


def changed(**fields: object) -> bytes:
    """The documents' block with some fields replaced; None takes one away."""
    merged = json.loads(OF_THE_DOCUMENTS) | fields
    return json.dumps({name: value for name, value in merged.items() if value is not None}).encode()


GARBLED = {
    "nothing": b"",
    "no JSON": b"not json",
    "half": OF_THE_DOCUMENTS[:-5],
    "two": OF_THE_DOCUMENTS * 2,
    "bytes that are no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 1000,
    "long": OF_THE_DOCUMENTS + b" " * 2000,
    "no version": changed(version=None),
    "a newer version": changed(version=2),
    "true for a version": changed(version=True),
    "no broker": changed(broker=None),
    "a broker in words": changed(broker="35"),
    "no start": changed(block_start=None),
    "no end": changed(block_end=None),
    "numbers for strings": changed(block_start=4000, block_end=4999),
    "negative": changed(block_start="-1000", block_end="-1"),
    "negative start": changed(block_start="-1"),
    "reversed": changed(block_start="4999", block_end="4000"),
    "too large": changed(block_end=str(2**63)),
    "both too large": changed(block_start=str(2**63), block_end=str(2**63 + 999)),
    "far too large": changed(block_end="9" * 900),
    "longer than an int32": changed(block_start="0", block_end=str(2**31)),
    "signed": changed(block_start="+4000"),
    "spaced": changed(block_start=" 4000"),
    "other digits": changed(block_start="٤٠٠٠"),
    "a line end": changed(block_end="4999\n"),
    "grouped": changed(block_end="4_999"),
    "fraction": changed(block_end="4999.0"),
    "not a number": changed(block_end=float("nan")),
}


@pytest.mark.parametrize("data", GARBLED.values(), ids=GARBLED.keys())
def test_what_is_no_block_is_refused_with_its_content_and_what_to_do(data: bytes) -> None:
    with pytest.raises(GarbledBlock, match="no id was handed out") as refused:
        parse(data)

    assert isinstance(refused.value, NoProducerIds)
    assert data[:3].decode("utf-8", "replace") in str(refused.value.facts["content"])


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_parse_or_be_refused(data: bytes) -> None:
    try:
        parse(data)
    except GarbledBlock:
        return
    assert json.loads(data)["version"] == 1
