"""A checkpoint's offsets are of one cluster and of one topic: they are taken to no other, in whatever call Spark begins
with.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql.datasource import InputPartition

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import DataLoss, OptionsError, UnknownTopic
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.options import SinkOptions, SourceOptions
from pyspark_kafka_eos.spark.offset_json import OffsetJson, position_of
from pyspark_kafka_eos.spark.source import source_partitions
from pyspark_kafka_eos.spark.source.batch_source import KafkaBatchReader
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from pyspark_kafka_eos.spark.source.source_group import group_offsets
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.pyspark_kafka_eos.spark.source.test_reader import ranges_of, reader_of, write
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another id is believed at once: these topics are other ones for good."""
    monkeypatch.setattr(absence, "NEW_TOPIC_MS", 100)
    # A worker keeps what there is when a task begins for good, and so the clients of this process.
    monkeypatch.setattr("pyspark_kafka_eos.spark.source.source.make_ready", lambda: None)


@pytest.fixture(scope="module")
def other() -> Iterator[EmbeddedKafka]:
    """Another cluster."""
    with EmbeddedKafka(in_process=True) as broker:
        yield broker


def make(kafka: AnyKafka, topic: str, *counts: int) -> None:
    """The topic, with so many records in its partitions."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, len(counts))], operation_timeout=30)[topic].result(30)
    write(kafka, topic, *counts)


def make_anew(kafka: AnyKafka, topic: str, *counts: int) -> None:
    """Another topic of the same name."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    make(kafka, topic, *counts)


def logged_of(kafka: AnyKafka, topic: str) -> tuple[OffsetJson, OffsetJson]:
    """Where the first batch of a query over all that is there begins and ends, as Spark's log has it."""
    reader = reader_of(kafka, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    return json.loads(json.dumps(start)), json.loads(json.dumps(end))


def cluster_id(kafka: AnyKafka) -> str:
    """As an independent client has it."""
    return str(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=30).cluster_id)


Call = Callable[[KafkaStreamReader, OffsetJson, OffsetJson], object]

CALLS = pytest.mark.parametrize(
    "call",
    [
        lambda reader, _, end: reader.latestOffset(end, None),
        lambda reader, start, end: reader.partitions(start, end),
        lambda reader, _, end: reader.partitions(end, end),
    ],
    ids=["the next batch", "a batch that is repeated", "pyspark 4.0's first call"],
)


# ---- another cluster


@CALLS
def test_another_cluster_is_refused_before_a_batch_is_planned_naming_both_and_the_ways_on(
    kafka: AnyKafka, other: EmbeddedKafka, topic: MakeTopic, call: Call
) -> None:
    name = topic(1)
    write(kafka, name, 200)
    start, end = logged_of(kafka, name)
    make(other, name, 300)

    for allowed in ("true", "false"):
        with pytest.raises(OptionsError) as raised:
            call(reader_of(other, name, failOnDataLoss=allowed), start, end)

        message = str(raised.value)
        assert f"has offsets of the cluster {cluster_id(kafka)}" in message
        assert f"is the cluster {cluster_id(other)}" in message
        assert "nothing was read" in message and "new checkpoint and with startingOffsets" in message
        assert f"set adopt.cluster={cluster_id(kafka)}" in message


