"""Answers that leave records, partitions or topics out, or name others: that they tell, and what clients see then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from embedded_kafka import EmbeddedKafka
from embedded_kafka.log import parse_header
from embedded_kafka.wire.server import (
    EndTxnRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    Message,
    MetadataRequest,
    ProduceRequest,
)
from kafka_core.errors import OptionsError
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import (
    ask_over_the_wire,
    fetch,
    fetched,
    init,
    initialised,
    produce,
    produced,
    records,
)
from tests.embedded_kafka.test_embedded_kills import TIMEOUT_S

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

BATCHES, EACH = 4, 10
"""What is in each of the two partitions of topic "t"."""


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    # The records are of 1970.
    config = {"num.partitions": "2", "log.retention.ms": "-1"}
    with EmbeddedKafka(config=config, in_process=True) as broker:
        metadata(broker, "t")
        metadata(broker, "other")
        for partition in (0, 1):
            for _ in range(BATCHES):
                code, _ = produced(ask(broker, produce("t", records(EACH), partition=partition)))
                assert code == Code.NONE
        yield broker


def ask(kafka: EmbeddedKafka, request: Message) -> Any:
    return ask_over_the_wire(kafka.bootstrap_servers, request)


def metadata(kafka: EmbeddedKafka, *names: str) -> dict[str, tuple[int, list[int]]]:
    """(error, partitions) of each topic in the answer; without names all are asked for."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names] or None
    answer = ask(kafka, MetadataRequest(version=8, topics=topics, allow_auto_topic_creation=True))
    return {
        topic.name: (topic.error_code, [part.partition_index for part in topic.partitions]) for topic in answer.topics
    }


def ends(kafka: EmbeddedKafka) -> dict[int, tuple[int, int]]:
    """(error, end offset) of both partitions."""
    each = ListOffsetsRequest.ListOffsetsTopic
    parts = [
        each.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=-1) for number in (0, 1)
    ]
    asked = ListOffsetsRequest(version=4, replica_id=-1, isolation_level=0, topics=[each(name="t", partitions=parts)])
    (topic,) = ask(kafka, asked).topics
    return {part.partition_index: (part.error_code, part.offset) for part in topic.partitions}


def sizes(data: Any) -> tuple[list[int], int]:
    """Records of each whole batch, and how many bytes of a torn one follow."""
    whole, at = [], 0
    view = memoryview(bytes(data or b""))
    while (header := parse_header(view, at)) is not None and at + header.size <= len(view):
        whole.append(header.count)
        at += header.size
    return whole, len(view) - at


