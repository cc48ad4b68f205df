"""One answer that lacks a partition or a topic is no proof that it is gone: the broker that gave it may be behind."""

from __future__ import annotations

import json

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import BrokerUnavailable, DataLoss
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.spark.source import source_partitions
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.pyspark_kafka_eos.spark.source.test_view import options_of, ranges_of, write

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


def asked(way: str, name: str) -> dict[str, str]:
    """The option that names both partitions of a topic in this way."""
    value = {"subscribe": name, "subscribePattern": f"^{name}$", "assign": json.dumps({name: [0, 1]})}[way]
    return {way: value}


@pytest.mark.parametrize("lenient", ["true", "false"])
@pytest.mark.parametrize("way", ["subscribe", "subscribePattern", "assign"])
@pytest.mark.parametrize("lacks", ["leave-out", "leave-out-topic"])
def test_a_query_that_goes_on_does_not_forget_its_position_for_one_answer(
    kafka: EmbeddedKafka, topic: MakeTopic, way: str, lacks: str, lenient: str
) -> None:
    name = topic(2)
    write(kafka, name, 3, 5)
    reader = KafkaStreamReader(options_of(kafka, "stream", **asked(way, name), failOnDataLoss=lenient))
    # A restart: this reader has seen nothing yet, only Spark's log says which partitions there are.
    logged = {name: {"0": 1, "1": 4}}
    fault = kafka.fault_in_answer("Metadata", lacks, topic=name, times=2)

    end = reader.latestOffset(logged, None)

    assert fault.fired >= 1
    # Without partition 1 in the log Spark would have it read again from its beginning.
    assert bare(end) == {name: {"0": 3, "1": 5}}
    assert [each.offsets.start for each in reader.partitions(logged, end)] == [1, 4]


@pytest.mark.parametrize("lenient", ["true", "false"])
@pytest.mark.parametrize("lacks", ["leave-out", "leave-out-topic"])
def test_a_position_is_kept_where_the_brokers_have_what_the_last_answer_lacks(
    kafka: EmbeddedKafka, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, lacks: str, lenient: str
) -> None:
    """That answer was of a broker that is cut off; all brokers are asked before a position is dropped."""
    monkeypatch.setattr(source_partitions, "TOPIC_PATIENCE_MS", 0)
    name = topic(2)
    write(kafka, name, 3, 5)
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name, failOnDataLoss=lenient))
    fault = kafka.fault_in_answer("Metadata", lacks, topic=name, times=1)

    end = reader.latestOffset({name: {"0": 1, "1": 4}}, None)

    assert fault.fired == 1
    assert bare(end) == {name: {"0": 3, "1": 5}}


def test_a_partition_that_stays_away_is_lost_after_a_while_and_only_then(
    kafka: EmbeddedKafka, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_partitions, "TOPIC_PATIENCE_MS", 300)
    name = topic(2)
    write(kafka, name, 3, 5)
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name))
    fault = kafka.fault_in_answer("Metadata", "leave-out", topic=name, partition=1, times=10**6)

    try:
        with pytest.raises(DataLoss, match=f"{name}-1: the partition is gone"):
            reader.latestOffset({name: {"0": 1, "1": 4}}, None)
        assert fault.fired > 1
    finally:
        kafka.clear_faults()


@pytest.mark.parametrize("goes_on", [True, False], ids=["a query that has read", "a first start"])
def test_topics_that_are_gone_whenever_they_were_listed_are_told_as_such(
    kafka: EmbeddedKafka, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """A new one each time: no look has all that the pattern matches. What the query has read is there all the while. A
    first start has nothing to lose: it begins with what the brokers have.
    """
    monkeypatch.setattr(source_partitions, "TOPIC_PATIENCE_MS", 0)
    monkeypatch.setattr(source_partitions, "WITNESS_MS", 300)
    monkeypatch.setattr("pyspark_kafka_eos.client.cluster.NEW_TOPIC_MS", 0)
    name = topic(2)
    write(kafka, name, 3, 5)
    listed = Offsets.topic_names
    monkeypatch.setattr(Offsets, "topic_names", lambda self, **how: [*listed(self, **how), f"{name}-deleted"])
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribePattern=f"^{name}"))
    if not goes_on:
        assert bare(reader.initialOffset()) == {name: {"0": 3, "1": 5}}
        return
    logged = {name: {"0": 1, "1": 4}}

    with pytest.raises(BrokerUnavailable, match=f"{name}-deleted.*is deleted by the time") as stopped:
        reader.latestOffset(logged, None)

    assert "more than half of the brokers have" not in str(stopped.value)


def test_a_batch_reads_all_partitions_that_it_has_found_where_its_second_question_lacks_one(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    name = topic(2)
    write(kafka, name, 3, 5)
    fault = kafka.fault_in_answer("Metadata", "leave-out", topic=name, skip=1)

    assert ranges_of(kafka, subscribe=name) == [(0, 0, 3), (1, 0, 5)]
    assert fault.fired == 1


def test_an_answer_that_lacks_an_offset_is_asked_for_again(kafka: EmbeddedKafka, topic: MakeTopic) -> None:
    name = topic(2)
    write(kafka, name, 3, 5)
    fault = kafka.fault_in_answer("ListOffsets", "leave-out", topic=name, times=2)

    assert ranges_of(kafka, subscribe=name) == [(0, 0, 3), (1, 0, 5)]
    assert fault.fired == 2
