"""A query that goes on from its checkpoint with other topics than before: what it is told, and what becomes of them."""

from __future__ import annotations

import json
import logging

import pytest
from confluent_kafka.admin import AdminClient

from kafka_core.errors import DataLoss, OptionsError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.spark.source import source_partitions
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.pyspark_kafka_eos.spark.source.test_reader import ranges_of, reader_of
from tests.pyspark_kafka_eos.spark.source.test_view import options_of, write
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone is believed at once: these topics are gone for good."""
    monkeypatch.setattr(source_partitions, "TOPIC_PATIENCE_MS", 300)
    monkeypatch.setattr(absence, "NEW_TOPIC_MS", 100)


def delete(kafka: AnyKafka, topic: str) -> None:
    """The topic is gone when this returns."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.delete_topics([topic], operation_timeout=30).values():
        answer.result(30)


def position(**offsets: int) -> dict[str, dict[str, int]]:
    """A checkpoint's offsets, of partition 0 of each topic."""
    return {topic: {"0": offset} for topic, offset in offsets.items()}


def test_a_restart_without_a_topic_says_which_and_what_to_do_and_never_to_allow_data_loss(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    old, new = topic(1), topic(1)
    write(kafka, old, 3)
    write(kafka, new, 4)
    reader = reader_of(kafka, new)

    with pytest.raises(OptionsError) as raised:
        reader.latestOffset(position(**{old: 2}), None)

    message = str(raised.value)
    assert f"checkpoint has offsets of {old}, but subscribe is {new} now" in message
    assert f"set subscribe so that {old} is read again" in message
    assert "begin with a new checkpoint" in message
    assert "nothing was read" in message
    assert "failOnDataLoss" not in message


@pytest.mark.parametrize("option", ["assign", "subscribePattern"])
def test_the_other_two_ways_to_name_topics_are_judged_alike(kafka: AnyKafka, topic: MakeTopic, option: str) -> None:
    old, new = topic(2), topic(1)
    asked = json.dumps({old: [1]}) if option == "assign" else f"^{new}$"
    reader = KafkaStreamReader(options_of(kafka, "stream", **{option: asked}))

    with pytest.raises(OptionsError, match=f"offsets of {old}.* but {option} is ") as raised:
        reader.latestOffset({old: {"0": 2, "1": 3}}, None)

    assert "failOnDataLoss" not in str(raised.value)


def test_a_topic_more_is_read_from_its_beginning(kafka: AnyKafka, topic: MakeTopic) -> None:
    old, new = topic(1), topic(1)
    write(kafka, old, 3)
    write(kafka, new, 4)
    reader = reader_of(kafka, f"{old},{new}")
    start = position(**{old: 2})

    end = reader.latestOffset(start, None)

    assert bare(end) == position(**{old: 3, new: 4})
    assert ranges_of(reader.partitions(start, end)) == [(0, 2, 3), (0, 0, 4)]


def test_where_loss_is_allowed_a_topic_that_is_no_longer_named_is_forgotten_with_a_word(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = topic(1), topic(1)
    write(kafka, new, 4)
    reader = reader_of(kafka, new, failOnDataLoss="false")

    with caplog.at_level(logging.WARNING):
        end = reader.latestOffset(position(**{old: 2, new: 1}), None)

    assert bare(end) == position(**{new: 4})
    assert f"leaves out {old}" in caplog.text


def test_a_topic_that_is_gone_is_data_loss_and_not_another_subscription(
    kafka: AnyKafka, topic: MakeTopic, impatient: None
) -> None:
    old, new = topic(1), topic(1)
    write(kafka, new, 4)
    delete(kafka, old)
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribePattern=f"^({old}|{new})$"))

    with pytest.raises(DataLoss, match=f"{old}-0: the partition is gone"):
        reader.latestOffset(position(**{old: 2, new: 1}), None)


@pytest.mark.parametrize("way", ["subscribe", "subscribePattern", "assign"])
def test_where_loss_is_allowed_the_rest_goes_on_without_a_topic_that_is_gone(
    kafka: AnyKafka, topic: MakeTopic, impatient: None, way: str
) -> None:
    old, new = topic(1), topic(1)
    write(kafka, old, 3)
    write(kafka, new, 4)
    asked = {
        "subscribe": f"{old},{new}",
        "subscribePattern": f"^({old}|{new})$",
        "assign": json.dumps({old: [0], new: [0]}),
    }[way]
    reader = KafkaStreamReader(options_of(kafka, "stream", **{way: asked}, failOnDataLoss="false"))
    begin = position(**{old: 1, new: 1})
    assert bare(reader.latestOffset(begin, None)) == position(**{old: 3, new: 4})
    delete(kafka, old)

    ends = [reader.latestOffset(begin, None) for _ in range(2)]
    restarted = KafkaStreamReader(options_of(kafka, "stream", **{way: asked}, failOnDataLoss="false"))

    assert [bare(end) for end in ends] == [position(**{new: 4})] * 2
    assert bare(restarted.latestOffset(begin, None)) == position(**{new: 4})
    # A batch that was logged before the topic went is planned again without it, also where it was new in that batch.
    planned = restarted.partitions(position(**{new: 1}), position(**{old: 3, new: 4}))
    assert [each.offsets.where for each in planned] == [TopicPartition(new, 0)]


def test_a_batch_that_is_planned_again_for_a_topic_that_is_gone_is_data_loss(
    kafka: AnyKafka, topic: MakeTopic, impatient: None
) -> None:
    old, new = topic(1), topic(1)
    write(kafka, new, 4)
    delete(kafka, old)
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribePattern=f"^({old}|{new})$"))

    with pytest.raises(DataLoss, match=f"{old}-0: the partition is gone; this batch was to read it up to offset 3"):
        reader.partitions(position(**{new: 1}), position(**{old: 3, new: 4}))


def test_offsets_say_what_they_stand_on_and_the_rest_is_sparks_json(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 2)
    reader = reader_of(kafka, name, startingOffsets="earliest")
    cluster_id = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=30).cluster_id
    topic_id = reader.view.offsets.cluster.topic(name).topic_id

    first = reader.latestOffset(reader.initialOffset(), None)
    write(kafka, name, 1)
    end = reader.latestOffset(first, None)

    stands_on = {"version:1": {}, f"cluster:{cluster_id}": {}, f"topic:{name}:{topic_id}:0": {}}
    assert topic_id and end == {name: {"0": 3}, **stands_on}
    # The first batch's end also says where that began. No entry has partitions, so Spark's own source ignores them.
    began = f'began:{{"{name}":{{"0":0}},"topic:{name}:{topic_id}:-1":{{}}}}'
    assert first == {name: {"0": 2}, **stands_on, began: {}}


def test_offsets_that_spark_has_logged_stay_as_they_are_while_nothing_is_new(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 2)
    logged = {name: {"0": 2}}
    reader = reader_of(kafka, name)

    # Another text would be news to Spark, which then runs a batch without rows.
    assert reader.latestOffset(logged, None) == logged
    reader.partitions(logged, logged)
    assert reader.latestOffset() == logged
