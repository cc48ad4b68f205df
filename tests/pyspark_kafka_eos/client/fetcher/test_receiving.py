"""Answers are received as kafka-python receives them, however they are cut, and nothing of one gets into another."""

from __future__ import annotations

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
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.wire.answer_frames import IN_PLACE_BYTES, BadAnswer
from pyspark_kafka_eos.client.wire.conversation import Conversation, Unanswered
from pyspark_kafka_eos.model import ClientSettings
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.client.client_tools import fed
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


def request() -> m.Message:
    return m.FetchRequest(
        version=12, replica_id=-1, max_wait_ms=1, min_bytes=1, max_bytes=1, isolation_level=1, session_id=0,
        session_epoch=-1, topics=[], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip


def read_by_the_library(count: int, wire: bytes) -> list[tuple[int, Any]]:
    """What kafka-python's parser makes of answers to so many Fetch requests."""
    parser = KafkaProtocol(client_id="test")
    for number in range(1, count + 1):
        parser.send_request(request(), correlation_id=number)
    return parser.receive_bytes(wire)  # type: ignore[no-any-return]


def expecting(count: int) -> Conversation:
    """A conversation after so many Fetch requests."""
    talk = Conversation("test")
    for _ in range(count):
        talk.encode(request())
    return talk


def records_of(answers: list[Any]) -> list[tuple[int, int, Any]]:
    """Correlation id, high watermark and records of each."""
    found = []
    for asked, answer in answers:
        (partition,) = answer.responses[0].partitions
        number = asked.correlation_id if isinstance(asked, Unanswered) else asked
        found.append((number, partition.high_watermark, partition.records))
    return found


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=4), st.lists(st.integers(1, 90_000), max_size=20))
def test_answers_are_the_same_however_they_are_cut(lengths: list[int], sizes: list[int]) -> None:
    bodies = [bytes([65 + number]) * length for number, length in enumerate(lengths)]
    wire = b"".join(fetch_answer(number, body) for number, body in enumerate(bodies, 1))
    expected = records_of(read_by_the_library(len(bodies), wire))

    answers = fed(expecting(len(bodies)), wire, sizes)

    # Compared at the end: the records of the first must not change when the next answers arrive.
    assert records_of(answers) == expected
    for _, _, body in records_of(answers):
        assert isinstance(body, memoryview if len(body) >= IN_PLACE_BYTES else bytes)


def test_large_records_stay_in_their_frame_and_the_librarys_own_decoder_goes_on_copying() -> None:
    sizes = [IN_PLACE_BYTES - 1, IN_PLACE_BYTES]
    wire = b"".join(fetch_answer(number, bytes([65 + number]) * size) for number, size in enumerate(sizes, 1))

    copied, view = (body for _, _, body in records_of(fed(expecting(2), wire)))

    assert isinstance(copied, bytes)
    # The rest of the frame is there too: its head in front of the records, a tagged field's number behind them.
    assert isinstance(view, memoryview)
    assert len(memoryview(view.obj)) > len(view)
    assert [type(body) for _, _, body in records_of(read_by_the_library(2, wire))] == [bytes, bytes]


def test_a_large_answer_is_received_where_it_stays_but_for_its_beginning() -> None:
    talk = expecting(1)
    wire = fetch_answer(1, bytes(1 << 20))
    assert len(talk.room()) == IN_PLACE_BYTES

    assert fed(talk, wire[:IN_PLACE_BYTES]) == []
    assert len(talk.room()) == len(wire) - IN_PLACE_BYTES
    (found,) = fed(talk, wire[IN_PLACE_BYTES:])

    ((_, _, body),) = records_of([found])
    assert bytes(body) == bytes(1 << 20)


def test_an_answer_that_cannot_be_read_leaves_its_request_unanswered() -> None:
    talk = expecting(2)
    answer = fetch_answer(1, b"fine") + fetch_answer(7, b"of another request")
    room = talk.room()
    room[: len(answer)] = answer
    received = talk.took(len(answer))

    assert next(received)[0].correlation_id == 1
    with pytest.raises(BadAnswer, match="Correlation IDs do not match: sent 2, received 7"):
        next(received)
    assert [each.correlation_id for each in talk.unanswered] == [2]


@pytest.mark.kafka
def test_what_was_written_is_fetched_again_and_again(kafka: AnyKafka, topic: MakeTopic) -> None:
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
    finally:
        cluster.close()
