"""A log that is no longer the one that a query has read, or was planned for, is lost data also where its offsets
fit.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import DataLoss
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.spark.offset_json import OffsetJson
from pyspark_kafka_eos.spark.source.batch_source import KafkaBatchReader
from pyspark_kafka_eos.spark.source.source import KafkaPartition, KafkaStreamReader, read_range
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.pyspark_kafka_eos.spark.source.test_view import options_of, write

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

Lose = Callable[[EmbeddedKafka, str], None]


def by_an_election(kafka: EmbeddedKafka, name: str) -> None:
    """An unclean election takes records away, and others take their offsets."""
    kafka.elect_leader(name, 0, lost_from=2)
    write(kafka, name, 20)


def by_making_it_anew(kafka: EmbeddedKafka, name: str) -> None:
    """The topic is deleted, and another of its name has more records."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name])[name].result(30)
    admin.create_topics([NewTopic(name, 1, config={"retention.ms": "-1"})])[name].result(30)
    write(kafka, name, 20)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another id is believed at once: these topics are other ones for good."""
    monkeypatch.setattr(absence, "NEW_TOPIC_MS", 100)


LOSSES = pytest.mark.parametrize("lose", [by_an_election, by_making_it_anew])


def reader_at(kafka: EmbeddedKafka, name: str, **more: str) -> KafkaStreamReader:
    """A query that has read five records."""
    write(kafka, name, 5)
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name, startingOffsets="earliest", **more))
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    assert bare(end) == {name: {"0": 5}}
    reader.partitions(start, end)
    return reader


@LOSSES
def test_a_query_does_not_go_on_in_another_log(kafka: EmbeddedKafka, topic: MakeTopic, lose: Lose) -> None:
    name = topic(1)
    reader = reader_at(kafka, name)
    lose(kafka, name)

    with pytest.raises(DataLoss, match=f"{name}-0: .*(unclean election|recreated)"):
        reader.latestOffset({name: {"0": 5}}, None)


@LOSSES
def test_where_loss_is_allowed_it_goes_on_with_what_is_there(
    kafka: EmbeddedKafka, topic: MakeTopic, lose: Lose, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    reader = reader_at(kafka, name, failOnDataLoss="false")
    lose(kafka, name)

    for _ in range(2):
        end = bare(reader.latestOffset({name: {"0": 5}}, None))[name]["0"]
        assert end > 5
    assert caplog.text.count("records may be lost") == 1


def test_an_election_that_loses_nothing_is_no_reason_to_stop(kafka: EmbeddedKafka, topic: MakeTopic) -> None:
    name = topic(1)
    reader = reader_at(kafka, name)
    kafka.elect_leader(name, 0)
    write(kafka, name, 3)

    assert bare(reader.latestOffset({name: {"0": 5}}, None)) == {name: {"0": 8}}


def test_what_was_planned_is_not_read_from_another_log(kafka: EmbeddedKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 5)
    options = options_of(kafka, "batch", subscribe=name)
    (planned,) = KafkaBatchReader(options).partitions()
    assert isinstance(planned, KafkaPartition)
    by_an_election(kafka, name)

    with pytest.raises(DataLoss, match="unclean election"):
        list(read_range(options, planned.offsets))


def values_of(reader: KafkaStreamReader, start: OffsetJson, end: OffsetJson) -> list[tuple[int, bytes]]:
    """The offsets and values that the tasks of a batch read."""
    found: list[tuple[int, bytes]] = []
    for planned in reader.partitions(start, end):
        table = pa.Table.from_batches(read_range(reader.options, planned.offsets))
        found += zip(table.column("offset").to_pylist(), table.column("value").to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("more", [1, 20], ids=["the log is shorter now", "the log is longer now"])
def test_where_loss_is_allowed_what_took_the_place_of_lost_records_is_read_once(
    kafka: EmbeddedKafka, topic: MakeTopic, more: int
) -> None:
    """Between the planning of a batch and its tasks, as between two batches."""
    name = topic(1)
    for _ in range(5):  # a record batch each: an election takes whole ones
        write(kafka, name, 1)
    reader = KafkaStreamReader(
        options_of(kafka, "stream", subscribe=name, startingOffsets="earliest", failOnDataLoss="false")
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    kafka.elect_leader(name, 0, lost_from=2)
    write(kafka, name, more)

    first = values_of(reader, start, end)
    following = reader.latestOffset(end, None)
    second = values_of(reader, end, following)

    assert [offset for offset, _ in first] == [0, 1]
    assert [offset for offset, _ in second] == list(range(2, 2 + more))
