"""The reader as Spark calls it, on a real broker, without Spark: every order of calls that Spark makes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from kafka_core.errors import DataLoss, OptionsError, UnknownTopic
from pyspark_kafka_eos import DefaultSource
from pyspark_kafka_eos.client.reading.fetcher import record_schema
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.spark.source.source import (
    KafkaPartition,
    KafkaStreamReader,
    open_reader,
    source_schema,
)
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.support.brokers import AnyKafka

SPARKS_COLUMNS = (
    "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
)
"""The schema table of Spark's Kafka integration guide."""

SPARKS_HEADERS = "headers:array<struct<key:string,value:binary>>"


def write(kafka: AnyKafka, topic: str, *counts: int) -> None:
    """Add so many records to partition 0, 1, ..."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"})
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


def reader_of(kafka: AnyKafka, topic: str, **options: object) -> KafkaStreamReader:
    """A new query's, or a restarted query's, reader."""
    parsed = SourceOptions.parse(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, **options}  # type: ignore[dict-item]
    )
    return open_reader(parsed, source_schema(parsed.include_headers))


def ranges_of(partitions: Iterable[KafkaPartition]) -> list[tuple[int, int, int]]:
    """Partition, start and end of each planned range."""
    return [(each.offsets.where.partition, each.offsets.start, each.offsets.end) for each in partitions]


def rows(limit: int) -> Any:
    """Spark's limit of a batch."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    return ReadMaxRows(limit)


# ---- without a broker


@pytest.mark.parametrize("include_headers", ["false", "true"])
def test_the_schema_is_that_of_sparks_kafka_source_and_needs_no_broker(include_headers: str) -> None:
    source = DefaultSource(
        {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "includeHeaders": include_headers}
    )
    expected = SPARKS_COLUMNS + (f",{SPARKS_HEADERS}" if include_headers == "true" else "")

    schema = source.schema()

    assert schema.simpleString() == f"struct<{expected}>"
    assert all(field.nullable for field in schema.fields)
    assert record_schema(include_headers == "true").equals(to_arrow_schema(schema, timezone="UTC"))


