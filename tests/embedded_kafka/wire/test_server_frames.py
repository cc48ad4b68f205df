"""What the broker's reader of requests lets through, and that it lets nothing else through."""

from __future__ import annotations

import random
from typing import Any

import pytest

from embedded_kafka.wire.server import (
    REQUESTS,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    FetchRequest,
    MalformedRequest,
    Message,
    MetadataRequest,
    ProduceRequest,
    frame_of,
    parse_header,
    parse_request,
    response_class,
)


def framed(request: Message, client_id: str = "me") -> bytes:
    request.with_header(correlation_id=7, client_id=client_id)
    return bytes(request.encode(header=True, framed=True))[4:]


def read(frame: bytes) -> Message:
    view = memoryview(frame)
    return parse_request(parse_header(view), view)


def produce(version: int, records: bytes | None = b"records") -> Message:
    data = ProduceRequest.TopicProduceData.PartitionProduceData(index=3, records=records)
    topic = ProduceRequest.TopicProduceData(name="a-topic", partition_data=[data])
    return ProduceRequest(version=version, transactional_id="an-id", acks=-1, timeout_ms=1000, topic_data=[topic])


@pytest.mark.parametrize("version", range(3, 13))
def test_a_request_is_read_as_it_was_written(version: int) -> None:
    request = read(framed(produce(version)))

    assert version == request.API_VERSION
    assert (request.transactional_id, request.acks) == ("an-id", -1)
    assert [(t.name, p.index, p.records) for t in request.topic_data for p in t.partition_data] == [
        ("a-topic", 3, b"records")
    ]


@pytest.mark.parametrize("version", range(3, 13))
def test_a_produce_is_read_as_the_library_reads_it_and_its_records_are_not_copied(version: int) -> None:
    data = ProduceRequest.TopicProduceData
    parts = [data.PartitionProduceData(index=index, records=bytes([index]) * 300) for index in (0, 7)]
    topics = [data(name="a", partition_data=parts), data(name="b", partition_data=[])]
    frame = memoryview(framed(ProduceRequest(version=version, acks=1, timeout_ms=-5, topic_data=topics)))
    body = frame[parse_header(frame).body_at :]

    ours, theirs = read(bytes(frame)), ProduceRequest.decode(bytes(body), version=version)
    assert ours == theirs
    assert isinstance(ours.topic_data[0].partition_data[1].records, memoryview)
    assert ours.transactional_id is None


@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_request_that_is_cut_anywhere_is_refused(version: int) -> None:
    whole = framed(produce(version))

    for length in range(len(whole)):
        with pytest.raises(MalformedRequest):
            read(whole[:length])


@pytest.mark.parametrize("version", [3, 9])
def test_bytes_behind_a_request_are_passed_over_as_kafka_does(version: int) -> None:
    assert read(framed(produce(version)) + b"\x00\x01").transactional_id == "an-id"


def test_null_where_nothing_may_be_null_is_refused() -> None:
    request = CreateTopicsRequest(version=2, topics=[], timeout_ms=1)
    frame = framed(request)
    # The array of topics is the first field of the body: a length of -1 instead of 0.
    begin = parse_header(memoryview(frame)).body_at
    with pytest.raises(MalformedRequest, match="topics is null"):
        read(frame[:begin] + b"\xff\xff\xff\xff" + frame[begin + 4 :])


def text_arrays() -> list[tuple[Any, str]]:
    """Requests of the broker, and a field of each that is an array of texts."""
    named = [(each, name, field) for each in REQUESTS.values() for name, field in each._struct.fields.items()]
    return [
        (each, name)
        for each, name, field in named
        if field.is_array() and not field.is_struct_array() and field.array_of.type_str == "string"
    ]


@pytest.mark.parametrize(("request_class", "name"), text_arrays(), ids=lambda each: getattr(each, "__name__", each))
def test_null_in_an_array_of_texts_is_refused_in_every_version(request_class: Any, name: str) -> None:
    """Kafka's generated readers refuse it, too (`was serialized as null`)."""
    field, played = request_class._struct.fields[name], 0
    for version in range(request_class.max_version + 1):
        if field.for_version_q(version) and not field.tagged_field_q(version):
            played += 1
            with pytest.raises(MalformedRequest, match=f"an element of a request's {name} is null"):
                read(framed(request_class(version=version, **{name: ["a", None]})))
    assert played


def test_null_in_an_array_of_texts_further_in_is_refused() -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=["a", None]
    )
    with pytest.raises(MalformedRequest, match="an element of a request's configuration_keys is null"):
        read(framed(DescribeConfigsRequest(version=4, resources=[resource])))


def test_null_where_the_protocol_has_a_meaning_for_it_is_read() -> None:
    assert read(framed(MetadataRequest(version=1, topics=None))).topics is None
    assert read(framed(produce(9, records=None))).topic_data[0].partition_data[0].records is None


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000])
def test_an_array_that_claims_more_than_its_frame_holds_is_refused_at_once(count: int) -> None:
    frame = framed(FetchRequest(version=4, topics=[]))
    with pytest.raises(MalformedRequest):
        read(frame[:-4] + count.to_bytes(4, "big"))


def test_a_header_with_a_client_id_longer_than_the_frame_is_refused() -> None:
    frame = bytearray(framed(produce(3)))
    frame[8:10] = (30_000).to_bytes(2, "big")
    with pytest.raises(MalformedRequest, match="client id"):
        parse_header(memoryview(bytes(frame)))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = framed(produce(9))
    at = parse_header(memoryview(frame)).body_at
    tagged = frame[: at - 1] + b"\x01\x05\x03abc" + frame[at:]

    assert read(tagged).transactional_id == "an-id"


def test_whatever_the_bytes_are_the_answer_is_a_request_or_a_refusal() -> None:
    """Seeded junk, and junk that begins like a request of each API and version."""
    draw = random.Random(20261121)
    outcomes = {"read": 0, "refused": 0}
    for round_ in range(4000):
        api_key = draw.choice(sorted(REQUESTS))
        version = draw.randint(0, REQUESTS[api_key].max_version)
        head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + draw.randbytes(4) + b"\x00\x01x"
        body = draw.choice([draw.randbytes(draw.randint(0, 60)), bytes(draw.randint(0, 40)), b"\xff" * (round_ % 30)])
        try:
            read(head + body)
            outcomes["read"] += 1
        except MalformedRequest:
            outcomes["refused"] += 1

    assert outcomes["refused"] > 2000
    assert outcomes["read"] > 10


def test_an_answer_carries_the_number_of_its_request() -> None:
    response = response_class(ProduceRequest.API_KEY)(version=3, responses=[])
    frame = frame_of(response, 4711)

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 4711
