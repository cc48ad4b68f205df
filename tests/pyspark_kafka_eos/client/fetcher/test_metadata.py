"""Metadata answers of brokers that lag take nothing away: no partition, no newer leader; what is gone for good is
said.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafka_core.errors import DataLoss, UnknownTopic
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.requests.producer_states import describe_producers
from tests.pyspark_kafka_eos.client.fetcher.scripted import Log, ScriptedCluster, ScriptedKafka, an_id

pytestmark = pytest.mark.usefixtures("pauses_take_no_time")

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def log_of(count: int) -> Log:
    """A log with a batch for each of so many records."""
    log = Log()
    for number in range(count):
        log.write(b"%d" % number)
    return log


def lacks(number: int) -> Any:
    """Makes a metadata answer lack a partition of every topic."""

    def change(answer: Any) -> None:
        for topic in answer.topics:
            topic.partitions = [each for each in topic.partitions if each.partition_index != number]

    return change


def rows(cluster: ScriptedCluster, *ranges: OffsetRange, lenient: bool = False) -> int:
    """How many records come out."""
    fetcher = Fetcher(cluster, fail_on_data_loss=not lenient)
    return sum(batch.num_rows for batch in fetcher.read_ranges(ranges))


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_a_partition_that_the_first_answers_lack_is_waited_for_and_read(number: int, lenient: bool) -> None:
    kafka = ScriptedKafka(t=[log_of(3), log_of(3)])
    kafka.metadata = [lacks(number)] * 3

    found = rows(ScriptedCluster(kafka), OffsetRange(T0, 0, 3), OffsetRange(T1, 0, 3), lenient=lenient)

    assert kafka.happened["metadata changed"] == 3
    assert found == 6


def test_a_partition_that_a_later_answer_lacks_is_still_there() -> None:
    kafka = ScriptedKafka(t=[log_of(3), log_of(3)])
    cluster = ScriptedCluster(kafka)
    offsets = Offsets(cluster)
    assert offsets.partitions_of(["t"]) == [T0, T1]
    kafka.metadata = [lacks(1)]

    assert offsets.partitions_of(["t"]) == [T0, T1]

    assert kafka.happened["metadata changed"] == 1
    assert offsets.latest([T0, T1]) == {T0: 3, T1: 3}


def test_expected_partitions_are_waited_for() -> None:
    kafka = ScriptedKafka(t=[log_of(3), log_of(3)])
    kafka.metadata = [lacks(1)] * 3

    assert Offsets(ScriptedCluster(kafka)).partitions_of(["t"], patience_ms=10_000, expected=[T1]) == [T0, T1]
    assert kafka.happened["metadata changed"] == 3


def test_expected_partitions_that_never_come_are_left_out() -> None:
    kafka = ScriptedKafka(t=[log_of(3)])

    assert Offsets(ScriptedCluster(kafka)).partitions_of(["t"], patience_ms=100, expected=[T1]) == [T0]


def test_the_ends_of_a_partition_that_an_answer_lacks_are_waited_for() -> None:
    kafka = ScriptedKafka(t=[log_of(3), log_of(4)])
    kafka.metadata = [lacks(1)] * 3

    assert Offsets(ScriptedCluster(kafka)).latest([T1]) == {T1: 4}
    assert kafka.happened["metadata changed"] == 3


def test_a_partition_that_never_comes_is_named() -> None:
    kafka = ScriptedKafka(t=[log_of(3), log_of(4)])

    with pytest.raises(UnknownTopic, match="has 2 partitions, so there is no partition 2"):
        Offsets(ScriptedCluster(kafka)).latest([T2])


def test_a_partition_that_never_comes_is_lost_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_kafka_eos.client.reading.fetcher._UNKNOWN_TOPIC_PATIENCE_MS", 200)
    kafka = ScriptedKafka(t=[log_of(3)])

    with pytest.raises(DataLoss, match="t-1: the partition is gone"):
        rows(ScriptedCluster(kafka), OffsetRange(T0, 0, 3), OffsetRange(T1, 0, 3))
    assert rows(ScriptedCluster(kafka), OffsetRange(T0, 0, 3), OffsetRange(T1, 0, 3), lenient=True) == 3


def test_an_answer_with_an_older_leader_does_not_replace_the_newer_one() -> None:
    kafka = ScriptedKafka(t=[log_of(1)])
    kafka.logs[T0].elect(2)
    cluster = ScriptedCluster(kafka)
    cluster.refresh_topics(["t"])

    def older(answer: Any) -> None:
        (partition,) = answer.topics[0].partitions
        partition.leader_id, partition.leader_epoch = 1, 0

    kafka.metadata = [older]
    cluster.refresh_topics(["t"])

    assert kafka.happened["metadata changed"] == 1
    assert (cluster.leader(T0), cluster.leader_epoch(T0)) == (2, 1)


def test_a_topic_that_was_recreated_begins_anew() -> None:
    kafka = ScriptedKafka(t=[log_of(1), log_of(1)])
    kafka.logs[T0].elect(2)
    cluster = ScriptedCluster(kafka)
    cluster.refresh_topics(["t"])
    del kafka.logs[T1]
    kafka.logs[T0] = log_of(1)
    kafka.topic_ids["t"] = an_id("another")

    cluster.refresh_topics(["t"])

    assert cluster.topic("t").leaders == (1,)
    assert cluster.leader_epoch(T0) == 0


class Producers(ScriptedKafka):
    """Also answers DescribeProducers, always with one code."""

    code = Code.NONE

    def answer(self, node: object, request: Any) -> Any:
        """One code for each partition asked for."""
        if not hasattr(request, "topics") or not request.topics or not hasattr(request.topics[0], "partition_indexes"):
            return super().answer(node, request)
        self.happened["described"] += 1
        from types import SimpleNamespace as Names

        topics = [
            Names(
                name=topic.name,
                partitions=[
                    Names(partition_index=number, error_code=int(self.code), active_producers=[])
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
        return Names(topics=topics)


def test_a_code_that_has_no_place_in_an_answer_of_describe_producers_is_not_asked_again() -> None:
    kafka = Producers(t=[log_of(1)])
    kafka.code = Code.INVALID_REQUEST

    with pytest.raises(Exception, match="DescribeProducers for t-0 answered INVALID_REQUEST"):
        describe_producers(ScriptedCluster(kafka), [T0], timeout_ms=300)

    assert kafka.happened["described"] == 1


def test_the_producers_of_a_partition_that_the_first_answer_lacks_are_found() -> None:
    kafka = Producers(t=[log_of(1), log_of(1)])
    kafka.metadata = [lacks(1)] * 2

    assert describe_producers(ScriptedCluster(kafka), [T1]) == {T1: {}}
    assert kafka.happened["metadata changed"] == 2


def test_offsets_are_asked_of_the_leader_that_is_meant() -> None:
    kafka = ScriptedKafka(t=[log_of(3)])
    cluster = ScriptedCluster(kafka)
    cluster.refresh_topics(["t"])
    kafka.logs[T0].elect(1, cut_to=1)  # the same broker, under a new epoch

    end = Offsets(cluster).ends([T0])[T0]

    listed = [request for api, request in kafka.asked if api == "ListOffsets"]
    assert [request.topics[0].partitions[0].current_leader_epoch for request in listed] == [0, 1]
    assert (end.offset, end.log.leader_epoch) == (1, 1)
