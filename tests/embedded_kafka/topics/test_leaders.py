"""Leaders' epochs: who is told that it knows another leader, where an epoch ended, and records that a new leader
lacks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from embedded_kafka import EmbeddedKafka
from embedded_kafka.wire.server import (
    DescribeProducersRequest,
    ListOffsetsRequest,
    Message,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    WriteTxnMarkersRequest,
)
from kafka_core.errors import OptionsError
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import (
    ask_over_the_wire,
    fetch,
    fetched,
    initialised,
    produce,
    produced,
    records,
    until,
)
from tests.embedded_kafka.test_embedded_kills import TIMEOUT_S, producer

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

EACH = 10
UNKNOWN = (Code.NONE, -1, -1)


@pytest.fixture(params=["1048576", "600"], ids=["one-segment", "many-segments"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedKafka]:
    # The records are of 1970.
    config = {"log.retention.ms": "-1", "log.segment.bytes": request.param}
    with EmbeddedKafka(data_dir=tmp_path, config=config, in_process=True) as broker:
        ask(broker, metadata_of("t"))
        write(broker, 4)
        yield broker


def ask(kafka: EmbeddedKafka, request: Message) -> Any:
    return ask_over_the_wire(kafka.bootstrap_servers, request)


def metadata_of(topic: str) -> Message:
    asked = MetadataRequest.MetadataRequestTopic(name=topic)
    return MetadataRequest(version=8, topics=[asked], allow_auto_topic_creation=True)


def write(kafka: EmbeddedKafka, batches: int, **batch: Any) -> None:
    for _ in range(batches):
        code, _ = produced(ask(kafka, produce("t", records(EACH, **batch))))
        assert code == Code.NONE


def current_epoch(kafka: EmbeddedKafka) -> int:
    return int(ask(kafka, metadata_of("t")).topics[0].partitions[0].leader_epoch)


def end_of(kafka: EmbeddedKafka, epoch: int, current: int = -1) -> tuple[int, int, int]:
    """(error, epoch, end offset) of OffsetForLeaderEpoch."""
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    part = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    asked = OffsetForLeaderEpochRequest(version=4, replica_id=-1, topics=[topic(topic="t", partitions=[part])])
    (answer,) = ask(kafka, asked).topics[0].partitions
    return answer.error_code, answer.leader_epoch, answer.end_offset


def offset_at(kafka: EmbeddedKafka, timestamp: int, current: int = -1) -> tuple[int, int, int]:
    """(error, offset, epoch) of ListOffsets."""
    each = ListOffsetsRequest.ListOffsetsTopic
    part = each.ListOffsetsPartition(partition_index=0, current_leader_epoch=current, timestamp=timestamp)
    asked = ListOffsetsRequest(version=4, replica_id=-1, isolation_level=0, topics=[each(name="t", partitions=[part])])
    (answer,) = ask(kafka, asked).topics[0].partitions
    return answer.error_code, answer.offset, answer.leader_epoch


def batches_from(kafka: EmbeddedKafka, offset: int) -> list[tuple[int, int]]:
    """(epoch, base offset) of each batch from an offset on, as often asked as it takes."""
    found: list[tuple[int, int]] = []
    while True:
        part = fetched(ask(kafka, fetch("t", {0: offset})))[0]
        assert part.error_code == Code.NONE
        view, at = memoryview(bytes(part.records)), 0
        while at < len(view):
            leader_epoch = int.from_bytes(view[at + 12 : at + 16], "big")
            base = int.from_bytes(view[at : at + 8], "big")
            size = 12 + int.from_bytes(view[at + 8 : at + 12], "big")
            found.append((leader_epoch, base))
            offset = base + int.from_bytes(view[at + 23 : at + 27], "big") + 1
            at += size
        if offset >= part.high_watermark:
            return found


def test_a_new_leader_has_the_next_epoch_and_writes_under_it(kafka: EmbeddedKafka) -> None:
    assert current_epoch(kafka) == 0
    assert kafka.elect_leader("t", 0) == 1
    assert kafka.elect_leader("t", 0) == 2
    write(kafka, 1)

    assert current_epoch(kafka) == 2
    assert batches_from(kafka, 0) == [(0, 0), (0, 10), (0, 20), (0, 30), (2, 40)]
    assert offset_at(kafka, -2) == (Code.NONE, 0, 0)
    assert offset_at(kafka, -1) == (Code.NONE, 50, 2)


def test_an_epoch_ends_where_the_next_began(kafka: EmbeddedKafka) -> None:
    assert end_of(kafka, 0) == (Code.NONE, 0, 40)
    kafka.elect_leader("t", 0)
    write(kafka, 1)
    kafka.elect_leader("t", 0)
    kafka.elect_leader("t", 0)
    write(kafka, 1)

    assert end_of(kafka, 0) == (Code.NONE, 0, 40)
    assert end_of(kafka, 1) == (Code.NONE, 1, 50)
    # The second leader has written nothing: what is known up to it ended with the first.
    assert end_of(kafka, 2) == (Code.NONE, 1, 50)
    assert end_of(kafka, 3) == (Code.NONE, 3, 60)
    assert end_of(kafka, 4) == end_of(kafka, -1) == UNKNOWN


def test_an_epoch_whose_records_are_deleted_ends_where_the_log_begins(kafka: EmbeddedKafka) -> None:
    kafka.elect_leader("t", 0)
    write(kafka, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([TopicPartition("t", 0, 50)])[TopicPartition("t", 0)].result(TIMEOUT_S)

    assert end_of(kafka, 0) == (Code.NONE, 0, 50)
    assert end_of(kafka, 1) == (Code.NONE, 1, 60)
    assert offset_at(kafka, -2) == (Code.NONE, 50, 1)


@pytest.mark.parametrize(
    ("known", "code"),
    [
        (-1, Code.NONE),
        (0, Code.FENCED_LEADER_EPOCH),
        (1, Code.NONE),
        (2, Code.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_who_knows_another_leader_is_told_so(kafka: EmbeddedKafka, known: int, code: Code) -> None:
    kafka.elect_leader("t", 0)
    answer = fetched(ask(kafka, fetch("t", {0: 0}, leader_epoch=known)))[0]
    assert (answer.error_code, bool(answer.records)) == (code, code is Code.NONE)
    assert end_of(kafka, 0, current=known)[0] == code
    assert offset_at(kafka, -1, current=known)[0] == code


def test_a_reader_that_waits_is_told_of_the_new_leader_at_once(kafka: EmbeddedKafka) -> None:
    answers: list[int] = []
    began = kafka.fault("Fetch", "delay", delay_ms=0)
    asked = fetch("t", {0: 40}, leader_epoch=0, max_wait_ms=30_000)
    reader = threading.Thread(target=lambda: answers.append(fetched(ask(kafka, asked))[0].error_code))
    reader.start()
    until(lambda: began.fired == 1)
    kafka.elect_leader("t", 0)
    # Far below what it would wait by itself.
    reader.join(15)
    assert answers == [Code.FENCED_LEADER_EPOCH]


def test_a_reader_that_says_its_epoch_is_told_where_it_diverged(kafka: EmbeddedKafka) -> None:
    kafka.elect_leader("t", 0, lost_from=20)
    write(kafka, 3)
    # At once, although the reader would wait for records.
    asked = fetch("t", {0: 40}, version=12, leader_epoch=1, fetched_epoch=0, max_wait_ms=60_000)
    diverged = fetched(ask(kafka, asked))[0]
    assert (diverged.error_code, bytes(diverged.records or b"")) == (Code.NONE, b"")
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 20)

    agreed = fetched(ask(kafka, fetch("t", {0: 20}, version=12, leader_epoch=1, fetched_epoch=0)))[0]
    assert (agreed.diverging_epoch, bool(agreed.records)) == (None, True)
    behind = fetched(ask(kafka, fetch("t", {0: -1}, version=12, leader_epoch=1, fetched_epoch=0)))[0]
    assert behind.error_code == Code.OFFSET_OUT_OF_RANGE
    beyond = fetched(ask(kafka, fetch("t", {0: 20}, version=12, leader_epoch=1, fetched_epoch=5)))[0]
    assert beyond.error_code == Code.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("lost_from", "end"), [(0, 0), (10, 10), (15, 10), (39, 30), (40, 40)])
def test_a_leader_that_lacks_the_tail_writes_other_records_there(
    kafka: EmbeddedKafka, lost_from: int, end: int
) -> None:
    assert kafka.elect_leader("t", 0, lost_from=lost_from) == 1
    assert offset_at(kafka, -1) == (Code.NONE, end, 1)
    write(kafka, 2)

    old = [(0, base) for base in range(0, end, EACH)]
    assert batches_from(kafka, 0) == [*old, (1, end), (1, end + EACH)]
    # Nothing of the first epoch is left where all is lost; as Kafka has it, the epoch ended where the log begins.
    assert end_of(kafka, 0) == (Code.NONE, 0, end)
    if end < 40:
        beyond = fetched(ask(kafka, fetch("t", {0: end + 2 * EACH + 1})))[0]
        assert beyond.error_code == Code.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_epochs_and_what_is_lost_outlive_a_restart(tmp_path: Path, clean: bool) -> None:
    config = {"log.retention.ms": "-1", "log.segment.bytes": "600"}
    with EmbeddedKafka(data_dir=tmp_path, config=config) as kafka:
        ask(kafka, metadata_of("t"))
        write(kafka, 4)
        kafka.elect_leader("t", 0, lost_from=20)
        write(kafka, 1)
        if not clean:
            kafka.kill()
        kafka.restart()

        assert current_epoch(kafka) == 1
        assert (end_of(kafka, 0), end_of(kafka, 1)) == ((Code.NONE, 0, 20), (Code.NONE, 1, 30))
        assert batches_from(kafka, 0) == [(0, 0), (0, 10), (1, 20)]


def test_a_topic_that_is_recreated_begins_with_the_first_epoch_and_its_own_end(kafka: EmbeddedKafka) -> None:
    kafka.elect_leader("t", 0)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics(["t"], operation_timeout=TIMEOUT_S)["t"].result(TIMEOUT_S)
    ask(kafka, metadata_of("t"))
    write(kafka, 1)

    assert current_epoch(kafka) == 0
    # Who has read up to 40 under epoch 0 sees that it ended before that.
    assert end_of(kafka, 0) == (Code.NONE, 0, 10)
    kafka.restart()
    assert current_epoch(kafka) == 0


def test_producers_are_known_as_far_as_their_records_are_left(kafka: EmbeddedKafka) -> None:
    answer = initialised(kafka, "x")
    own = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
    write(kafka, 1, **own, base_sequence=0)
    write(kafka, 1, **own, base_sequence=EACH)
    kafka.elect_leader("t", 0, lost_from=50)

    # The second batch is lost, so it is written again, and not taken for a duplicate.
    write(kafka, 1, **own, base_sequence=EACH)
    assert batches_from(kafka, 40) == [(0, 40), (1, 50)]


def test_a_transaction_whose_marker_is_lost_is_open_again() -> None:
    with EmbeddedKafka(in_process=True) as kafka:
        writer = producer(kafka, "x")
        writer.begin_transaction()
        writer.produce("t", b"value", partition=0)
        writer.commit_transaction(TIMEOUT_S)

        def open_since() -> list[tuple[int, int, int]]:
            each = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
            (found,) = ask(kafka, DescribeProducersRequest(version=0, topics=[each])).topics
            return [
                (one.producer_id, one.producer_epoch, one.current_txn_start_offset)
                for one in found.partitions[0].active_producers
            ]

        until(lambda: [start for _, _, start in open_since()] == [-1])
        kafka.elect_leader("t", 0, lost_from=1)
        ((producer_id, epoch, start),) = open_since()
        assert start == 0
        part = fetched(ask(kafka, fetch("t", {0: 0})))[0]
        assert (part.high_watermark, part.last_stable_offset) == (1, 0)

        each = WriteTxnMarkersRequest.WritableTxnMarker
        marker = each(
            producer_id=producer_id, producer_epoch=epoch, transaction_result=True, coordinator_epoch=0,
            topics=[each.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        )  # fmt: skip
        ask(kafka, WriteTxnMarkersRequest(version=1, markers=[marker]))
        assert fetched(ask(kafka, fetch("t", {0: 0})))[0].last_stable_offset == 2


def test_librdkafka_finds_out_that_what_it_read_is_lost(kafka: EmbeddedKafka) -> None:
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "judge",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        for _ in range(4 * EACH):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None and message.error() is None

        kafka.elect_leader("t", 0, lost_from=20)
        write(kafka, 5)
        error = None
        with contextlib.suppress(KafkaException):
            while error is None:
                message = consumer.poll(TIMEOUT_S)
                assert message is not None, "the reader waits"
                assert message.error() is not None, "it goes on as if nothing were lost"
                error = message.error()
        assert error is not None
        assert error.code() in (KafkaError._LOG_TRUNCATION, KafkaError._AUTO_OFFSET_RESET)
    finally:
        consumer.close()


def test_what_cannot_be_lost_is_refused_and_nothing_is_changed(kafka: EmbeddedKafka) -> None:
    initialised(kafka, "x")
    for topic, lost_from, why in (
        ("t", 41, "not between"),
        ("t", -1, "not between"),
        ("none", None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        with pytest.raises(OptionsError, match=why):
            kafka.elect_leader(topic, 0, lost_from=lost_from)
    assert current_epoch(kafka) == 0
    assert end_of(kafka, 0) == (Code.NONE, 0, 40)
