"""Reading from followers (KIP-392): where the leader sends a reader, and that no follower's word ends or loses a range.

The embedded broker is a single node and Apache Kafka runs here as a single node too, so the leader and its followers
are scripted.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_core.errors import BrokerUnavailable, DataLoss
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.spark.source.source import rack_of
from tests.pyspark_kafka_eos.client.fetcher.scripted import Log, ScriptedCluster, ScriptedKafka

pytestmark = pytest.mark.usefixtures("pauses_take_no_time")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEADER, FOLLOWER = 1, 2


class RackedKafka(ScriptedKafka):
    """Broker 1 leads and names broker 2 for readers of `racks`. `behind`: where the follower's log ends, by partition;
    `follower`: changes its answers; `silent`: it is gone."""

    def __init__(self, *logs: Log, racks: tuple[str, ...] = ("az2",)) -> None:
        super().__init__(t=logs)
        self.racks = racks
        self.behind: dict[TopicPartition, int] = {}
        self.follower: Callable[[Any], None] = lambda part: None
        self.silent = False
        self.fetched: list[tuple[int, str, list[int]]] = []
        """Node, rack and partitions of every Fetch."""

    def answer(self, node: object, request: Any) -> Any:
        if m.api_name(request.API_KEY) == "Fetch":
            number = int(str(node).split(".")[0])
            parts = [part.partition for topic in request.topics for part in topic.partitions]
            self.fetched.append((number, request.rack_id, parts))
            if self.silent and number == FOLLOWER:
                self.happened["silent"] += 1
                return BrokerUnavailable("scripted")
        return super().answer(node, request)

    def _fetched(self, leader: int, topic: str, asked: Any, request: Any) -> Any:
        where = TopicPartition(topic, asked.partition)
        if leader == LEADER:
            part = super()._fetched(leader, topic, asked, request)
            if request.rack_id in self.racks and part.error_code == Code.NONE:
                part.preferred_read_replica, part.records = FOLLOWER, b""
                self.happened["sent on"] += 1
            return part
        log = self.logs[where]
        part = SimpleNamespace(
            partition_index=asked.partition, error_code=0, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1,
            aborted_transactions=None, records=b"", preferred_read_replica=-1,
        )  # fmt: skip
        end = self.behind.get(where, log.end)
        self._fill(part, Log(log.batches, log.start, end), asked, request.isolation_level)
        self.follower(part)
        self.happened["follower"] += 1
        return part


def log_of(count: int) -> Log:
    """A log with a batch for each of so many records."""
    log = Log()
    for number in range(count):
        log.write(b"%d" % number)
    return log


def read(kafka: RackedKafka, *ranges: OffsetRange, rack: str = "az2") -> list[bytes]:
    """The values, in the order in which they come."""
    found = Fetcher(ScriptedCluster(kafka), rack=rack).read_ranges(ranges)
    return [value for batch in found for value in batch.column("value").to_pylist()]


def test_a_reader_without_a_rack_tells_none_and_reads_from_the_leader() -> None:
    kafka = RackedKafka(log_of(3))

    assert read(kafka, OffsetRange(T0, 0, 3), rack="") == [b"0", b"1", b"2"]
    assert {(node, rack) for node, rack, _ in kafka.fetched} == {(LEADER, "")}


def test_a_leader_without_a_follower_in_the_rack_is_read_itself() -> None:
    kafka = RackedKafka(log_of(3))

    assert read(kafka, OffsetRange(T0, 0, 3), rack="az9") == [b"0", b"1", b"2"]
    assert {(node, rack) for node, rack, _ in kafka.fetched} == {(LEADER, "az9")}


def test_a_reader_follows_the_leader_to_a_follower_without_a_pause() -> None:
    kafka = RackedKafka(log_of(3))

    assert read(kafka, OffsetRange(T0, 0, 3)) == [b"0", b"1", b"2"]
    assert [(node, rack) for node, rack, _ in kafka.fetched] == [(LEADER, "az2"), (FOLLOWER, "az2")]
    assert kafka.happened["pause"] == 0


def test_each_partition_goes_its_own_way() -> None:
    kafka = RackedKafka(log_of(3), log_of(2))
    kafka.logs[T1].leader = 3  # broker 3 leads it and knows no rack

    found = read(kafka, OffsetRange(T0, 0, 3), OffsetRange(T1, 0, 2))

    assert sorted(found) == [b"0", b"0", b"1", b"1", b"2"]
    assert (FOLLOWER, "az2", [0]) in kafka.fetched


@pytest.mark.parametrize(
    "code",
    [
        Code.OFFSET_OUT_OF_RANGE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.REPLICA_NOT_AVAILABLE,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_follower_that_refuses_is_left_for_the_leader_whatever_it_says(code: Code) -> None:
    kafka = RackedKafka(log_of(3))

    def refuse(part: Any) -> None:
        part.error_code, part.records = int(code), b""

    kafka.follower = refuse

    assert read(kafka, OffsetRange(T0, 0, 3)) == [b"0", b"1", b"2"]
    assert kafka.happened["follower"] == 1
    assert [(node, rack) for node, rack, _ in kafka.fetched] == [
        (LEADER, "az2"),
        (FOLLOWER, "az2"),
        (LEADER, ""),
    ]


def test_a_follower_that_is_behind_gives_what_it_has_and_the_leader_the_rest() -> None:
    kafka = RackedKafka(log_of(5))
    kafka.behind[T0] = 2

    assert read(kafka, OffsetRange(T0, 0, 5)) == [b"0", b"1", b"2", b"3", b"4"]
    assert [node for node, _, _ in kafka.fetched] == [LEADER, FOLLOWER, FOLLOWER, LEADER]


def test_a_follower_that_is_gone_is_left_for_the_leader() -> None:
    kafka = RackedKafka(log_of(3))
    kafka.silent = True

    assert read(kafka, OffsetRange(T0, 0, 3)) == [b"0", b"1", b"2"]
    assert kafka.happened["silent"] == 1
    assert kafka.fetched[-1][:2] == (LEADER, "")


def test_records_that_the_leader_has_lost_are_lost_all_the_same() -> None:
    kafka = RackedKafka(log_of(3))
    log = kafka.logs[T0]
    log.start, log.batches = 2, log.batches[2:]

    with pytest.raises(DataLoss, match="offsets 0 to 1 are deleted"):
        read(kafka, OffsetRange(T0, 0, 3))


# ---- where the rack comes from


def options(**given: str) -> SourceOptions:
    """The options of a source with these ones besides what it needs."""
    return SourceOptions.parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **given})


@pytest.mark.parametrize(
    ("given", "environ", "rack"),
    [
        ({}, {"KAFKA_RACK": "az1"}, ""),
        ({"kafka.client.rack": "az2"}, {"KAFKA_RACK": "az1"}, "az2"),
        ({"client.rack.variable": "KAFKA_RACK"}, {"KAFKA_RACK": " az1 "}, "az1"),
        ({"client.rack.variable": "KAFKA_RACK"}, {}, ""),
        ({"client.rack.variable": "KAFKA_RACK", "kafka.client.rack": "az2"}, {"KAFKA_RACK": "az1"}, "az1"),
        ({"client.rack.variable": "KAFKA_RACK", "kafka.client.rack": "az2"}, {"KAFKA_RACK": ""}, "az2"),
    ],
)
def test_the_rack_is_the_executors_own_where_a_variable_names_it(
    given: dict[str, str], environ: dict[str, str], rack: str
) -> None:
    assert rack_of(options(**given), environ) == rack