def test_another_schema_is_refused() -> None:
    options = SourceOptions.parse({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"})

    with pytest.raises(OptionsError, match="own schema"):
        open_reader(options, StructType([StructField("value", StringType())]))


def test_bad_options_are_refused_when_the_stream_is_defined() -> None:
    source = DefaultSource({"kafka.bootstrap.servers": "nowhere:1", "subscrib": "t"})

    with pytest.raises(OptionsError, match="did you mean subscribe"):
        source.schema()


def test_what_only_a_batch_or_only_a_stream_has_is_judged_when_that_is_known() -> None:
    source = DefaultSource({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "endingOffsets": "earliest"})

    schema = source.schema()

    with pytest.raises(OptionsError, match="not valid in streaming queries"):
        source.streamReader(schema)
    with pytest.raises(OptionsError, match="can't be earliest for batch queries"):
        source.reader(schema)


# ---- with a broker


@pytest.mark.kafka
def test_a_topic_that_does_not_exist_is_named(kafka: AnyKafka) -> None:
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        reader_of(kafka, "no-such-topic").initialOffset()


@pytest.mark.kafka
def test_starting_offsets_are_resolved(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(3)
    write(kafka, name, 5, 6, 7)
    exact = f'{{"{name}": {{"0": -2, "1": 4, "2": -1}}}}'

    assert bare(reader_of(kafka, name, startingOffsets="earliest").initialOffset()) == {name: {"0": 0, "1": 0, "2": 0}}
    assert bare(reader_of(kafka, name).initialOffset()) == {name: {"0": 5, "1": 6, "2": 7}}
    assert bare(reader_of(kafka, name, startingOffsets=exact).initialOffset()) == {name: {"0": 0, "1": 4, "2": 7}}


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("offsets", "complaint"),
    [('{"0": 0}', "missing .*-1"), ('{"0": 0, "1": 0, "2": 0}', "nonexistent .*-2"), ('{"0": 0, "1": 3}', "ends at 2")],
)  # fmt: skip
def test_starting_offsets_that_the_topic_does_not_have_are_refused(
    kafka: AnyKafka, topic: MakeTopic, offsets: str, complaint: str
) -> None:
    name = topic(2)
    write(kafka, name, 2, 2)

    with pytest.raises(OptionsError, match=complaint):
        reader_of(kafka, name, startingOffsets=f'{{"{name}": {offsets}}}').initialOffset()


@pytest.mark.kafka
def test_a_first_batch_that_is_done_again_begins_where_it_began_although_latest_is_another_offset_by_then(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 3)
    first_run = reader_of(kafka, name)
    start = first_run.initialOffset()
    write(kafka, name, 2)

    logged = first_run.latestOffset(start, rows(100))

    assert bare(start) == {name: {"0": 3}}
    assert bare(logged) == {name: {"0": 5}}
    assert ranges_of(first_run.partitions(start, logged)) == [(0, 3, 5)]

    # Killed before the first batch was done: Spark asks the new reader for the beginning again and replays.
    write(kafka, name, 4)
    second_run = reader_of(kafka, name)
    assert bare(second_run.initialOffset()) == {name: {"0": 9}}
    assert ranges_of(second_run.partitions(second_run.initialOffset(), logged)) == [(0, 3, 5)]
    following = second_run.latestOffset(logged, rows(100))
    assert ranges_of(second_run.partitions(logged, following)) == [(0, 5, 9)]
    # Only the first batch's end says where that batch begins.
    assert any(entry.startswith("began:") for entry in logged)
    assert not any(entry.startswith("began:") for entry in following)


@pytest.mark.kafka
def test_a_first_batch_without_records_that_spark_has_logged_is_planned_as_it_was(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 5)
    logged = {name: {"0": 3}}
    reader = reader_of(kafka, name)

    assert bare(reader.initialOffset()) == {name: {"0": 5}}
    assert reader.partitions(reader.initialOffset(), logged) == []
    assert ranges_of(reader.partitions(logged, reader.latestOffset(logged, rows(100)))) == [(0, 3, 5)]


@pytest.mark.kafka
def test_a_reader_that_is_told_no_position_limits_batches_from_where_spark_has_planned_last(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    # The calls of pyspark 4.0 and 4.1, in their order.
    name = topic(2)
    write(kafka, name, 6, 6)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}
    first_run = reader_of(kafka, name, **options)

    first_end = first_run.latestOffset()
    start = first_run.initialOffset()
    assert bare(start) == {name: {"0": 0, "1": 0}}
    assert ranges_of(first_run.partitions(start, first_end)) == [(0, 0, 2), (1, 0, 2)]
    second_end = first_run.latestOffset()
    assert bare(second_end) == {name: {"0": 4, "1": 4}}

    # Killed when the second batch was logged: the newest logged offset is named, then that batch is replayed.
    second_run = reader_of(kafka, name, **options)
    assert second_run.partitions(second_end, second_end) == []
    assert ranges_of(second_run.partitions(first_end, second_end)) == [(0, 2, 4), (1, 2, 4)]
    third_end = second_run.latestOffset()
    assert bare(third_end) == {name: {"0": 6, "1": 6}}
    second_run.partitions(second_end, third_end)
    assert second_run.latestOffset() == third_end


@pytest.mark.kafka
def test_partitions_that_are_added_later_are_read_from_their_beginning_within_the_limit(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 2)
    reader = reader_of(kafka, name, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    start = reader.latestOffset(reader.initialOffset(), rows(4))
    assert bare(start) == {name: {"0": 2}}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.create_partitions([NewPartitions(name, 2)]).values():
        answer.result(timeout=30)
    write(kafka, name, 0, 10)

    # Once, beside other tests, Apache Kafka 4.4.0's answer was without the new partition. Nothing is lost then: a later
    # batch has it.
    deadline = time.monotonic() + 30
    while bare(end := reader.latestOffset(start, rows(4))) == bare(start) and time.monotonic() < deadline:
        time.sleep(0.1)

    assert bare(end) == {name: {"0": 2, "1": 4}}
    assert ranges_of(reader.partitions(start, end)) == [(1, 0, 4)]


@pytest.mark.kafka
def test_a_topic_that_ends_before_the_position_stops_the_query_before_spark_logs_anything(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 3)
    position = {name: {"0": 7}}

    with pytest.raises(DataLoss, match="ends at 3"):
        reader_of(kafka, name).latestOffset(position, rows(10))

    tolerant = reader_of(kafka, name, failOnDataLoss="false")
    end = tolerant.latestOffset(position, rows(10))
    assert bare(end) == {name: {"0": 3}}
    assert ranges_of(tolerant.partitions(position, end)) == [(0, 0, 3)]


@pytest.mark.kafka
def test_a_run_of_available_now_ends_at_what_was_there_when_it_began(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 5)
    reader = reader_of(kafka, name, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    reader.prepareForTriggerAvailableNow()
    write(kafka, name, 5)

    ends = [reader.initialOffset()]
    while len(ends) < 2 or ends[-1] != ends[-2]:
        ends.append(reader.latestOffset(ends[-1], reader.getDefaultReadLimit()))

    assert [end[name]["0"] for end in ends] == [0, 3, 5, 5]
    assert bare(reader.reportLatestOffset()) == {name: {"0": 10}}


@pytest.mark.kafka
def test_a_task_gets_the_rows_of_its_range_in_the_schema_that_spark_expects(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 6)
    reader = reader_of(kafka, name, startingOffsets="earliest", includeHeaders="true")
    (partition,) = reader.partitions({name: {"0": 2}}, {name: {"0": 5}})

    table = pa.Table.from_batches(reader.read(partition))

    assert table.column("offset").to_pylist() == [2, 3, 4]
    assert table.column("value").to_pylist() == [b"2", b"3", b"4"]
    assert table.schema.equals(to_arrow_schema(source_schema(include_headers=True), timezone="UTC"))
