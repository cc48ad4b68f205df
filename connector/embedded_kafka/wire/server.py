"""The server's side of Kafka's messages: the frames that a broker parses and builds.

Owns: the list of APIs that the broker has, with their message classes as attributes of this module (`FetchRequest`,
`FetchResponse`); the request header; strict checks of untrusted bytes.
Does not know: sockets, the meaning of a request.
Invariants:
- A request is used only if all of it was in its frame and no field is null that must not be.
- Every defect of a frame raises `MalformedRequest` and nothing else.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from kafka.protocol import admin, consumer, metadata, producer, sasl

from embedded_kafka.wire import consumer_groups
from embedded_kafka.wire.produce_reader import read_produce
from kafka_core.protocol import api_versions
from kafka_core.protocol.frames import MalformedRequest, RequestHeader, judge_count, skip_tags
from kafka_core.protocol.messages import Message

__all__ = [
    "APIS",
    "REQUESTS",
    "MalformedRequest",
    "Message",
    "RequestHeader",
    "api_name",
    "frame_of",
    "parse_header",
    "parse_request",
    "response_class",
]

APIS: tuple[str, ...] = (
    "AddOffsetsToTxn", "AddPartitionsToTxn", "AlterConfigs", "ApiVersions", "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat", "CreateAcls",
    "CreatePartitions", "CreateTopics", "DeleteAcls", "DeleteGroups", "DeleteRecords", "DeleteTopics", "DescribeAcls", "DescribeCluster",
    "DescribeConfigs", "DescribeGroups", "DescribeLogDirs", "DescribeProducers", "DescribeTransactions",
    "EndTxn", "Fetch", "FindCoordinator", "Heartbeat", "IncrementalAlterConfigs", "InitProducerId",
    "JoinGroup", "LeaveGroup", "ListGroups", "ListOffsets", "ListTransactions", "Metadata",
    "OffsetCommit", "OffsetDelete", "OffsetFetch", "OffsetForLeaderEpoch", "Produce", "SaslAuthenticate",
    "SaslHandshake", "SyncGroup", "TxnOffsetCommit", "WriteTxnMarkers",
)  # fmt: skip
"""The APIs of the broker, by Kafka's names. Their messages are here; the module of each is in
embedded_kafka/apis."""


def _messages(kind: str) -> dict[str, Any]:
    """The class of each API's requests or responses, by its name; AttributeError for an API that the library does not
    have.
    """
    found = {}
    for api in APIS:
        name = f"{api}{kind}"
        schemas = next(
            (
                each
                for each in (api_versions, consumer_groups, admin, consumer, metadata, producer, sasl)
                if hasattr(each, name)
            ),
            admin,
        )
        found[name] = getattr(schemas, name)
    return found


_REQUESTS, _RESPONSES = _messages("Request"), _messages("Response")
globals().update(_REQUESTS, **_RESPONSES)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A message class of one of the APIs, as `globals()` has it."""


REQUESTS: dict[int, Any] = {message.API_KEY: message for message in _REQUESTS.values()}
"""API key -> class of its requests."""

_ANSWERS: dict[int, Any] = {message.API_KEY: message for message in _RESPONSES.values()}

_PRODUCE = _REQUESTS["ProduceRequest"].API_KEY
_HEADER = struct.Struct(">hhih")


def api_name(api_key: int) -> str:
    """Kafka's name of an API; its number where the broker does not have it."""
    request = REQUESTS.get(api_key)
    return f"API {api_key}" if request is None else request.__name__.removesuffix("Request")


def response_class(api_key: int) -> Any:
    """The class of an API's answers; KeyError for an API that the broker does not have."""
    return _ANSWERS[api_key]


def parse_header(frame: memoryview) -> RequestHeader:
    """The header of one frame (without its length); the tagged fields of the flexible form are skipped.

    Key and version may be unknown: the caller looks them up. MalformedRequest where the frame is too short.
    """
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(frame, 0)
        at = _HEADER.size
        client_id = None
        if length >= 0:
            if at + length > len(frame):
                raise ValueError("the client id is longer than the frame")
            client_id = str(frame[at : at + length], "utf-8")
            at += length
        request = REQUESTS.get(api_key)
        if request is not None and request.flexible_version_q(version):
            at = skip_tags(frame, at)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedRequest(f"a request's header cannot be read: {error}", {"bytes": len(frame)}) from error
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def parse_request(header: RequestHeader, frame: memoryview) -> Message:
    """The request of a frame whose API and version are known to be ones that the library can read."""
    if header.api_key == _PRODUCE:
        return read_produce(header, frame)
    cls = REQUESTS[header.api_key]
    version = header.api_version
    flexible = cls.flexible_version_q(version)
    # The class's own `decode` does not return how far it read: a frame too short at its end would pass.
    decode = cls._struct.compiled_decode_from(version, compact=flexible, tagged=flexible, data_class=cls[None])
    try:
        request, end = decode(frame, header.body_at)
    except (struct.error, IndexError, ValueError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise MalformedRequest(
            f"a request cannot be read: {error}", {"api_key": header.api_key, "api_version": version}
        ) from error
    # Bytes after the request are accepted, as in Kafka: librdkafka's Metadata 13 has three bytes too many.
    if end > len(frame):
        raise MalformedRequest(
            "a request is longer than its frame",
            {"api_key": header.api_key, "api_version": version, "read_bytes": end, "frame_bytes": len(frame)},
        )
    _judge(request, cls._struct, version, header)
    request._header = None  # the library's compiled reader leaves it unset
    request.API_VERSION = version
    return request


def frame_of(response: Message, correlation_id: int) -> bytes:
    """A response with its header and length, as it is sent."""
    response.with_header(correlation_id=correlation_id)
    return response.encode(header=True, framed=True)  # type: ignore[no-any-return]


def _judge(value: Any, struct_field: Any, version: int, header: RequestHeader, elements: int = 0) -> int:
    """Reject invalid nulls (the library reads a length of -1 as None for every string, byte field and array)
    and too many elements; returns how many there are so far."""
    for name, field in struct_field.fields.items():
        if not field.for_version_q(version):
            continue
        inner = getattr(value, name)
        if inner is None:
            if field.nullable_for_version_q(version) or field.tagged_field_q(version) or field.type_str == "uuid":
                continue
            raise _null(f"a request's {name}", version, header)
        if field.is_array():
            elements += len(inner)
            judge_count(elements, header)
            if not field.is_struct_array() and field.array_of.type_str == "string" and None in inner:
                raise _null(f"an element of a request's {name}", version, header)
        if field.is_struct_array():
            for item in inner:
                elements = _judge(item, field.array_of, version, header, elements)
        elif field.is_struct():
            elements = _judge(inner, field, version, header, elements)
    return elements


def _null(what: str, version: int, header: RequestHeader) -> MalformedRequest:
    return MalformedRequest(f"{what} is null", {"api_key": header.api_key, "api_version": version})
