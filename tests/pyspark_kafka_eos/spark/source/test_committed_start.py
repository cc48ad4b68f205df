"""startingOffsets=group: a query goes on from a consumer group's committed offsets, or says why it cannot."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from kafka_core.errors import DataLoss, OptionsError
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from pyspark_kafka_eos.spark.source.source_view import SourceView
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.pyspark_kafka_eos.spark.source.test_view import delete_before, options_of, ranges_of, write
from tests.support.brokers import AnyKafka, settle

pytestmark = pytest.mark.kafka


def commit(kafka: AnyKafka, group: str, topic: str, *offsets: int) -> None:
    """Commit an offset of partition 0, 1, ... as any consumer of the group does; a negative one is left out."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    places = [Place(topic, number, offset) for number, offset in enumerate(offsets) if offset >= 0]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def of_group(topic: str, **more: object) -> dict[str, object]:
    """The options of a query that goes on from the group named as the topic."""
    return {"subscribe": topic, "startingOffsets": "group", "kafka.group.id": topic, **more}


def test_a_stream_begins_at_the_offsets_that_the_group_has_committed(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(3)
    write(kafka, name, 5, 5, 5)
    commit(kafka, name, name, 2, 5, 0)

    reader = KafkaStreamReader(options_of(kafka, "stream", **of_group(name)))

    assert bare(reader.initialOffset()) == {name: {"0": 2, "1": 5, "2": 0}}


def test_a_batch_reads_from_the_groups_offsets_to_the_end(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(2)
    write(kafka, name, 5, 5)
    commit(kafka, name, name, 2, 5)

    assert ranges_of(kafka, **of_group(name)) == [(0, 2, 5)]


def test_the_first_batch_is_the_same_when_it_is_done_again_although_the_group_has_moved_on(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 6)
    commit(kafka, name, name, 2)
    first = KafkaStreamReader(options_of(kafka, "stream", **of_group(name)))
    begin = first.initialOffset()
    end = first.latestOffset()
    planned = [each.offsets for each in first.partitions(begin, end)]
    # The sink commits the batch with its offsets; the driver dies before Spark notes the batch as done.
    commit(kafka, name, name, 6)

    again = KafkaStreamReader(options_of(kafka, "stream", **of_group(name)))

    found = [each.offsets for each in again.partitions(again.initialOffset(), end)]
    assert [(each.start, each.end) for each in found] == [(2, 6)]
    assert [(each.start, each.end) for each in planned] == [(2, 6)]


@pytest.mark.parametrize("given", [{}, {"kafka.auto.offset.reset": "none"}])
def test_partitions_without_a_committed_offset_stop_the_query(
    kafka: AnyKafka, topic: MakeTopic, given: dict[str, object]
) -> None:
    name = topic(3)
    write(kafka, name, 5, 5, 5)
    commit(kafka, name, name, 2, -1, -1)

    with pytest.raises(OptionsError, match="has no committed offset") as caught:
        SourceView(options_of(kafka, "stream", **of_group(name, **given))).beginning()

    assert f"{name}-1, {name}-2" in caught.value.message
    assert f"{name}-0" not in caught.value.message
    assert "kafka.auto.offset.reset" in caught.value.message


@pytest.mark.parametrize(("word", "offset"), [("earliest", 1), ("latest", 5)])
def test_partitions_without_a_committed_offset_begin_where_the_user_says(
    kafka: AnyKafka, topic: MakeTopic, word: str, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(2)
    write(kafka, name, 5, 5)
    delete_before(kafka, name, 1)
    commit(kafka, name, name, -1, 3)
    options = options_of(kafka, "stream", **of_group(name), **{"kafka.auto.offset.reset": word})

    with caplog.at_level(logging.WARNING, "pyspark_kafka_eos.spark.source.committed_start"):
        begin = SourceView(options).beginning()

    assert {where.partition: each for where, each in begin.items()} == {0: offset, 1: 3}
    assert f"{name}-0, which begin at the {word}" in caplog.text


def test_committed_offsets_that_retention_has_removed_are_a_loss_unless_the_user_allows_it(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 5)
    commit(kafka, name, name, 1)
    delete_before(kafka, name, 3)

    with pytest.raises(DataLoss, match=f"the group {name} has committed offset 1, but the partition begins at 3"):
        ranges_of(kafka, **of_group(name))
    assert ranges_of(kafka, **of_group(name, failOnDataLoss="false")) == [(0, 3, 5)]


def test_a_committed_offset_behind_the_end_is_a_loss_whatever_the_reset(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 5)
    commit(kafka, name, name, 8)  # as of a topic that was deleted and made again
    reset = {"kafka.auto.offset.reset": "latest"}

    with pytest.raises(DataLoss, match=f"the group {name} has committed offset 8, but the partition ends at 5"):
        ranges_of(kafka, **of_group(name, **reset))
    assert ranges_of(kafka, **of_group(name, failOnDataLoss="false")) == [(0, 0, 5)]


def test_a_committed_offset_behind_an_open_transaction_is_not_lost(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 2)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(name, b"open", partition=0)
    writer.flush(30)
    write(kafka, name, 2)
    commit(kafka, name, name, 4)  # by a reader of uncommitted records

    begin = SourceView(options_of(kafka, "stream", **of_group(name))).beginning()
    writer.abort_transaction(30)
    settle(kafka.bootstrap_servers, name)

    assert list(begin.values()) == [4]


def test_offsets_that_a_transaction_is_about_to_commit_are_waited_for(kafka: AnyKafka, topic: MakeTopic) -> None:
    from threading import Timer

    name = topic(1)
    write(kafka, name, 5)
    commit(kafka, name, name, 1)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    writer.init_transactions(30)
    writer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name})
    writer.send_offsets_to_transaction([Place(name, 0, 4)], consumer.consumer_group_metadata(), 30)
    end = Timer(0.5, lambda: writer.commit_transaction(30))
    end.start()

    found = SourceView(options_of(kafka, "stream", **of_group(name))).beginning()
    end.join()
    consumer.close()

    assert list(found.values()) == [4]


def test_a_group_that_does_not_exist_has_no_offsets(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)

    with pytest.raises(OptionsError, match="the group no-such-group has no committed offset"):
        SourceView(options_of(kafka, "stream", **{**of_group(name), "kafka.group.id": "no-such-group"})).beginning()
    # Asking has not made it either.
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    groups = admin.list_consumer_groups().result(30)
    assert "no-such-group" not in [each.group_id for each in groups.valid]
