"""Answers are judged before they are decoded: what a frame claims is not believed, and what Kafka sends is accepted."""

from __future__ import annotations

import struct
import time
import tracemalloc
from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from pyspark_kafka_eos.client.wire.answers import header_end, judge
from tests.pyspark_kafka_eos.client.hostile.recording import Conversation, response_class

TOPIC = MetadataResponse.MetadataResponseTopic
PARTITION = TOPIC.MetadataResponsePartition
JUDGED = (ValueError, IndexError, struct.error)


def metadata(version: int, **changes: Any) -> bytes:
    """An answer with one topic of one partition."""
    partition = PARTITION(
        error_code=0, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1], offline_replicas=[],
    )  # fmt: skip
    topic = TOPIC(error_code=0, name="t", is_internal=False, partitions=[partition])
    fields: dict[str, Any] = {
        "throttle_time_ms": 0, "brokers": [], "cluster_id": "c", "controller_id": 1, "topics": [topic], **changes,
    }  # fmt: skip
    return bytes(MetadataResponse(version=version, **fields).encode(version=version))


def judged(cls: Any, version: int, body: bytes) -> None:
    judge(cls[version], version, memoryview(body), 0)


def test_every_recorded_answer_of_a_broker_is_accepted() -> None:
    count = 0
    for said in Conversation.load().said.values():
        for api, version, body in said:
            cls = response_class(api)
            flexible = cls.flexible_version_q(version) and api != ApiVersionsResponse.API_KEY
            at = header_end(memoryview(bytes(4) + body), flexible)
            judge(cls[version], version, memoryview(bytes(4) + body), at)
            count += 1
    assert count > 30


@pytest.mark.parametrize("version", range(1, 13))
def test_an_answer_is_accepted_whole_and_refused_at_every_byte_that_it_is_cut_at(version: int) -> None:
    body = metadata(version)

    judged(MetadataResponse, version, body)
    for end in range(len(body)):
        with pytest.raises(JUDGED):
            judged(MetadataResponse, version, body[:end])


def test_bytes_behind_an_answer_are_accepted_as_in_kafka() -> None:
    judged(MetadataResponse, 12, metadata(12) + b"more")


def test_null_where_kafka_has_none_is_refused_and_where_it_has_one_is_accepted() -> None:
    judged(MetadataResponse, 12, metadata(12, cluster_id=None))
    for field in ("brokers", "topics"):
        with pytest.raises(ValueError, match=f"{field} is null"):
            judged(MetadataResponse, 12, metadata(12, **{field: None}))


@pytest.mark.parametrize("version", [1, 12])
@pytest.mark.parametrize("count", [2**31 - 1, -2, -(2**31)])
def test_a_count_that_the_frame_has_no_room_for_costs_no_time_and_no_memory(version: int, count: int) -> None:
    flexible = version >= 9
    size = _varint((count + 1) & 0xFFFFFFFF) if flexible else struct.pack(">i", count)
    body = (bytes(4) if version >= 3 else b"") + size + bytes(100_000)
    tracemalloc.start()
    began = time.monotonic()
    try:
        with pytest.raises(JUDGED):
            judged(MetadataResponse, version, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100_000 and time.monotonic() - began < 1


def test_a_frame_of_tiny_elements_that_would_take_gigabytes_is_refused_before_it_is_decoded() -> None:
    # A topic is 26 bytes here, and some 400 as an object.
    topics = 1_000_000
    body = memoryview(bytes(4) + b"\x01" + b"\x01" + bytes(4) + _varint(topics + 1) + bytes(topics * 26))
    began = time.monotonic()

    with pytest.raises(ValueError, match="bytes of memory"):
        judge(MetadataResponse[12], 12, body, 0)

    assert time.monotonic() - began < 5


def test_a_varint_without_end_is_refused_after_five_bytes() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="more than five bytes"):
        judged(MetadataResponse, 12, bytes(4) + b"\xff" * 5_000_000)
    assert time.monotonic() - began < 1


def test_tagged_fields_are_held_to_their_length() -> None:
    answer = FetchResponse(version=12, throttle_time_ms=0, error_code=0, session_id=0, responses=[])
    body = bytes(answer.encode(version=12))
    assert body[-1] == 0

    judged(FetchResponse, 12, body[:-1] + b"\x01\x63\x02ab")
    for tags in (b"\x01\x63\x7f", b"\x41" + b"\x63\x00" * 65, b"\x01\x63"):
        with pytest.raises(JUDGED):
            judged(FetchResponse, 12, body[:-1] + tags)


def test_many_structs_with_tagged_fields_in_a_large_frame_are_refused() -> None:
    # The library copies the rest of the frame at each of them.
    resource = bytes(2) + b"\x01" + b"\x02" + b"\x01" + b"\x01" + b"\x01\x63\x00"
    count = 50_000
    body = bytes(4) + _varint(count + 1) + resource * count + b"\0" + bytes(2_000_000)

    with pytest.raises(ValueError, match="tagged fields"):
        judged(DescribeConfigsResponse, 4, body)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