def read_to_the_end(kafka: EmbeddedKafka, partition: int = 0) -> int:
    """How many records librdkafka finds."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition("t", partition, 0)])
        count = 0
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "the reader waits"
            if message.error():
                assert message.error().name() == "_PARTITION_EOF"
                return count
            count += 1
    finally:
        consumer.close()


# ---- Fetch


def test_a_partition_with_records_is_answered_empty_once_and_tells_the_truth_otherwise(
    kafka: EmbeddedKafka,
) -> None:
    fault = kafka.fault_in_answer("Fetch", "empty", topic="t", partition=0)

    answer = fetched(ask(kafka, fetch("t", {0: 0, 1: 0})))
    assert (answer[0].error_code, sizes(answer[0].records)) == (Code.NONE, ([], 0))
    assert (answer[0].high_watermark, answer[0].last_stable_offset) == (BATCHES * EACH, BATCHES * EACH)
    assert sizes(answer[1].records) == ([EACH] * BATCHES, 0)
    assert fault.fired == 1

    again = fetched(ask(kafka, fetch("t", {0: 0, 1: 0})))
    assert sizes(again[0].records) == ([EACH] * BATCHES, 0)
    assert fault.fired == 1


def test_an_answer_that_is_empty_anyway_is_not_counted(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Fetch", "empty", topic="t")
    ask(kafka, fetch("t", {0: BATCHES * EACH}))
    ask(kafka, fetch("other", {0: 0}))
    assert fault.fired == 0


def test_the_last_stable_offset_of_an_empty_answer_can_be_chosen(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Fetch", "empty", topic="t", partition=0, last_stable_offset=5, skip=1)
    ask(kafka, fetch("t", {0: 5}))
    answer = fetched(ask(kafka, fetch("t", {0: 5})))[0]
    assert (answer.last_stable_offset, answer.high_watermark) == (5, BATCHES * EACH)
    assert fault.fired == 1


@pytest.mark.parametrize("batches", [1, 3])
def test_fewer_batches_than_there_are(kafka: EmbeddedKafka, batches: int) -> None:
    fault = kafka.fault_in_answer("Fetch", "fewer", topic="t", partition=1, batches=batches)
    answer = fetched(ask(kafka, fetch("t", {0: 0, 1: 0})))
    assert sizes(answer[1].records) == ([EACH] * batches, 0)
    assert sizes(answer[0].records) == ([EACH] * BATCHES, 0)
    assert fault.fired == 1


def test_no_fewer_batches_than_there_are_is_not_counted(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Fetch", "fewer", topic="t", batches=BATCHES)
    ask(kafka, fetch("t", {0: 0}))
    assert fault.fired == 0


@pytest.mark.parametrize("batches", [0, 2])
def test_a_torn_batch_at_the_end(kafka: EmbeddedKafka, batches: int) -> None:
    fault = kafka.fault_in_answer("Fetch", "torn", topic="t", partition=0, batches=batches)
    whole, torn = sizes(fetched(ask(kafka, fetch("t", {0: 0})))[0].records)
    assert whole == [EACH] * batches
    assert torn > 0
    assert fault.fired == 1


def test_a_slow_store_has_nothing_until_its_time_is_over(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Fetch", "slow-store", topic="t", partition=0, below=EACH, delay_ms=700)

    # Kafka waits for the store for half a second, then it answers without records.
    first = fetched(ask(kafka, fetch("t", {0: 0})))[0]
    assert (first.error_code, sizes(first.records)) == (Code.NONE, ([], 0))
    assert first.last_stable_offset == BATCHES * EACH
    assert fault.fired == 1

    # Offsets that are not in the store are there at once, also while the store is waited for.
    behind = fetched(ask(kafka, fetch("t", {0: EACH})))[0]
    assert sizes(behind.records) == ([EACH] * (BATCHES - 1), 0)

    second = fetched(ask(kafka, fetch("t", {0: 0})))[0]
    assert sizes(second.records) == ([EACH] * BATCHES, 0)
    assert fault.fired == 1


def test_a_slow_store_that_is_released_answers_at_once(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Fetch", "slow-store", topic="t", delay_ms=3_600_000)
    assert sizes(fetched(ask(kafka, fetch("t", {0: 0})))[0].records) == ([], 0)
    assert fault.fired == 1
    fault.release()
    assert sizes(fetched(ask(kafka, fetch("t", {0: 0})))[0].records) == ([EACH] * BATCHES, 0)


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("empty", {"times": 3}),
        ("fewer", {"times": 2}),
        ("torn", {"times": 2}),
        ("torn", {"batches": 2}),
        ("slow-store", {"below": EACH, "delay_ms": 700}),
        ("leave-out", {}),
    ],
)
def test_librdkafka_reads_all_records_in_spite_of_it(kafka: EmbeddedKafka, action: str, more: dict[str, int]) -> None:
    fault = kafka.fault_in_answer("Fetch", action, topic="t", partition=0, **more)  # type: ignore[arg-type]
    assert read_to_the_end(kafka) == BATCHES * EACH
    assert fault.fired >= 1


# ---- what was not asked for, and what is missing


def test_a_produce_answer_for_another_partition(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Produce", "other-partition", topic="t", partition=0)
    (topic,) = ask(kafka, produce("t", records(EACH))).responses
    assert [part.index for part in topic.partition_responses] == [1]
    assert fault.fired == 1
    # The records were written all the same.
    assert fetched(ask(kafka, fetch("t", {0: 0})))[0].high_watermark == (BATCHES + 1) * EACH


def test_a_produce_answer_without_the_partition(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Produce", "leave-out", topic="t", partition=1)
    each = ProduceRequest.TopicProduceData
    parts = [each.PartitionProduceData(index=number, records=records(EACH)) for number in (0, 1)]
    asked = ProduceRequest(
        version=9, transactional_id=None, acks=-1, timeout_ms=1_000,
        topic_data=[each(name="t", partition_data=parts)],
    )  # fmt: skip
    (topic,) = ask(kafka, asked).responses
    assert [part.index for part in topic.partition_responses] == [0]
    assert fault.fired == 1


def test_a_fetch_answer_for_another_partition(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Fetch", "other-partition", topic="t", partition=1, other_partition=7)
    assert sorted(fetched(ask(kafka, fetch("t", {0: 0, 1: 0})))) == [0, 7]
    assert fault.fired == 1


def test_a_list_offsets_answer_without_the_partition(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("ListOffsets", "leave-out", topic="t", partition=0)
    assert list(ends(kafka)) == [1]
    assert fault.fired == 1


def test_records_are_written_and_the_producer_is_told_that_they_are_not(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Produce", "error", topic="t", partition=0, code="NOT_ENOUGH_REPLICAS_AFTER_APPEND")
    assert produced(ask(kafka, produce("t", records(EACH)))) == (Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)
    assert fetched(ask(kafka, fetch("t", {0: 0})))[0].high_watermark == (BATCHES + 1) * EACH
    assert fault.fired == 1


def test_one_partition_of_a_fetch_is_refused_and_the_other_is_read(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Fetch", "error", topic="t", partition=0, code="OFFSET_NOT_AVAILABLE")
    answer = fetched(ask(kafka, fetch("t", {0: 0, 1: 0})))
    assert (answer[0].error_code, bytes(answer[0].records), answer[0].high_watermark) == (
        Code.OFFSET_NOT_AVAILABLE, b"", -1,
    )  # fmt: skip
    assert (answer[1].error_code, bool(answer[1].records)) == (Code.NONE, True)
    assert fault.fired == 1


def test_the_end_of_one_partition_is_not_available_after_an_election(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("ListOffsets", "error", topic="t", partition=1, code="OFFSET_NOT_AVAILABLE")
    assert ends(kafka) == {0: (Code.NONE, BATCHES * EACH), 1: (Code.OFFSET_NOT_AVAILABLE, -1)}
    assert ends(kafka)[1] == (Code.NONE, BATCHES * EACH)
    assert fault.fired == 1


def test_metadata_lack_the_highest_partition_as_often_as_asked(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Metadata", "leave-out", topic="t", times=2)
    assert metadata(kafka, "t", "other") == {"t": (Code.NONE, [0]), "other": (Code.NONE, [0, 1])}
    assert metadata(kafka, "other") == {"other": (Code.NONE, [0, 1])}
    assert fault.fired == 1
    assert metadata(kafka)["t"] == (Code.NONE, [0])
    assert metadata(kafka, "t") == {"t": (Code.NONE, [0, 1])}
    assert fault.fired == 2


def test_metadata_lack_a_named_partition(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Metadata", "leave-out", topic="t", partition=0)
    assert metadata(kafka, "t") == {"t": (Code.NONE, [1])}
    assert fault.fired == 1


def test_metadata_do_not_know_a_topic(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Metadata", "leave-out-topic", topic="t", times=2)
    assert metadata(kafka, "t", "other") == {
        "t": (Code.UNKNOWN_TOPIC_OR_PARTITION, []),
        "other": (Code.NONE, [0, 1]),
    }
    assert "t" not in metadata(kafka)
    assert metadata(kafka, "t") == {"t": (Code.NONE, [0, 1])}
    assert fault.fired == 2


@pytest.mark.parametrize("action", ["leave-out", "leave-out-topic"])
def test_librdkafka_writes_although_metadata_lacked_its_topic(kafka: EmbeddedKafka, action: str) -> None:
    fault = kafka.fault_in_answer("Metadata", action, topic="t", times=2)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    failed: list[object] = []
    writer.produce("t", b"value", partition=0, on_delivery=lambda error, _: failed.append(error))
    writer.flush(TIMEOUT_S)
    assert failed == [None]
    assert fault.fired >= 1


@pytest.mark.parametrize(
    ("api", "action"),
    [("Produce", "empty"), ("Fetch", "leave-out-topic"), ("EndTxn", "leave-out")],
)
def test_an_answer_that_cannot_be_altered_so_is_refused(kafka: EmbeddedKafka, api: str, action: str) -> None:
    with pytest.raises(OptionsError, match="do not support the alteration"):
        kafka.fault_in_answer(api, action)


def test_an_error_that_kafka_does_not_have_is_refused(kafka: EmbeddedKafka) -> None:
    with pytest.raises(OptionsError, match="NO_SUCH_ERROR"):
        kafka.fault_in_answer("Fetch", "error", code="NO_SUCH_ERROR")


def test_cleared_faults_alter_nothing(kafka: EmbeddedKafka) -> None:
    kafka.fault_in_answer("Metadata", "leave-out-topic", times=100)
    assert metadata(kafka, "t")["t"][0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    kafka.clear_faults()
    assert metadata(kafka, "t")["t"] == (Code.NONE, [0, 1])


# ---- faults at the wire that are picky


def test_the_answer_to_the_second_init_of_one_transactional_id_is_lost(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault("InitProducerId", "drop-answer", transactional_id="x", skip=1)
    for _ in range(3):
        initialised(kafka, "y")
    first = ask(kafka, init("x"))
    assert (first.error_code, fault.fired) == (Code.NONE, 0)

    with pytest.raises(ConnectionError, match="instead of an answer"):
        ask(kafka, init("x"))
    assert fault.fired == 1
    # It was done: the epoch that nobody was told is taken.
    assert ask(kafka, init("x")).producer_epoch == first.producer_epoch + 2


@pytest.mark.parametrize(
    ("api", "asked"),
    [
        ("EndTxn", EndTxnRequest(version=3, transactional_id="x", producer_id=0, producer_epoch=0, committed=True)),
        ("FindCoordinator", FindCoordinatorRequest(version=4, key_type=1, coordinator_keys=["x"])),
        ("Produce", produce("t", records(1), transactional_id="x")),
    ],
)  # fmt: skip
def test_a_request_is_refused_for_one_transactional_id_only(kafka: EmbeddedKafka, api: str, asked: Message) -> None:
    others = kafka.fault(api, "error", code="COORDINATOR_LOAD_IN_PROGRESS", transactional_id="y")
    own = kafka.fault(api, "error", code="COORDINATOR_LOAD_IN_PROGRESS", transactional_id="x")
    ask(kafka, asked)
    assert (others.fired, own.fired) == (0, 1)


def test_a_produce_is_refused_for_one_partition_only(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault("Produce", "error", code="NOT_ENOUGH_REPLICAS", topic="t", partition=1)
    assert produced(ask(kafka, produce("other", records(1), partition=1)))[0] == Code.NONE
    assert produced(ask(kafka, produce("t", records(1), partition=0)))[0] == Code.NONE
    assert fault.fired == 0
    assert produced(ask(kafka, produce("t", records(1), partition=1)))[0] == Code.NOT_ENOUGH_REPLICAS
    assert fault.fired == 1


def test_a_fetch_is_delayed_for_one_topic_only(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault("Fetch", "delay", delay_ms=1, topic="t")
    ask(kafka, fetch("other", {0: 0}))
    assert fault.fired == 0
    ask(kafka, fetch("t", {0: 0}))
    assert fault.fired == 1
