"""Answers are read from the socket as the library reads them, however they are cut, and nothing of one gets into
another.
"""

from __future__ import annotations

import collections
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.parser import KafkaProtocol

from kafka_core.protocol import messages as m
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.net.fast_socket import _Receiver
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.wire.answer_frames import _IN_PLACE_BYTES, Answers
from pyspark_kafka_eos.model import ClientSettings
from tests.conftest import MakeTopic
from tests.support.brokers import AnyKafka


def fetch_answer(number: int, records: bytes) -> bytes:
    """An answer to the number-th Fetch, as it comes from a broker."""
    topic_class = FetchResponse.FetchableTopicResponse
    partition = topic_class.PartitionData(
        partition_index=0, error_code=0, high_watermark=number, last_stable_offset=number, log_start_offset=0,
        aborted_transactions=[], preferred_read_replica=-1, records=records,
    )  # fmt: skip
    answer = FetchResponse(
        version=12, throttle_time_ms=0, error_code=0, session_id=0,
        responses=[topic_class(topic="t", partitions=[partition])],
    )  # fmt: skip
    answer.with_header(correlation_id=number)
    return bytes(answer.encode(header=True, framed=True))


class Wire:
    """A socket that gives what it has in pieces of the sizes asked for, then nothing for a moment."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data = data
        self._sizes = collections.deque(sizes)
        self._paused = False

    def recv_into(self, target: memoryview) -> int:
        """As socket.recv_into without waiting."""
        self._paused = not self._paused
        if not self.data or (self._paused and self._sizes and self._sizes[0] % 2):
            raise BlockingIOError
        size = min(self._sizes.popleft() if self._sizes else len(self.data), len(target), len(self.data))
        target[:size] = self.data[:size]
        self.data = self.data[size:]
        return size


class Transport:
    """Where the receiver finds its socket."""

    def __init__(self, wire: Wire) -> None:
        self._sock = wire


def expecting(count: int, kind: type[KafkaProtocol] = KafkaProtocol) -> KafkaProtocol:
    """A parser, the library's or ours, after so many Fetch requests."""
    parser = kind(client_id="test")
    for number in range(count):
        parser.send_request(
            m.FetchRequest(version=12, replica_id=-1, max_wait_ms=1, min_bytes=1, max_bytes=1, isolation_level=1,
                           session_id=0, session_epoch=-1, topics=[], forgotten_topics_data=[], rack_id=""),
            correlation_id=number,
        )  # fmt: skip
    return parser


def records_of(answers: list[tuple[int, Any]]) -> list[tuple[int, int, Any]]:
    """Correlation id, high watermark and records of each."""
    found = []
    for correlation_id, answer in answers:
        (partition,) = answer.responses[0].partitions
        found.append((correlation_id, partition.high_watermark, partition.records))
    return found


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=4), st.lists(st.integers(1, 90_000), max_size=20))
def test_answers_are_the_same_however_they_are_cut(lengths: list[int], sizes: list[int]) -> None:
    bodies = [bytes([65 + number]) * length for number, length in enumerate(lengths)]
    wire = b"".join(fetch_answer(number, body) for number, body in enumerate(bodies))
    expected = records_of(expecting(len(bodies)).receive_bytes(wire))
    receiver = _Receiver(expecting(len(bodies), Answers), Transport(Wire(wire, sizes)))

    answers: list[tuple[int, Any]] = []
    while receiver._transport._sock.data:
        data, error = receiver.read_socket()
        assert error is None
        answers += receiver.receive_bytes(data)

    # Compared at the end: the records of the first must not change when the next answers arrive.
    assert records_of(answers) == expected
    for _, _, body in records_of(answers):
        assert isinstance(body, memoryview if len(body) >= _IN_PLACE_BYTES else bytes)


@pytest.mark.parametrize("fast", [True, False], ids=["from the socket", "through the library's buffers"])
def test_large_records_stay_in_their_frame_and_the_librarys_own_decoder_goes_on_copying(fast: bool) -> None:
    sizes = [_IN_PLACE_BYTES - 1, _IN_PLACE_BYTES]
    wire = b"".join(fetch_answer(number, bytes([65 + number]) * size) for number, size in enumerate(sizes))
    parser = expecting(2, Answers)
    answers: list[tuple[int, Any]] = []
    if fast:
        receiver = _Receiver(parser, Transport(Wire(wire, [])))
        while receiver._transport._sock.data:
            answers += receiver.receive_bytes(receiver.read_socket()[0])
    else:
        answers = parser.receive_bytes(wire)

    copied, view = (body for _, _, body in records_of(answers))

    assert isinstance(copied, bytes)
    # The rest of the frame is there too: its head in front of the records, a tagged field's number behind them.
    assert isinstance(view, memoryview)
    assert len(memoryview(view.obj)) > len(view)
    assert [type(body) for _, _, body in records_of(expecting(2).receive_bytes(wire))] == [bytes, bytes]


def test_a_broker_that_goes_away_is_an_error() -> None:
    class Closed:
        def recv_into(self, target: memoryview) -> int:
            return 0

    receiver = _Receiver(expecting(1), Transport(Closed()))  # type: ignore[arg-type]

    _, error = receiver.read_socket()

    assert "disconnected" in str(error)


@pytest.mark.kafka
def test_a_connection_that_fetches_takes_its_answers_this_way(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    values = [bytes([number % 251]) * 50_000 for number in range(100)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(30) == 0
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,), client_id=name))
    try:
        where = TopicPartition(name, 0)
        end = Offsets(cluster).latest([where])[where]
        for _ in range(2):
            read = [
                value.as_py()
                for batch in Fetcher(cluster).read_ranges([OffsetRange(where, 0, end)])
                for value in batch["value"]
            ]
            assert read == values
        connections = cluster.network._manager._conns.values()
        assert any(isinstance(getattr(each.parser, "receiver", None), _Receiver) for each in connections)
    finally:
        cluster.close()
