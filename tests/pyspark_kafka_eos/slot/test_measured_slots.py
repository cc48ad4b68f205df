"""Slots of a replay that send nothing, or to some partitions alone: what they give and what they leave in Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import ClientSettings, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import ALL_OTHERS, WritePlan
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit.judge import read_all, settings_for
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

ROWS = [f"row {number}" for number in range(300)]


@pytest.fixture
def settings(broker: AnyKafka) -> dict[str, Any]:
    return settings_for(broker)


def plan_of(settings: dict[str, Any], only_slots: frozenset[int] | None, **more: Any) -> WritePlan:
    options = SinkOptions.parse(settings["options"])
    return replace(WritePlan.for_batch(options, 0, only_slots, transaction_timeout_ms=60_000), **more)


def keyed(values: list[str], drawn: list[int] | None = None) -> Iterator[pa.RecordBatch]:
    """Three Arrow batches whose keys spread over all partitions; `drawn` gets a number for each that is taken."""
    for at in range(0, len(values), 100):
        part = pa.array(values[at : at + 100], pa.string())
        yield pa.RecordBatch.from_pydict({"key": part, "value": part})
        if drawn is not None:
            drawn.append(at)


def state_of(broker: AnyKafka, name: str) -> str:
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        return Transactions(cluster).describe([name])[name].state
    finally:
        cluster.close()


def measure_of(seal: Seal) -> tuple[int, int]:
    # Not its bytes: rows without a timestamp get that of their packing, as a difference of a byte or two.
    return seal.records, seal.digest


def test_a_slot_that_may_not_send_measures_what_it_would_send_and_leaves_no_transaction(
    broker: AnyKafka, settings: dict[str, Any]
) -> None:
    written = write_slot(plan_of(settings, None), 0, keyed(ROWS))

    measured = write_slot(plan_of(settings, frozenset({0})), 1, keyed(ROWS))

    assert measure_of(measured) == measure_of(written)
    assert written.records == 300 and written.digest and measured.bytes
    assert (measured.identity, measured.partitions, measured.empty) == (None, (), True)
    assert state_of(broker, measured.transactional_id) == "NotFound"
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted").total() == 300


def test_a_slot_that_may_send_to_some_partitions_counts_all_and_sends_those_alone(
    broker: AnyKafka, settings: dict[str, Any]
) -> None:
    topic = settings["options"]["topic"]
    whole = write_slot(plan_of(settings, None), 0, keyed(ROWS))
    some = (TopicPartition(topic, 1), TopicPartition(topic, 3))

    torn = write_slot(plan_of(settings, frozenset({1}), only_partitions=((1, some),)), 1, keyed(ROWS))

    assert measure_of(torn) == measure_of(whole)
    records = {part.partition: part.records for part in whole.partitions}
    assert sorted(records) == [0, 1, 2, 3]
    assert {part.partition: part.records for part in torn.partitions} == {1: records[1], 3: records[3]}
    assert torn.identity is not None
    assert state_of(broker, torn.transactional_id) == "Ongoing"
    sent = read_all(broker, topic, "read_uncommitted").total()
    assert sent == 300 + records[1] + records[3]


def test_a_slot_without_a_row_for_the_partitions_that_it_may_send_to_has_nothing_to_end(
    settings: dict[str, Any],
) -> None:
    nowhere = (TopicPartition(settings["options"]["topic"], 99),)

    seal = write_slot(plan_of(settings, frozenset({0}), only_partitions=((0, nowhere),)), 0, keyed(ROWS))

    assert (seal.identity, seal.partitions, seal.records) == (None, (), 300)


def test_a_slot_that_is_not_named_sends_where_all_others_are_to(settings: dict[str, Any]) -> None:
    seal = write_slot(plan_of(settings, frozenset({0, ALL_OTHERS})), 7, keyed(ROWS))

    assert seal.identity is not None
    assert sum(part.records for part in seal.partitions) == 300


@pytest.mark.parametrize("only_slots", [frozenset(), frozenset({5})])
def test_a_slot_that_sends_nothing_draws_its_rows_to_the_end(
    settings: dict[str, Any], only_slots: frozenset[int]
) -> None:
    drawn: list[int] = []

    write_slot(plan_of(settings, only_slots), 0, keyed(ROWS, drawn))

    assert drawn == [0, 100, 200]


def test_where_no_slot_sends_nothing_is_measured_and_nobody_is_asked(settings: dict[str, Any]) -> None:
    # No broker is there: whoever asked one would fail.
    nobody = replace(plan_of(settings, frozenset()), client=ClientSettings(("127.0.0.1:1",)))

    seal = write_slot(nobody, 0, keyed(ROWS))

    assert (seal.identity, seal.records, seal.digest) == (None, 0, 0)


def test_equal_rows_have_equal_totals_however_they_are_split(settings: dict[str, Any]) -> None:
    plan = plan_of(settings, frozenset({99}))

    def totals(*splits: int) -> tuple[int, int]:
        edges = [0, *splits, len(ROWS)]
        seals = [
            write_slot(plan, slot, keyed(ROWS[low:high])) for slot, (low, high) in enumerate(itertools.pairwise(edges))
        ]
        return sum(seal.records for seal in seals), sum(seal.digest for seal in seals) % 2**64

    assert totals() == totals(150) == totals(10, 11, 290)
    assert totals()[0] == 300
