"""Bytes from anybody: the connection that sends them gets an error or is closed, the others go on, memory stays
bounded.

The seed is fixed, and the number of the frame is in a failure's message.
"""

from __future__ import annotations

import random
import socket
import struct
import zlib
from collections.abc import Iterator

import crc32c
import pytest
from confluent_kafka import Producer

from embedded_kafka import EmbeddedKafka
from embedded_kafka.apis import HANDLERS
from embedded_kafka.wire.server import (
    REQUESTS,
    CreateTopicsRequest,
    FetchRequest,
    JoinGroupRequest,
    Message,
    MetadataRequest,
    OffsetCommitRequest,
)
from tests.embedded_kafka.node_tools import produce, records
from tests.support.memory import resident_bytes

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

SEED = 20261121
CONNECTIONS = 1_000
ANSWERS_WITHIN_S = 20.0
MEMORY_MAY_GROW_BYTES = 200 * 1024 * 1024


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as broker:
        yield broker


def connect(kafka: EmbeddedKafka) -> socket.socket:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=ANSWERS_WITHIN_S)


def is_closed(connection: socket.socket) -> bool:
    """Whether the broker closes without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def lives(kafka: EmbeddedKafka) -> bool:
    """Another client writes a record and has it acknowledged."""
    delivered: list[object] = []
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    writer.produce("alive", b"value", on_delivery=lambda error, _message: delivered.append(error))
    writer.flush(ANSWERS_WITHIN_S)
    return delivered == [None]


def frame(request: Message, client_id: str = "me") -> bytes:
    request.with_header(correlation_id=7, client_id=client_id)
    return bytes(request.encode(header=True, framed=True))


def head(api_key: int, version: int) -> bytes:
    return struct.pack(">hhihc", api_key, version, 7, 1, b"x")


@pytest.mark.parametrize("length", [-1, 0, 9, 2**31 - 1, -(2**31), 200_000_000])
def test_a_length_that_no_request_has_closes_the_connection(kafka: EmbeddedKafka, length: int) -> None:
    before = resident_bytes(kafka.pid)
    with connect(kafka) as connection:
        connection.sendall(struct.pack(">i", length) + head(0, 9))
        assert is_closed(connection)
    assert resident_bytes(kafka.pid) - before < MEMORY_MAY_GROW_BYTES
    assert lives(kafka)


def test_only_produce_may_be_large(kafka: EmbeddedKafka) -> None:
    with connect(kafka) as connection:
        connection.sendall(struct.pack(">i", 50_000_000) + head(3, 12))
        assert is_closed(connection)


@pytest.mark.parametrize(("api_key", "version"), [(0, 2), (0, 13), (1, 99), (3, -1), (999, 0), (-1, 0), (22, 6)])
def test_an_unknown_api_or_version_closes_the_connection(kafka: EmbeddedKafka, api_key: int, version: int) -> None:
    with connect(kafka) as connection:
        body = head(api_key, version) + bytes(20)
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert is_closed(connection)
    assert lives(kafka)


def test_a_client_that_sends_half_a_request_keeps_nobody_waiting(kafka: EmbeddedKafka) -> None:
    with connect(kafka) as connection:
        connection.sendall(frame(MetadataRequest(version=12, topics=None))[:-3])
        assert lives(kafka)


def test_a_hundred_half_sent_large_requests_take_no_memory_for_what_has_not_come(
    kafka: EmbeddedKafka,
) -> None:
    before = resident_bytes(kafka.pid)
    connections = [connect(kafka) for _ in range(100)]
    try:
        for connection in connections:
            connection.sendall(struct.pack(">i", 100_000_000) + head(0, 9))
        assert lives(kafka)
        # 10 GB were announced.
        assert resident_bytes(kafka.pid) - before < 2 * MEMORY_MAY_GROW_BYTES
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000_000])
def test_an_array_bomb_closes_the_connection_at_once(kafka: EmbeddedKafka, count: int) -> None:
    before = resident_bytes(kafka.pid)
    with connect(kafka) as connection:
        body = head(3, 4) + struct.pack(">i", count) + b"\x00\x01a" * 1000
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert is_closed(connection)
    assert resident_bytes(kafka.pid) - before < MEMORY_MAY_GROW_BYTES


@pytest.mark.parametrize(
    ("api_key", "version", "before_array", "element"),
    [(3, 4, b"", b"\x00\x00"), (0, 3, b"\xff\xff" + bytes(6), bytes(6)), (15, 2, b"", b"\x00\x01a")],
    ids=["Metadata", "Produce", "DescribeGroups"],
)
def test_a_large_array_of_tiny_elements_is_refused_before_it_costs_anything(
    kafka: EmbeddedKafka, api_key: int, version: int, before_array: bytes, element: bytes
) -> None:
    """As many as fit into the largest request of the API: they are all there, so no length is wrong."""
    before = resident_bytes(kafka.pid)
    count = (90_000_000 if api_key == 0 else 2_000_000) // len(element)
    with connect(kafka) as connection:
        body = head(api_key, version) + before_array + struct.pack(">i", count) + element * count + b"\x00"
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert is_closed(connection)
    assert resident_bytes(kafka.pid) - before < 2 * MEMORY_MAY_GROW_BYTES
    assert lives(kafka)


def test_a_compression_bomb_is_kept_as_it_came_and_not_unpacked(kafka: EmbeddedKafka) -> None:
    """The broker looks at a batch's header alone; what unpacks it is the reader, which has a limit of its own."""
    bomb = zlib.compress(bytes(500_000_000), 9)
    batch = bytearray(records()[:61]) + bomb[:900_000]
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    batch[21:23] = struct.pack(">h", 1)
    batch[17:21] = struct.pack(">I", crc32c.crc32c(bytes(batch[21:])))
    before = resident_bytes(kafka.pid)
    with connect(kafka) as connection:
        connection.sendall(
            frame(MetadataRequest(version=4, topics=[MetadataRequest.MetadataRequestTopic(name="bombs")]))
        )
        assert connection.recv(4)
    with connect(kafka) as connection:
        connection.sendall(frame(produce("bombs", bytes(batch), version=3)))
        assert connection.recv(4)
    assert resident_bytes(kafka.pid) - before < MEMORY_MAY_GROW_BYTES
    assert lives(kafka)


