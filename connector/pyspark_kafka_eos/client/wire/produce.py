"""A Produce request around one finished batch, sent without a copy of the batch.

Owns: the position of the records in the encoded request.
Does not know: the content of the batch, its sender.
Invariants: the bytes equal the library's encoding of the same request (a test compares every version).

The library copies the records twice, into a shared buffer and out of it: half of the client's work for large
batches. This module encodes one request without records for each topic; the requests of a task differ from it
in three numbers and the records.
"""

from __future__ import annotations

import functools
from typing import Any

from kafka_core.protocol.messages import Message, ProduceRequest

_FIRST_FLEXIBLE = 9
"""From this version on (Kafka 2.4) lengths are varints and structs end in tagged fields (KIP-482)."""

_EMPTY_TAIL = b"\x01\x00\x00\x00"
"""How a request with one partition and no record bytes ends: a length of 0 (plus one), then no tagged fields of
partition, topic and request."""

_SIZE = slice(0, 4)
_CORRELATION_ID = slice(8, 12)
_PARTITION_OF_START = slice(-4, None)
"""The places of the int32 values that differ between the requests of one task (KIP-482: request header
version 2, then the fields in order; the partition's index comes right before its records)."""

_TEMPLATES = 256
"""Cached templates of requests: one for each transactional id and topic that is written to. With fewer, a
worker that serves many topics encodes each request again; with more, it keeps the templates of tasks that
ended long ago."""


class _Header:
    """What the library keeps of a request in flight, to decode its answer."""

    __slots__ = ("_response_class", "api_key", "api_version", "correlation_id")

    def __init__(self, version: int, correlation_id: int, response_class: Any) -> None:
        self.api_key = ProduceRequest.API_KEY
        self.api_version = version
        self.correlation_id = correlation_id
        self._response_class = response_class

    def get_response_class(self) -> Any:
        return self._response_class


ACKS_ALL = -1
ACKS_LEADER = 1
"""The replicas that must have a batch before it is acknowledged: all in sync, or the leader alone."""


class SingleBatchProduce:
    """Stands in for a `ProduceRequest` with one topic and one partition, as far as the network loop needs."""

    API_KEY = ProduceRequest.API_KEY

    def __init__(
        self,
        version: int,
        transactional_id: str | None,
        timeout_ms: int,
        topic: str,
        partition: int,
        records: bytes | bytearray | memoryview,
    ) -> None:
        self.API_VERSION = version
        self.header: _Header | None = None
        self._fixed = (transactional_id, timeout_ms, topic)
        self._client_id = ""
        self._partition = partition
        self._records = records
        self._apart = False
        self._rest: tuple[bytes | bytearray | memoryview, ...] = ()

    def with_header(self, correlation_id: int = 0, client_id: str = "") -> None:
        """Set the request's correlation id on its connection, and the client id."""
        _, response_class = _template(client_id, self.API_VERSION, *self._fixed)
        self._client_id = client_id
        self.header = _Header(self.API_VERSION, correlation_id, response_class)

    def expect_response(self) -> bool:
        """Whether the broker answers: with acks=all it does."""
        return True

    def keep_records_apart(self) -> None:
        """Make `encode` return only the bytes before the records; the sender then writes `take_rest()`."""
        self._apart = True

    def take_rest(self) -> tuple[bytes | bytearray | memoryview, ...]:
        """The bytes that follow the encoded ones. Empty before `encode`, which then returns everything."""
        rest, self._rest, self._apart = self._rest, (), False
        return rest

    def encode(self, *, header: bool, framed: bool) -> bytes:
        """The request with size and header, as it goes to the socket."""
        assert header
        assert framed
        assert self.header is not None
        empty, _ = _template(self._client_id, self.API_VERSION, *self._fixed)
        length = _unsigned_varint(len(self._records) + 1)
        size = len(empty) - 4 - 1 + len(length) + len(self._records)
        start = bytearray(empty[: -len(_EMPTY_TAIL)])
        start[_PARTITION_OF_START] = self._partition.to_bytes(4, "big")
        start[_SIZE] = size.to_bytes(4, "big")
        start[_CORRELATION_ID] = self.header.correlation_id.to_bytes(4, "big")
        head = bytes(start + length)
        if self._apart:
            self._rest = (self._records, _EMPTY_TAIL[1:])
            return head
        return b"".join((head, self._records, _EMPTY_TAIL[1:]))


def produce_request(
    version: int,
    transactional_id: str | None,
    timeout_ms: int,
    batches: list[tuple[str, int, bytes | bytearray | memoryview]],
    acks: int = ACKS_ALL,
) -> Message:
    """A Produce request for (topic, partition, batch), at most one batch per partition.

    `acks` is not 0, so the broker answers.
    """
    if len(batches) == 1 and version >= _FIRST_FLEXIBLE and acks == ACKS_ALL:
        return SingleBatchProduce(version, transactional_id, timeout_ms, *batches[0])
    return _by_the_library(version, transactional_id, timeout_ms, batches, acks)


def _by_the_library(
    version: int,
    transactional_id: str | None,
    timeout_ms: int,
    batches: list[tuple[str, int, bytes | bytearray | memoryview]],
    acks: int = ACKS_ALL,
) -> Message:
    topic_class = ProduceRequest.TopicProduceData
    topics: dict[str, list[Message]] = {}
    for topic, partition, data in batches:
        entry = topic_class.PartitionProduceData(index=partition, records=data)
        topics.setdefault(topic, []).append(entry)
    return ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[topic_class(name=name, partition_data=entries) for name, entries in topics.items()],
    )


@functools.lru_cache(maxsize=_TEMPLATES)
def _template(
    client_id: str, version: int, transactional_id: str | None, timeout_ms: int, topic: str
) -> tuple[bytes, Any]:
    """A request without records, encoded by the library, and the class that reads its answer."""
    request = _by_the_library(version, transactional_id, timeout_ms, [(topic, 0, b"")])
    request.with_header(correlation_id=0, client_id=client_id)
    empty = request.encode(header=True, framed=True)
    assert empty.endswith(bytes(4) + _EMPTY_TAIL)
    return empty, request.header.get_response_class()


def _unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
