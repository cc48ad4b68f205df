"""A leader that was cut off from the others answers as the log was: its end is not the end of what a query has read."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import BrokerUnavailable, DataLoss
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.leader_epochs import lost_logs
from pyspark_kafka_eos.client.reading.offsets import LogMark, Offsets
from pyspark_kafka_eos.spark.offset_json import OffsetJson
from pyspark_kafka_eos.spark.source.batch_source import KafkaBatchReader
from pyspark_kafka_eos.spark.source.source import KafkaPartition, KafkaStreamReader, read_range
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.pyspark_kafka_eos.spark.source.test_reader import ranges_of, rows
from tests.pyspark_kafka_eos.spark.source.test_view import options_of, write

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

BEFORE, SINCE = 4, 6
"""Records under the first leader, and in all."""

ASKED = 10
"""Answers of the older leader: more than there are questions where its word is taken."""

ALLOWED = pytest.mark.parametrize("fail", ["true", "false"], ids=["failOnDataLoss", "loss is allowed"])


def two_leaders(kafka: EmbeddedKafka, topic: MakeTopic) -> str:
    """A topic with records of two leaders."""
    name = topic(1)
    write(kafka, name, BEFORE)
    kafka.elect_leader(name, 0)
    write(kafka, name, SINCE - BEFORE)
    return name


def new_process(kafka: EmbeddedKafka, name: str, **options: object) -> KafkaStreamReader:
    """A reader that knows nothing of the topic's leaders."""
    given = {"startingOffsets": "earliest", "kafka.client.id": f"c-{name}-{id(options)}", **options}
    return KafkaStreamReader(options_of(kafka, "stream", subscribe=name, **given))


def logged(kafka: EmbeddedKafka, name: str) -> OffsetJson:
    """Where a query is that has read everything."""
    reader = new_process(kafka, name)
    end: OffsetJson = json.loads(json.dumps(reader.latestOffset(reader.initialOffset(), None)))
    assert bare(end) == {name: {"0": SINCE}}
    return end


def as_spark_logs(end: OffsetJson) -> OffsetJson:
    """The same without what it stands on."""
    return bare(end)


@ALLOWED
@pytest.mark.parametrize("form", [dict, as_spark_logs], ids=["with epochs", "Spark's own offsets"])
@pytest.mark.parametrize("api", [None, "ListOffsets"], ids=["cut off", "one answer"])
def test_a_stream_stays_where_it_is_and_reads_on_from_there(
    kafka: EmbeddedKafka,
    topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    fail: str,
    form: Callable[[OffsetJson], OffsetJson],
    api: str | None,
) -> None:
    name = two_leaders(kafka, topic)
    end = form(logged(kafka, name))
    reader = new_process(kafka, name, failOnDataLoss=fail)
    fault = kafka.fault_at_leader(name, 0, "stale-leader", end=BEFORE, times=6, api=api)

    with caplog.at_level(logging.WARNING):
        assert reader.latestOffset(end, None) == end
    assert fault.fired == 6
    fault.release()
    write(kafka, name, 2)
    following = reader.latestOffset(end, None)

    assert ranges_of(reader.partitions(end, following)) == [(0, SINCE, SINCE + 2)]
    # Other clients of this process may say that a broker of another test is gone.
    mine = [each.getMessage() for each in caplog.records if each.name.startswith("pyspark_kafka_eos.")]
    assert not [said for said in mine if "lost" in said]