def test_a_mirror_goes_on_where_the_option_names_the_cluster_of_the_checkpoint_and_no_other(
    kafka: AnyKafka, other: EmbeddedKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    write(kafka, name, 5)
    start, end = logged_of(kafka, name)
    make(other, name, 8)
    reader = reader_of(other, name, **{"adopt.cluster": cluster_id(kafka)})

    assert ranges_of(reader.partitions(start, end)) == [(0, 0, 5)]
    following = reader.latestOffset(end, None)

    assert ranges_of(reader.partitions(end, following)) == [(0, 5, 8)]
    # From here on the offsets are the other cluster's: the option has nothing left to say.
    assert position_of(following).cluster_id == cluster_id(other)
    assert ranges_of(reader_of(other, name).partitions(end=following, start=following)) == []
    assert caplog.text.count("adopt.cluster says that they are the same here") == 1
    with pytest.raises(OptionsError, match="set adopt"):
        reader_of(other, name, **{"adopt.cluster": "a-third"}).latestOffset(end, None)


# ---- another topic of the same name


@pytest.mark.parametrize("first", ["the next batch", "a batch that is repeated"])
def test_a_topic_that_was_recreated_is_refused_at_the_start_although_it_has_more_records(
    kafka: AnyKafka, topic: MakeTopic, first: str
) -> None:
    name = topic(1)
    write(kafka, name, 5)
    start, end = logged_of(kafka, name)
    was = position_of(end).topic_ids()[name]
    make_anew(kafka, name, 9)
    reader = reader_of(kafka, name)

    with pytest.raises(DataLoss) as raised:
        reader.latestOffset(end, None) if first == "the next batch" else reader.partitions(start, end)

    message = str(raised.value)
    now = Cluster.shared(reader.options.client).topic_id(name)
    assert was != now and f"the id {was}" in message and f"the id {now} now" in message
    assert "new checkpoint and with startingOffsets" in message and "failOnDataLoss=false" in message


def test_where_loss_is_allowed_a_topic_that_was_recreated_is_read_from_its_first_record_whatever_its_length(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    for count in (3, 5, 9):
        name = topic(1)
        write(kafka, name, 5)
        _, end = logged_of(kafka, name)
        make_anew(kafka, name, count)
        reader = reader_of(kafka, name, failOnDataLoss="false")

        with caplog.at_level(logging.WARNING):
            following = reader.latestOffset(end, None)

        assert following != end, "Spark runs no batch where the text is the same"
        assert ranges_of(reader.partitions(end, following)) == [(0, 0, count)]
        # Killed before it was done: another process plans it again.
        again = reader_of(kafka, name, failOnDataLoss="false")
        assert ranges_of(again.partitions(end, following)) == [(0, 0, count)]
        assert again.latestOffset(following, None) == following
        assert caplog.text.count(f"{name}-0: the topic was recreated") == 1
        assert "the query begins it at its first record" in caplog.text


def test_of_a_logged_batch_whose_topic_was_recreated_nothing_is_read_and_the_next_one_has_all_of_it(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 5)
    start, end = logged_of(kafka, name)
    make_anew(kafka, name, 9)
    reader = reader_of(kafka, name, failOnDataLoss="false")

    assert reader.partitions(start, end) == []
    assert ranges_of(reader.partitions(end, reader.latestOffset(end, None))) == [(0, 0, 9)]


def loss_of(reader: KafkaStreamReader | KafkaBatchReader, part: InputPartition) -> str:
    """The words of the loss that ends a task. Its frames go at once, and with them the clients that they hold."""
    try:
        list(reader.read(part))
    except DataLoss as loss:
        return str(loss)
    raise AssertionError("nothing was lost")


@pytest.mark.parametrize("fail", ["true", "false"])
def test_of_a_planned_batch_nothing_is_read_from_a_topic_recreated_in_a_process_that_has_read_the_one_before(
    kafka: AnyKafka, topic: MakeTopic, fail: str
) -> None:
    name = topic(1)
    write(kafka, name, 5)
    reader = reader_of(kafka, name, startingOffsets="earliest", failOnDataLoss=fail)
    start = reader.initialOffset()
    first = reader.latestOffset(start, None)
    (part,) = reader.partitions(start, first)
    assert sum(each.num_rows for each in reader.read(part)) == 5
    write(kafka, name, 5)
    second = reader.latestOffset(first, None)
    (part,) = reader.partitions(first, second)
    was = position_of(second).topic_ids()[name]
    make_anew(kafka, name, 15)

    if fail == "true":
        assert f"of the topic with the id {was}, and {name} has the id" in loss_of(reader, part)
        assert Cluster.shared(reader.options.client).topic_id(name) not in ("", was)
    else:
        assert list(reader.read(part)) == []
        third = reader.latestOffset(second, None)
        assert ranges_of(reader.partitions(second, third)) == [(0, 0, 15)]


def test_a_batch_query_reads_nothing_of_a_topic_that_was_recreated_since_it_was_planned(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 5)
    reader = KafkaBatchReader(
        SourceOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}, "batch")
    )
    (part,) = reader.partitions()
    make_anew(kafka, name, 15)

    assert "recreated" in loss_of(reader, part)