def test_more_connections_than_the_limit_are_refused_and_the_others_go_on() -> None:
    with EmbeddedKafka(config={"max.connections": "20"}) as small:
        kept = [connect(small) for _ in range(20)]
        try:
            for connection in kept:
                connection.sendall(frame(MetadataRequest(version=12, topics=[])))
                assert len(connection.recv(4)) == 4
            with connect(small) as one_more:
                assert is_closed(one_more)
            kept[0].sendall(frame(MetadataRequest(version=12, topics=[])))
            assert kept[0].recv(1)
        finally:
            for connection in kept:
                connection.close()


def originals() -> list[bytes]:
    """Well-formed requests to begin with: one of each API and version, and some with more in them."""
    fetch = FetchRequest.FetchTopic(
        topic="alive",
        partitions=[FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
    )
    commit = OffsetCommitRequest.OffsetCommitRequestTopic
    offset = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    full = [
        produce("alive", records(3), version=9),
        produce("alive", records(3), version=3),
        FetchRequest(version=11, max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[fetch]),
        CreateTopicsRequest(
            version=5,
            topics=[CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)],
            timeout_ms=1,
        ),
        OffsetCommitRequest(version=8, group_id="g", topics=[commit(name="alive", partitions=[offset])]),
        JoinGroupRequest(
            version=5, group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10, protocol_type="consumer",
            protocols=[protocol],
        ),
    ]  # fmt: skip
    every = [
        REQUESTS[key](version=version)
        for key, handler in HANDLERS.items()
        for version in range(handler.VERSIONS[0], handler.VERSIONS[1] + 1)
    ]
    return [frame(request) for request in [*full, *every]]


def mutated(draw: random.Random, original: bytes) -> bytes:
    """One to four bytes changed behind the length, sometimes with bytes cut out or put in; the length says what
    comes.
    """
    body = bytearray(original[4:])
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(body)) if draw.random() < 0.3 else draw.randrange(min(8, len(body) - 1), len(body))
        body[at] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)])
    if draw.random() < 0.2:
        at = draw.randrange(len(body))
        body[at : at + draw.randint(0, 4)] = draw.randbytes(draw.randint(0, 4))
    return struct.pack(">i", len(body)) + bytes(body)


def test_mutated_frames_on_the_wire_leave_the_broker_as_it_was(kafka: EmbeddedKafka) -> None:
    draw = random.Random(SEED)
    seeds = originals()
    lives(kafka)
    before = resident_bytes(kafka.pid)
    for _ in range(CONNECTIONS):
        with connect(kafka) as connection:
            connection.sendall(b"".join(mutated(draw, draw.choice(seeds)) for _ in range(3)))

    assert lives(kafka)
    assert resident_bytes(kafka.pid) - before < MEMORY_MAY_GROW_BYTES
    assert "after an error of the broker" not in kafka.log_path.read_text()
