"""A month that passes in one step: what falls due by it is done when the step has been made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka import EmbeddedKafka
from embedded_kafka.wire.server import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    Message,
    OffsetFetchRequest,
)
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ask_over_the_wire, fetch, fetched, until
from tests.embedded_kafka.test_embedded_kills import TIMEOUT_S, producer

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

DAY_MS = 24 * 60 * 60 * 1000
MONTH_MS = 30 * DAY_MS
KEPT, AGED = "kept", "aged"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(data_dir=tmp_path, in_process=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [NewTopic(AGED, 1), NewTopic(KEPT, 1, config={"retention.ms": "-1"})]
        for done in admin.create_topics(topics).values():
            done.result(TIMEOUT_S)
        yield broker


def ask(kafka: EmbeddedKafka, request: Message) -> Any:
    return ask_over_the_wire(kafka.bootstrap_servers, request)


def commit(kafka: EmbeddedKafka, transactional_id: str) -> Producer:
    """A record in each topic and a group's offset, in one transaction."""
    writer = producer(kafka, transactional_id)
    group = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "log_level": 0})
    writer.begin_transaction()
    for topic in (KEPT, AGED):
        writer.produce(topic, b"value", partition=0)
    writer.send_offsets_to_transaction([TopicPartition(AGED, 0, 7)], group.consumer_group_metadata(), TIMEOUT_S)
    writer.commit_transaction(TIMEOUT_S)
    group.close()
    until(lambda: state(kafka, transactional_id) == "CompleteCommit")
    return writer


def state(kafka: EmbeddedKafka, transactional_id: str) -> str:
    """Its state; empty for an id that the broker does not know."""
    asked = DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id])
    (found,) = ask(kafka, asked).transaction_states
    return "" if found.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND else str(found.transaction_state)


def ids(kafka: EmbeddedKafka) -> list[str]:
    asked = ListTransactionsRequest(version=0, state_filters=[], producer_id_filters=[])
    return sorted(each.transactional_id for each in ask(kafka, asked).transaction_states)


def producers(kafka: EmbeddedKafka, topic: str) -> list[tuple[int, bool]]:
    """(producer id, whether a transaction is open) of each that the partition remembers."""
    each = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
    (found,) = ask(kafka, DescribeProducersRequest(version=0, topics=[each])).topics
    return [(one.producer_id, one.current_txn_start_offset >= 0) for one in found.partitions[0].active_producers]


def committed_offset(kafka: EmbeddedKafka) -> int:
    each = OffsetFetchRequest.OffsetFetchRequestTopic(name=AGED, partition_indexes=[0])
    asked = OffsetFetchRequest(version=7, group_id="g", topics=[each], require_stable=True)
    return int(ask(kafka, asked).topics[0].partitions[0].committed_offset)


def bounds(kafka: EmbeddedKafka, topic: str) -> tuple[int, int]:
    """(log start, high watermark)."""
    part = fetched(ask(kafka, fetch(topic, {0: 2})))[0]
    return part.log_start_offset, part.high_watermark


def test_a_month_takes_ids_offsets_producers_and_old_records(kafka: EmbeddedKafka) -> None:
    commit(kafka, "x")
    assert (ids(kafka), committed_offset(kafka)) == (["x"], 7)
    assert len(producers(kafka, KEPT)) == len(producers(kafka, AGED)) == 1
    assert bounds(kafka, AGED) == bounds(kafka, KEPT) == (0, 2)

    kafka.advance(MONTH_MS)
    assert (ids(kafka), committed_offset(kafka)) == ([], -1)
    assert producers(kafka, KEPT) == producers(kafka, AGED) == []
    assert bounds(kafka, AGED) == (2, 2)
    # What is to be kept for ever is there.
    assert bounds(kafka, KEPT) == (0, 2)


def test_two_months_take_what_came_between_them(kafka: EmbeddedKafka) -> None:
    kafka.advance(MONTH_MS)
    commit(kafka, "x")
    kafka.advance(MONTH_MS)
    assert (ids(kafka), committed_offset(kafka)) == ([], -1)
    assert producers(kafka, KEPT) == []


def test_a_day_takes_the_producers_and_nothing_else(kafka: EmbeddedKafka) -> None:
    commit(kafka, "x")
    kafka.advance(DAY_MS + 1_000)
    assert producers(kafka, KEPT) == producers(kafka, AGED) == []
    assert (ids(kafka), committed_offset(kafka), bounds(kafka, AGED)) == (["x"], 7, (0, 2))


def test_an_open_transaction_is_aborted_by_a_month_and_its_id_expires_a_week_later(
    kafka: EmbeddedKafka,
) -> None:
    writer = producer(kafka, "x")
    writer.begin_transaction()
    writer.produce(KEPT, b"value", partition=0)
    assert writer.flush(TIMEOUT_S) == 0
    assert [is_open for _, is_open in producers(kafka, KEPT)] == [True]

    kafka.advance(MONTH_MS)
    until(lambda: state(kafka, "x") == "CompleteAbort")
    assert [is_open for _, is_open in producers(kafka, KEPT)] == [False]
    kafka.advance(8 * DAY_MS)
    assert (ids(kafka), producers(kafka, KEPT)) == ([], [])


def test_a_transaction_that_hangs_by_a_forgotten_marker_hangs_for_months(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_at_marker(KEPT, 0, "forget")
    commit(kafka, "x")
    assert fault.fired == 1
    kafka.advance(MONTH_MS)
    # Nobody knows the id any more; the partition still has its transaction open.
    assert ids(kafka) == []
    assert [is_open for _, is_open in producers(kafka, KEPT)] == [True]
    assert fetched(ask(kafka, fetch(KEPT, {0: 0})))[0].last_stable_offset == 0


def test_time_that_has_passed_is_past_after_a_restart(kafka: EmbeddedKafka) -> None:
    kafka.advance(MONTH_MS)
    commit(kafka, "x")
    before = kafka._command("now")
    kafka.restart()
    assert kafka._command("now") >= before
    # The id was last used a moment ago, not in a month's time.
    kafka.advance(8 * DAY_MS)
    assert (ids(kafka), committed_offset(kafka)) == ([], -1)


def test_what_a_month_took_is_gone_after_a_restart_too(kafka: EmbeddedKafka) -> None:
    commit(kafka, "x")
    kafka.advance(MONTH_MS)
    kafka.restart()
    assert (ids(kafka), committed_offset(kafka)) == ([], -1)
    assert producers(kafka, KEPT) == producers(kafka, AGED) == []
    assert bounds(kafka, AGED) == (2, 2)
    assert bounds(kafka, KEPT) == (0, 2)