def test_no_offset_of_a_topic_that_was_recreated_goes_to_the_group(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name, same = topic(1), topic(1)
    for each in (name, same):
        write(kafka, each, 5)
    _, end = logged_of(kafka, f"{name},{same}")
    options = SinkOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, "pipeline": f"p-{name}"})
    cluster = Cluster.shared(options.client)
    assert {where.topic for where in group_offsets(cluster, options, (json.dumps(end),))} == {name, same}
    make_anew(kafka, name, 9)
    cluster.topic(name, refresh=True)

    found = group_offsets(cluster, options, (json.dumps(end),))

    assert {where.topic for where in found} == {same}
    assert f"the source topics {name} are of the topic with the id" in caplog.text
    assert bare(end)[name] == {"0": 5}


def test_where_its_topic_was_deleted_a_query_is_not_told_to_create_it(
    kafka: AnyKafka, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_partitions, "TOPIC_PATIENCE_MS", 200)
    name = topic(1)
    write(kafka, name, 5)
    _, end = logged_of(kafka, name)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name], operation_timeout=30)[name].result(30)
    reader = reader_of(kafka, name)

    with pytest.raises(UnknownTopic, match="is gone, and the query has a position in it") as caught:
        reader.latestOffset(end, None)

    assert "create it" not in str(caught.value)
    assert "adopt.checkpoint=true once" in str(caught.value)


# ---- a checkpoint's offsets as an option


def as_option(end: OffsetJson) -> str:
    """As they stand in the offset log."""
    return json.dumps(end)


def test_a_checkpoints_offsets_are_a_place_to_begin_and_to_end_as_they_are(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 5)
    _, end = logged_of(kafka, name)
    assert any(entry.startswith("began:") for entry in end)
    write(kafka, name, 3)
    reader = reader_of(kafka, name, startingOffsets=as_option(end))

    start = reader.initialOffset()
    assert bare(start) == {name: {"0": 5}}
    assert ranges_of(reader.partitions(start, reader.latestOffset(start, None))) == [(0, 5, 8)]
    given = {"startingOffsets": f'{{"{name}":{{"0":1}}}}', "endingOffsets": as_option(end)}
    batch = KafkaBatchReader(
        SourceOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, **given}, "batch")
    )
    assert ranges_of(batch.partitions()) == [(0, 1, 5)]  # type: ignore[arg-type]


def test_a_checkpoints_offsets_of_another_cluster_are_no_place_to_begin(
    kafka: AnyKafka, topic: MakeTopic, other: EmbeddedKafka
) -> None:
    name = topic(1)
    write(kafka, name, 5)
    _, end = logged_of(kafka, name)
    make(other, name, 8)

    with pytest.raises(OptionsError, match=r"startingOffsets has offsets of the cluster .*adopt\.cluster="):
        reader_of(other, name, startingOffsets=as_option(end)).initialOffset()
    adopts = {"adopt.cluster": cluster_id(kafka)}
    assert bare(reader_of(other, name, startingOffsets=as_option(end), **adopts).initialOffset()) == {name: {"0": 5}}


def test_a_checkpoints_offsets_of_a_topic_before_are_no_place_to_begin(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 5)
    _, end = logged_of(kafka, name)
    make_anew(kafka, name, 9)

    with pytest.raises(DataLoss, match="startingOffsets: the topic was recreated"):
        reader_of(kafka, name, startingOffsets=as_option(end)).initialOffset()
    lenient = reader_of(kafka, name, startingOffsets=as_option(end), failOnDataLoss="false")
    assert bare(lenient.initialOffset()) == {name: {"0": 0}}


def test_entries_of_another_version_are_to_be_left_out(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 5)
    _, end = logged_of(kafka, name)
    text = as_option(end).replace("version:1", "version:99")

    with pytest.raises(OptionsError, match="leave out the entries whose names have a colon"):
        reader_of(kafka, name, startingOffsets=text).initialOffset()
    assert bare(reader_of(kafka, name, startingOffsets=as_option(bare(end))).initialOffset()) == bare(end)


@pytest.mark.parametrize("text", ['{"t":{}}', '{"version:1":{"0":1},"t":{"0":1}}', '{"t":{"0":-3}}'])
def test_offsets_that_are_neither_sparks_nor_a_checkpoints_are_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="must be earliest, latest, or JSON"):
        SourceOptions.parse({"kafka.bootstrap.servers": "none:1", "subscribe": "t", "startingOffsets": text}, "stream")
