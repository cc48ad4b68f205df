"""Leaders that are older or lag: what clients see of a partition for which such a one answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import IsolationLevel as Isolation
from confluent_kafka.admin import AdminClient, OffsetSpec

from embedded_kafka import EmbeddedKafka
from embedded_kafka.wire.server import (
    DescribeProducersRequest,
    ListOffsetsRequest,
    Message,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from kafka_core.errors import OptionsError
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ask_over_the_wire, fetch, fetched, produce, produced, records
from tests.embedded_kafka.test_embedded_kills import TIMEOUT_S, producer

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

OLD, NEW = 0, 1
"""Epochs of the leaders of the first 40 records and of those behind them."""

COMMITTED, ALL = 1, 0
LATEST, MAX_TIMESTAMP = -1, -3
UNKNOWN = (-1, -1)


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    # The records are of 1970.
    with EmbeddedKafka(config={"log.retention.ms": "-1"}, in_process=True) as broker:
        metadata(broker)
        write(broker, 4)
        assert broker.elect_leader("t", 0) == NEW
        yield broker


def ask(kafka: EmbeddedKafka, request: Message) -> Any:
    return ask_over_the_wire(kafka.bootstrap_servers, request)


def metadata(kafka: EmbeddedKafka) -> int:
    """The leader's epoch."""
    asked = MetadataRequest.MetadataRequestTopic(name="t")
    answer = ask(kafka, MetadataRequest(version=8, topics=[asked], allow_auto_topic_creation=True))
    return int(answer.topics[0].partitions[0].leader_epoch)


def write(kafka: EmbeddedKafka, batches: int) -> None:
    for _ in range(batches):
        code, _ = produced(ask(kafka, produce("t", records(10))))
        assert code == Code.NONE


def listed(
    kafka: EmbeddedKafka,
    timestamp: int = LATEST,
    *,
    isolation: int = ALL,
    current: int = -1,
    version: int = 7,
) -> tuple[int, int, int]:
    """(error, offset, epoch) of ListOffsets."""
    each = ListOffsetsRequest.ListOffsetsTopic
    part = each.ListOffsetsPartition(partition_index=0, current_leader_epoch=current, timestamp=timestamp)
    topics = [each(name="t", partitions=[part])]
    asked = ListOffsetsRequest(version=version, replica_id=-1, isolation_level=isolation, topics=topics)
    (answer,) = ask(kafka, asked).topics[0].partitions
    return answer.error_code, answer.offset, answer.leader_epoch


def end_of(kafka: EmbeddedKafka, epoch: int) -> tuple[int, int]:
    """(epoch, end offset) of OffsetForLeaderEpoch."""
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    part = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    asked = OffsetForLeaderEpochRequest(version=4, replica_id=-1, topics=[topic(topic="t", partitions=[part])])
    (answer,) = ask(kafka, asked).topics[0].partitions
    assert answer.error_code == Code.NONE
    return answer.leader_epoch, answer.end_offset


