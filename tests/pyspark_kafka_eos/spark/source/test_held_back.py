"""Offsets between what a reader of committed records may read and the end of the log: a transaction is open before
them.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from kafka_core.errors import DataLoss, OptionsError, RetriableError
from pyspark_kafka_eos.spark.source import source_view
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.pyspark_kafka_eos.spark.source.test_view import options_of, ranges_of, write
from tests.support.brokers import AnyKafka, settle

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transactions of these tests stay open for as long as anybody waits."""
    monkeypatch.setattr(source_view, "OPEN_PATIENCE_MS", 300)


@pytest.fixture
def held(kafka: AnyKafka, topic: MakeTopic) -> tuple[str, Producer]:
    """A topic with 4 records, then 3 of an open transaction, then 2: readable up to 4, written up to 9."""
    name = topic(1)
    write(kafka, name, 4)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "log_level": "0"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(name, b"open %d" % number, partition=0)
    assert producer.flush(30) == 0
    write(kafka, name, 2)
    return name, producer


def at(name: str, offset: int) -> str:
    """The option's JSON."""
    return f'{{"{name}":{{"0":{offset}}}}}'


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_an_end_behind_an_open_transaction_stops_with_that_reason_and_is_never_a_loss(
    kafka: AnyKafka, held: tuple[str, Producer], lenient: str
) -> None:
    name, _ = held

    with pytest.raises(RetriableError) as raised:
        ranges_of(kafka, subscribe=name, endingOffsets=at(name, 8), failOnDataLoss=lenient)

    message = str(raised.value)
    assert "endingOffsets is offset 8" in message
    assert "a transaction is open from offset 4 on" in message
    assert "nothing is lost" in message
    assert "failOnDataLoss" not in message


def test_an_end_behind_an_open_transaction_is_read_when_that_has_ended(
    kafka: AnyKafka, held: tuple[str, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, producer = held
    monkeypatch.setattr(source_view, "OPEN_PATIENCE_MS", 60_000)
    # The transaction ends while the query is planned: at its second look.
    pauses: list[float] = []

    def pause(_: object, delay_ms: float = 0) -> None:
        if not pauses:
            producer.commit_transaction(30)
        pauses.append(delay_ms)

    monkeypatch.setattr("pyspark_kafka_eos.client.cluster.Cluster.pause", pause)

    assert ranges_of(kafka, subscribe=name, endingOffsets=at(name, 8)) == [(0, 0, 8)]
    assert pauses


def test_an_end_behind_the_log_is_a_loss_as_before(kafka: AnyKafka, held: tuple[str, Producer]) -> None:
    name, _ = held

    with pytest.raises(DataLoss, match="endingOffsets has offset 11"):
        ranges_of(kafka, subscribe=name, endingOffsets=at(name, 11))


def test_a_batch_that_begins_behind_an_open_transaction_stops_with_that_reason(
    kafka: AnyKafka, held: tuple[str, Producer]
) -> None:
    name, _ = held

    with pytest.raises(RetriableError, match=r"the beginning is offset 6.*a transaction is open from offset 4 on"):
        ranges_of(kafka, subscribe=name, startingOffsets=at(name, 6))


def test_who_reads_uncommitted_records_waits_for_no_transaction(kafka: AnyKafka, held: tuple[str, Producer]) -> None:
    name, _ = held
    everything = {"kafka.isolation.level": "read_uncommitted", "subscribe": name}

    assert ranges_of(kafka, startingOffsets=at(name, 6), endingOffsets=at(name, 8), **everything) == [(0, 6, 8)]


def test_a_stream_that_begins_behind_an_open_transaction_waits_and_reads_from_there_when_it_has_ended(
    kafka: AnyKafka, held: tuple[str, Producer]
) -> None:
    name, producer = held
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name, startingOffsets=at(name, 6)))
    start = reader.initialOffset()
    assert bare(start) == {name: {"0": 6}}

    waiting = reader.latestOffset(start, None)
    producer.commit_transaction(30)
    settle(kafka.bootstrap_servers, name)
    ready = reader.latestOffset(start, None)

    assert waiting == start
    assert bare(ready) == {name: {"0": 10}}


def test_a_stream_that_has_read_uncommitted_records_before_waits_where_it_reads_committed_ones_now(
    kafka: AnyKafka, held: tuple[str, Producer]
) -> None:
    name, _ = held
    logged = {name: {"0": 9}}

    assert KafkaStreamReader(options_of(kafka, "stream", subscribe=name)).latestOffset(logged, None) == logged


def test_a_stream_that_begins_behind_the_log_is_refused_as_before(kafka: AnyKafka, held: tuple[str, Producer]) -> None:
    name, _ = held
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name, startingOffsets=at(name, 12)))

    with pytest.raises(OptionsError, match="startingOffsets has offset 12"):
        reader.initialOffset()
