"""A Produce request around one batch has the very bytes that the library makes."""

from __future__ import annotations

import pytest

from kafka_core.protocol.messages import HIGHEST, ProduceRequest
from pyspark_kafka_eos.client.wire.produce import SingleBatchProduce, produce_request


def library_request(
    version: int, transactional_id: str | None, batches: list[tuple[str, int, bytes]]
) -> ProduceRequest:
    topic_class = ProduceRequest.TopicProduceData
    return ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1234,
        topic_data=[
            topic_class(name=topic, partition_data=[topic_class.PartitionProduceData(index=partition, records=data)])
            for topic, partition, data in batches
        ],
    )


def by_the_library(version: int, transactional_id: str | None, batches: list[tuple[str, int, bytes]]) -> bytes:
    request = library_request(version, transactional_id, batches)
    request.with_header(correlation_id=77, client_id="me")
    return request.encode(header=True, framed=True)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_383, 16_384, 1_000_000])
@pytest.mark.parametrize("version", range(3, HIGHEST[ProduceRequest.API_KEY] + 1))
@pytest.mark.parametrize("transactional_id", [None, "pipe:0"])
def test_one_batch_is_encoded_as_the_library_would(version: int, size: int, transactional_id: str | None) -> None:
    batch = bytes(range(256)) * (size // 256 + 1)
    batches = [("topic", 3, batch[:size])]

    request = produce_request(version, transactional_id, 1234, [("topic", 3, memoryview(batches[0][2]))])
    request.with_header(correlation_id=77, client_id="me")

    assert request.encode(header=True, framed=True) == by_the_library(version, transactional_id, batches)
    assert isinstance(request, SingleBatchProduce) == (version >= 9)


def test_requests_for_one_topic_differ_in_their_own_numbers() -> None:
    def made(correlation_id: int, client_id: str, partition: int, records: bytes) -> bytes:
        request = produce_request(12, "pipe:0", 1234, [("topic", partition, records)])
        request.with_header(correlation_id=correlation_id, client_id=client_id)
        return request.encode(header=True, framed=True)  # type: ignore[no-any-return]

    def expected(correlation_id: int, client_id: str, partition: int, records: bytes) -> bytes:
        request = library_request(12, "pipe:0", [("topic", partition, records)])
        request.with_header(correlation_id=correlation_id, client_id=client_id)
        return request.encode(header=True, framed=True)  # type: ignore[no-any-return]

    for numbers in [(1, "me", 0, b"a"), (2**31 - 1, "me", 2**31 - 1, b"b" * 300), (7, "another", 5, b"")]:
        assert made(*numbers) == expected(*numbers)


def test_several_batches_go_through_the_library() -> None:
    batches = [("a", 0, b"first"), ("b", 1, b"second")]

    request = produce_request(12, "pipe:0", 1234, [*batches])
    request.with_header(correlation_id=77, client_id="me")

    assert request.encode(header=True, framed=True) == by_the_library(12, "pipe:0", batches)


def test_head_and_records_apart_are_the_same_bytes() -> None:
    batch = b"x" * 20_000
    request = produce_request(12, "pipe:0", 1234, [("topic", 3, batch)])
    assert isinstance(request, SingleBatchProduce)
    request.with_header(correlation_id=77, client_id="me")

    request.keep_records_apart()
    head = request.encode(header=True, framed=True)
    rest = request.take_rest()

    assert rest[0] is batch, "the batch itself, not a copy"
    assert b"".join((head, *rest)) == by_the_library(12, "pipe:0", [("topic", 3, batch)])


def test_a_request_that_waits_in_its_connection_is_whole_when_it_goes() -> None:
    request = produce_request(12, "pipe:0", 1234, [("topic", 3, b"first")])
    assert isinstance(request, SingleBatchProduce)
    request.keep_records_apart()
    assert request.take_rest() == ()

    request.with_header(correlation_id=77, client_id="me")
    assert request.encode(header=True, framed=True) == by_the_library(12, "pipe:0", [("topic", 3, b"first")])
    assert request.take_rest() == ()