@pytest.mark.parametrize(
    ("form", "at"),
    # Before its end nothing but the epochs tells that there is a newer leader.
    [(dict, SINCE), (dict, BEFORE - 1), (as_spark_logs, SINCE)],
    ids=["behind its end", "before its end", "behind its end, Spark's own offsets"],
)
def test_a_run_of_available_now_that_a_cut_off_broker_began_reads_what_there_is(
    kafka: EmbeddedKafka, topic: MakeTopic, form: Callable[[OffsetJson], OffsetJson], at: int
) -> None:
    name = two_leaders(kafka, topic)
    limited = new_process(kafka, name)
    end = form(json.loads(json.dumps(limited.latestOffset(limited.initialOffset(), rows(at)))))
    write(kafka, name, 3)
    reader = new_process(kafka, name)
    # All brokers are asked first, then one: Metadata twice and ListOffsets once, by the broker that was cut off.
    fault = kafka.fault_at_leader(name, 0, "stale-leader", end=BEFORE, times=3)
    reader.prepareForTriggerAvailableNow()
    assert fault.fired == 3
    write(kafka, name, 1)

    following = reader.latestOffset(end, None)

    assert ranges_of(reader.partitions(end, following)) == [(0, at, SINCE + 4)]
    # What comes from now on is left to the next run.
    write(kafka, name, 1)
    assert reader.latestOffset(following, None) == following


@ALLOWED
def test_a_new_leader_that_does_not_know_yet_what_is_readable_is_waited_for(
    kafka: EmbeddedKafka, topic: MakeTopic, fail: str
) -> None:
    name = two_leaders(kafka, topic)
    end = logged(kafka, name)
    reader = new_process(kafka, name, failOnDataLoss=fail)
    fault = kafka.fault_at_leader(name, 0, "lagging-high-watermark", end=BEFORE, times=3, api="ListOffsets")

    assert reader.latestOffset(end, None) == end
    assert fault.fired == 3


def test_a_leader_that_stays_older_is_no_loss_but_a_broker_that_cannot_be_reached(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    name = two_leaders(kafka, topic)
    options = options_of(kafka, "stream", subscribe=name, **{"kafka.client.id": f"older-{name}"})
    cluster = Cluster(options.client)
    fault = kafka.fault_at_leader(name, 0, "stale-leader", end=BEFORE)
    try:
        cluster.topic(name)
        known = {TopicPartition(name, 0): LogMark(cluster.topic_id(name), 1)}

        with pytest.raises(BrokerUnavailable, match=r"UNKNOWN_LEADER_EPOCH|a leader of epoch 0; .* of epoch 1"):
            Offsets(cluster).ends(list(known), deadline_ms=300, known=known)
        assert fault.fired >= 2
        # Of whoever has not read there, it is not known that the leader is an older one.
        assert Offsets(cluster).latest(list(known)) == {TopicPartition(name, 0): BEFORE}
    finally:
        fault.release()
        cluster.close()


@ALLOWED
def test_a_batch_query_reads_to_the_offsets_that_it_was_given(
    kafka: EmbeddedKafka, topic: MakeTopic, fail: str
) -> None:
    name = two_leaders(kafka, topic)
    options = options_of(
        kafka, "batch", subscribe=name, endingOffsets=json.dumps({name: {"0": SINCE}}), failOnDataLoss=fail,
        **{"kafka.client.id": f"batch-{name}"},
    )  # fmt: skip
    fault = kafka.fault_at_leader(name, 0, "stale-leader", end=BEFORE, times=ASKED)

    planned = KafkaBatchReader(options).partitions()

    assert fault.fired == ASKED
    assert ranges_of(each for each in planned if isinstance(each, KafkaPartition)) == [(0, 0, SINCE)]


@ALLOWED
def test_a_group_that_is_ahead_of_an_older_leader_begins_where_it_is(
    kafka: EmbeddedKafka, topic: MakeTopic, fail: str
) -> None:
    name = two_leaders(kafka, topic)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"g-{name}"})
    consumer.commit(offsets=[Place(name, 0, SINCE)], asynchronous=False)
    consumer.close()
    reader = new_process(kafka, name, startingOffsets="group", failOnDataLoss=fail, **{"kafka.group.id": f"g-{name}"})
    fault = kafka.fault_at_leader(name, 0, "stale-leader", end=BEFORE, times=ASKED)

    assert bare(reader.initialOffset()) == {name: {"0": SINCE}}
    assert fault.fired == ASKED


