"""librdkafka and a real broker judge the codec in both directions; they share no line of code with us.

The requests are written out by hand (Produce v7, Fetch v10: the last without flexible fields that know zstd), so that
nothing but the records is under test.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Protocol

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Producer, TopicPartition

from pyspark_kafka_eos.records import decode_many, digest_of, frame, scan
from tests.pyspark_kafka_eos.records.record_rows import Row, columns_of, rows_of, sections_of

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = [
    Row(
        None if i % 5 == 0 else b"key-%d" % i,
        None if i % 7 == 0 else b"value %d " % i * (i % 60),
        tuple((f"h{j % 2}", None if j == 1 else b"%d" % j) for j in range(i % 4)),
        1_700_000_000_000 + i * 13 % 101,
    )
    for i in range(3000)
]
_TIMEOUT_S = 30


class Broker(Protocol):
    """What the fixture `kafka` gives."""

    bootstrap_servers: str


class MakeTopic(Protocol):
    """What the fixture `topic` gives."""

    def __call__(self, partitions: int = 4, **configs: str) -> str: ...


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_we_write_and_the_broker_takes_it(kafka: Broker, topic: MakeTopic, codec: str) -> None:
    name = topic(partitions=1)
    (section,) = sections_of(columns_of(ROWS), [0] * len(ROWS), size=900_000)
    batch = frame(section, producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False, compression=codec)
    assert next(scan(batch))[0].compression == codec
    assert _produce(kafka, name, batch) == (0, 0)
    assert _consumed(kafka, name, len(ROWS)) == ROWS
    assert digest_of(_fetch(kafka, name), 0, True) == section.digest


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_librdkafka_writes(kafka: Broker, topic: MakeTopic, codec: str) -> None:
    name = topic(partitions=1)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec, "linger.ms": 50}
    )  # fmt: skip
    for row in ROWS:
        producer.produce(
            name, row.value, row.key, partition=0, timestamp=row.timestamp_ms, headers=list(row.headers)
        )  # fmt: skip
    assert producer.flush(_TIMEOUT_S) == 0
    batches = list(scan(_fetch(kafka, name)))
    assert codec in {info.compression for info, _ in batches}
    decoded = decode_many(batches)
    assert rows_of(decoded) == ROWS
    assert decoded.offset.tolist() == list(range(len(ROWS)))


@pytest.mark.real
def test_a_broker_that_compresses_anew_changes_neither_rows_nor_digest(kafka: Broker, topic: MakeTopic) -> None:
    name = topic(partitions=1, **{"compression.type": "zstd"})
    (section,) = sections_of(columns_of(ROWS), [0] * len(ROWS), size=900_000)
    batch = frame(section, producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False, compression="lz4")
    assert _produce(kafka, name, batch) == (0, 0)
    stored = _fetch(kafka, name)
    assert {info.compression for info, _ in scan(stored)} == {"zstd"}
    assert rows_of(decode_many(scan(stored))) == ROWS
    assert digest_of(stored, 0, True) == section.digest


def test_a_batch_with_a_flipped_bit_is_refused_by_the_broker(kafka: Broker, topic: MakeTopic) -> None:
    name = topic(partitions=1)
    (section,) = sections_of(columns_of(ROWS[:3]), [0] * 3)
    batch = bytearray(
        frame(section, producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False)
    )  # fmt: skip
    batch[-1] ^= 1
    corrupt_message = 2
    assert _produce(kafka, name, batch)[0] == corrupt_message
    assert _fetch(kafka, name) == b""


def test_a_section_of_the_topics_limit_is_taken_and_one_byte_more_is_not(kafka: Broker, topic: MakeTopic) -> None:
    for spare, answer in ((0, 0), (-1, 10)):  # 10: MESSAGE_TOO_LARGE
        (section,) = sections_of(columns_of([Row(None, b"x" * 5000)]), [0])
        batch = frame(section, producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False)
        name = topic(partitions=1, **{"max.message.bytes": str(len(batch) + spare)})
        assert _produce(kafka, name, batch)[0] == answer


def _consumed(kafka: Broker, topic: str, count: int) -> list[Row]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "judge", "auto.offset.reset": "earliest"}
    )  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        rows = []
        for message in consumer.consume(count, _TIMEOUT_S):
            assert message.error() is None
            kind, timestamp_ms = message.timestamp()
            assert kind == TIMESTAMP_CREATE_TIME
            rows.append(Row(message.key(), message.value(), tuple(message.headers() or ()), timestamp_ms))
        return rows
    finally:
        consumer.close()


def _produce(kafka: Broker, topic: str, batch: memoryview | bytearray) -> tuple[int, int]:
    """Error code and base offset that the broker answers; asked again while it has not heard of a new topic."""
    body = struct.pack(">hhii", -1, -1, _TIMEOUT_S * 1000, 1) + _string(topic)
    body += struct.pack(">iii", 1, 0, len(batch)) + bytes(batch)
    # UNKNOWN_TOPIC_OR_PARTITION, and NOT_LEADER_OR_FOLLOWER of a leader that has not heard that it is one.
    not_yet = (3, 6)
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        answer = _ask(kafka, 0, 7, body)
        error, offset = struct.unpack_from(">hq", answer, 4 + len(_string(topic)) + 4 + 4)
        if error not in not_yet or time.monotonic() > deadline:
            return error, offset


def _fetch(kafka: Broker, topic: str) -> bytes:
    """The whole record set of partition 0, as one fetch gives it."""
    everything = 50_000_000
    body = struct.pack(">iiiibiii", -1, 500, 1, everything, 0, 0, -1, 1) + _string(topic)
    answer = _ask(kafka, 1, 10, body + struct.pack(">iiiqqii", 1, 0, -1, 0, 0, everything, 0))
    at = 4 + 2 + 4 + 4 + len(_string(topic)) + 4
    (_, error, _, _, _, aborted) = struct.unpack_from(">ihqqqi", answer, at)
    assert (error, aborted) in ((0, 0), (0, -1))
    (size,) = struct.unpack_from(">i", answer, at + 34)
    return answer[at + 38 : at + 38 + max(0, size)]


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _ask(kafka: Broker, api_key: int, version: int, body: bytes) -> bytes:
    """One request on a connection of its own; the answer behind its correlation id."""
    host, port = kafka.bootstrap_servers.split(",")[0].rsplit(":", 1)
    request = struct.pack(">hhi", api_key, version, 1) + _string("test") + body
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            return answers.read(size)[4:]