def open_since(kafka: EmbeddedKafka) -> list[int]:
    """DescribeProducers: where each producer's transaction began."""
    topics = [DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
    (part,) = ask(kafka, DescribeProducersRequest(version=0, topics=topics)).topics[0].partitions
    return [each.current_txn_start_offset for each in part.active_producers]


def read(kafka: EmbeddedKafka, offset: int, *, epoch: int = -1) -> tuple[int, int, int]:
    """(error, high watermark, whole records) of a Fetch."""
    part = fetched(ask(kafka, fetch("t", {0: offset}, leader_epoch=epoch, committed=False)))[0]
    data, at, count = bytes(part.records), 0, 0
    while at < len(data):
        count += int.from_bytes(data[at + 57 : at + 61], "big")
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return part.error_code, part.high_watermark, count


def test_a_stale_leader_answers_as_the_log_was_under_its_own_epoch(kafka: EmbeddedKafka) -> None:
    write(kafka, 2)
    fault = kafka.fault_at_leader("t", 0, "stale-leader", end=40)

    assert metadata(kafka) == OLD
    assert listed(kafka) == (Code.NONE, 40, OLD)
    assert listed(kafka, MAX_TIMESTAMP) == (Code.NONE, 0, OLD)
    assert read(kafka, 30) == (Code.NONE, 40, 10)
    assert read(kafka, 40) == (Code.NONE, 40, 0)
    assert read(kafka, 50)[0] == Code.OFFSET_OUT_OF_RANGE
    assert end_of(kafka, OLD) == (OLD, 40)
    assert end_of(kafka, NEW) == UNKNOWN
    assert fault.fired == 8

    fault.release()
    assert metadata(kafka) == NEW
    assert listed(kafka) == (Code.NONE, 60, NEW)
    assert read(kafka, 40) == (Code.NONE, 60, 20)


def test_a_stale_leader_refuses_whoever_knows_a_newer_one(kafka: EmbeddedKafka) -> None:
    kafka.fault_at_leader("t", 0, "stale-leader")

    assert listed(kafka, current=OLD) == (Code.NONE, 40, OLD)
    assert listed(kafka, current=NEW)[0] == Code.UNKNOWN_LEADER_EPOCH
    assert read(kafka, 0, epoch=OLD) == (Code.NONE, 40, 40)
    assert read(kafka, 0, epoch=NEW)[0] == Code.UNKNOWN_LEADER_EPOCH


def test_a_stale_leader_has_the_transactions_of_its_own_time(kafka: EmbeddedKafka) -> None:
    early = producer(kafka, "early")
    early.begin_transaction()
    early.produce("t", b"early", partition=0)
    early.flush(TIMEOUT_S)
    kafka.fault_at_leader("t", 0, "stale-leader")
    early.commit_transaction(TIMEOUT_S)

    assert open_since(kafka) == [40]
    assert listed(kafka, isolation=COMMITTED) == (Code.NONE, 40, NEW)
    assert listed(kafka) == (Code.NONE, 41, NEW)
    kafka.clear_faults()
    assert open_since(kafka) == [-1]
    assert listed(kafka, isolation=COMMITTED) == (Code.NONE, 42, NEW)


def test_a_lagging_leader_returns_nothing_from_its_high_watermark_on_and_has_no_latest(
    kafka: EmbeddedKafka,
) -> None:
    write(kafka, 2)
    fault = kafka.fault_at_leader("t", 0, "lagging-high-watermark", end=40)
    elected = NEW + 1

    assert metadata(kafka) == elected
    assert read(kafka, 40) == (Code.NONE, 40, 0)
    assert read(kafka, 50) == (Code.NONE, 40, 0)
    assert listed(kafka, current=elected)[0] == Code.OFFSET_NOT_AVAILABLE
    assert listed(kafka, isolation=COMMITTED)[0] == Code.OFFSET_NOT_AVAILABLE
    assert listed(kafka, version=4)[0] == Code.LEADER_NOT_AVAILABLE
    # The record is before the high watermark, and the next one is not.
    assert listed(kafka, 1_000) == (Code.NONE, 0, OLD)
    assert listed(kafka, 2_000)[0] == Code.OFFSET_NOT_AVAILABLE
    # A follower's question, of the log and not of the high watermark.
    assert end_of(kafka, NEW) == (NEW, 60)

    fault.release()
    assert listed(kafka, current=elected) == (Code.NONE, 60, elected)
    assert read(kafka, 40) == (Code.NONE, 60, 20)


def test_a_lagging_leader_has_everything_once_it_has_acknowledged_something_of_its_own(kafka: EmbeddedKafka) -> None:
    """With acks=all its followers have then what it has. Found in virtual time: a note that a run had acknowledged was
    hidden from the next one.
    """
    write(kafka, 2)
    kafka.fault_at_leader("t", 0, "lagging-high-watermark", end=40)
    assert listed(kafka)[0] == Code.OFFSET_NOT_AVAILABLE

    write(kafka, 1)

    assert listed(kafka) == (Code.NONE, 70, NEW + 1)
    assert read(kafka, 40) == (Code.NONE, 70, 30)


def test_only_as_many_answers_as_asked_for_and_only_of_the_named_api_are_another_leaders(
    kafka: EmbeddedKafka,
) -> None:
    write(kafka, 1)
    fault = kafka.fault_at_leader("t", 0, "stale-leader", end=40, times=2, skip=1, api="ListOffsets")

    assert [listed(kafka)[1] for _ in range(4)] == [50, 40, 40, 50]
    assert metadata(kafka) == NEW
    assert fault.fired == 2


def test_other_clients_see_what_kafkas_would_see(kafka: EmbeddedKafka) -> None:
    write(kafka, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "log_level": 0})
    place = TopicPartition("t", 0)
    try:
        kafka.fault_at_leader("t", 0, "stale-leader", end=40)
        assert consumer.get_watermark_offsets(place, timeout=TIMEOUT_S) == (0, 40)
        kafka.clear_faults()
        lagging = kafka.fault_at_leader("t", 0, "lagging-high-watermark", end=40)
        asked = admin.list_offsets(
            {place: OffsetSpec.latest()}, isolation_level=Isolation.READ_UNCOMMITTED, request_timeout=1
        )
        with pytest.raises(KafkaException):
            asked[place].result(TIMEOUT_S)
        assert lagging.fired > 0
        lagging.release()
        assert consumer.get_watermark_offsets(place, timeout=TIMEOUT_S) == (0, 60)
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"end": 41}, "not to 41"),
        ({"api": "Produce"}, "asks no leader"),
        ({"action": "younger-leader"}, "younger-leader"),
        ({"partition": 1}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_leader_that_cannot_be_is_refused_and_nothing_is_set(
    kafka: EmbeddedKafka, given: dict[str, Any], words: str
) -> None:
    asked = {"topic": "t", "partition": 0, "action": "lagging-high-watermark", **given}

    with pytest.raises(OptionsError, match=words):
        kafka.fault_at_leader(**asked)

    assert listed(kafka) == (Code.NONE, 40, NEW)