@ALLOWED
def test_what_is_planned_is_read_of_a_leader_that_is_not_older(
    kafka: EmbeddedKafka, topic: MakeTopic, fail: str
) -> None:
    name = two_leaders(kafka, topic)
    end = logged(kafka, name)
    reader = new_process(kafka, name, failOnDataLoss=fail)
    (planned,) = reader.partitions({name: {"0": 0}}, end)
    fault = kafka.fault_at_leader(name, 0, "stale-leader", end=BEFORE, times=4)

    table = pa.Table.from_batches(read_range(reader.options, planned.offsets))

    assert table.column("offset").to_pylist() == list(range(SINCE))
    assert fault.fired == 4


def test_a_log_that_a_newer_leader_has_cut_is_lost_and_where_allowed_read_on_without_a_repetition(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    name = two_leaders(kafka, topic)
    end = logged(kafka, name)
    kafka.elect_leader(name, 0, lost_from=BEFORE)

    with pytest.raises(DataLoss, match=f"up to offset {SINCE}, are no longer in the log \\(from offset {BEFORE} on"):
        new_process(kafka, name).latestOffset(end, None)
    reader = new_process(kafka, name, failOnDataLoss="false")
    cut = reader.latestOffset(end, None)
    assert cut != end and reader.partitions(end, cut) == []
    write(kafka, name, 3)
    following = reader.latestOffset(cut, None)

    assert ranges_of(reader.partitions(cut, following)) == [(0, BEFORE, BEFORE + 3)]
    # Another process that plans the two batches again plans the same.
    again = new_process(kafka, name, failOnDataLoss="false")
    assert again.partitions(end, cut) == []
    assert ranges_of(again.partitions(cut, following)) == [(0, BEFORE, BEFORE + 3)]


def test_a_log_that_was_cut_is_not_read_from_its_first_record_where_its_leader_cannot_say_from_where(
    kafka: EmbeddedKafka, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the end tells of the loss: on the same topic, of a leader that is not older."""
    monkeypatch.setattr("pyspark_kafka_eos.spark.source.source_logs.lost_logs", partial(lost_logs, patience_ms=200))
    name = two_leaders(kafka, topic)
    end = logged(kafka, name)
    kafka.elect_leader(name, 0, lost_from=BEFORE)
    fault = kafka.fault_in_answer(
        "OffsetForLeaderEpoch", "error", code="NOT_LEADER_OR_FOLLOWER", topic=name, times=1000
    )

    with pytest.raises(DataLoss, match=f"had come to offset {SINCE}, but the partition ends at {BEFORE}"):
        new_process(kafka, name).latestOffset(end, None)
    reader = new_process(kafka, name, failOnDataLoss="false")
    cut = reader.latestOffset(end, None)
    assert fault.fired >= 2
    assert cut != end and reader.partitions(end, cut) == []
    write(kafka, name, 3)

    assert ranges_of(reader.partitions(cut, reader.latestOffset(cut, None))) == [(0, BEFORE, BEFORE + 3)]
    # Another process that plans the batch again plans the same.
    assert new_process(kafka, name, failOnDataLoss="false").partitions(end, cut) == []


def test_of_a_log_whose_records_are_other_ones_those_that_were_not_read_are_read(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    name = two_leaders(kafka, topic)
    end = logged(kafka, name)
    kafka.elect_leader(name, 0, lost_from=BEFORE)
    write(kafka, name, 5)

    with pytest.raises(DataLoss, match="unclean election"):
        new_process(kafka, name).latestOffset(end, None)
    reader = new_process(kafka, name, failOnDataLoss="false")

    following = reader.latestOffset(end, None)
    assert ranges_of(reader.partitions(end, following)) == [(0, BEFORE, BEFORE + 5)]
