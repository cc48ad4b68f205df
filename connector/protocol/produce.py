"""A Produce request around one finished batch, sent without a copy of the batch.

Owns: where in the encoded request the records stand.
Does not know: what is in the batch, who sends it.
Invariants: the bytes are those that the library makes of the same request (a test compares them for every version).

The library copies the records twice, into a shared buffer and out of it: half of the client's work for large batches.
Everything but the records is left to the library.
"""

from __future__ import annotations

from typing import Any

from connector.protocol.messages import Message, ProduceRequest

_FIRST_FLEXIBLE = 9
"""From this version on (Kafka 2.4) lengths are varints and structs end in tagged fields (KIP-482)."""

_EMPTY_TAIL = b"\x01\x00\x00\x00"
"""How a request with one partition and no record bytes ends: a length of 0 (plus one), then no tagged fields of
partition, topic and request."""


ACKS_ALL = -1
ACKS_LEADER = 1
"""Who must have a batch before it is acknowledged: every replica in sync, or its leader alone."""


class SingleBatchProduce:
    """What the network loop needs of a request: it stands for a `ProduceRequest` with one topic and one partition."""

    def __init__(self, request: Message, records: bytes | bytearray | memoryview) -> None:
        self._request = request
        self._records = records
        self._apart = False
        self._rest: tuple[bytes | bytearray | memoryview, ...] = ()

    API_KEY = ProduceRequest.API_KEY

    @property
    def API_VERSION(self) -> int:  # noqa: N802 -- the library's name
        """Version of the request."""
        return self._request.API_VERSION  # type: ignore[no-any-return]

    @property
    def header(self) -> Any:
        """The header that `with_header` made."""
        return self._request.header

    def with_header(self, correlation_id: int = 0, client_id: str = "") -> None:
        """Give the request its place in the connection."""
        self._request.with_header(correlation_id=correlation_id, client_id=client_id)

    def expect_response(self) -> bool:
        """Whether the broker answers."""
        return self._request.expect_response()  # type: ignore[no-any-return]

    def keep_records_apart(self) -> None:
        """Have `encode` give only what comes before the records; the sender then writes `take_rest()` right behind it."""
        self._apart = True

    def take_rest(self) -> tuple[bytes | bytearray | memoryview, ...]:
        """What has to follow the encoded bytes. Empty where none were made yet: `encode` then gives all in one piece."""
        rest, self._rest, self._apart = self._rest, (), False
        return rest

    def encode(self, *, header: bool, framed: bool) -> bytes:
        """The request with size and header, as it goes to the socket."""
        assert header
        assert framed
        empty = self._request.encode(header=True, framed=True)
        assert empty.endswith(_EMPTY_TAIL)
        length = _unsigned_varint(len(self._records) + 1)
        size = len(empty) - 4 - 1 + len(length) + len(self._records)
        head = b"".join((size.to_bytes(4, "big"), empty[4 : -len(_EMPTY_TAIL)], length))
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
    """A Produce request for (topic, partition, batch); at most one batch per partition. `acks` not 0: it is answered."""
    topic_class = ProduceRequest.TopicProduceData
    single = len(batches) == 1 and version >= _FIRST_FLEXIBLE
    topics: dict[str, list[Message]] = {}
    for topic, partition, data in batches:
        entry = topic_class.PartitionProduceData(index=partition, records=b"" if single else data)
        topics.setdefault(topic, []).append(entry)
    request = ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[topic_class(name=name, partition_data=entries) for name, entries in topics.items()],
    )
    return SingleBatchProduce(request, batches[0][2]) if single else request


def _unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
