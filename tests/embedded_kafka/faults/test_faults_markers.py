"""Markers that never come or come late: which ones, that they tell, and what clients see then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from embedded_kafka import EmbeddedKafka
from embedded_kafka.wire.server import (
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetFetchRequest,
    WriteTxnMarkersRequest,
)
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import (
    ask_over_the_wire,
    fetch,
    fetched,
    init,
    initialised,
    produce,
    produced,
    records,
    until,
)
from tests.embedded_kafka.test_embedded_kills import TIMEOUT_S, producer

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

OFFSETS = "__consumer_offsets"


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    config = {"transaction.version": str(request.param), "num.partitions": "2", "log.retention.ms": "-1"}
    with EmbeddedKafka(data_dir=tmp_path, config=config, in_process=True) as kafka:
        made = Client(kafka, request.param)
        topic = MetadataRequest.MetadataRequestTopic(name="t")
        made.ask(MetadataRequest(version=4, topics=[topic], allow_auto_topic_creation=True))
        yield made


class Client:
    """A transactional producer of one transaction version, request by request; two partitions of topic "t"."""

    def __init__(self, kafka: EmbeddedKafka, version: int) -> None:
        self.kafka = kafka
        self.version = version
        self.identity: dict[str, tuple[int, int]] = {}
        self.sequence: dict[tuple[object, ...], int] = {}

    def ask(self, request: Any) -> Any:
        return ask_over_the_wire(self.kafka.bootstrap_servers, request)

    def begin(self, transactional_id: str, *partitions: int, topic: str = "t") -> None:
        """A record in each of the partitions, in a transaction that is left open."""
        if transactional_id not in self.identity:
            made = initialised(self.kafka, transactional_id)
            self.identity[transactional_id] = (made.producer_id, made.producer_epoch)
        producer_id, epoch = self.identity[transactional_id]
        if self.version < 2:
            each = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
            until(
                lambda: self._added(
                    self.ask(
                        AddPartitionsToTxnRequest(
                            version=3, v3_and_below_transactional_id=transactional_id,
                            v3_and_below_producer_id=producer_id, v3_and_below_producer_epoch=epoch,
                            v3_and_below_topics=[each(name=topic, partitions=list(partitions))],
                        )
                    )
                )
            )  # fmt: skip
        for partition in partitions:
            place = (producer_id, epoch, topic, partition)
            sequence = self.sequence.get(place, 0)
            self.sequence[place] = sequence + 1
            data = records(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
            asked = produce(
                topic, data, partition=partition, version=12 if self.version == 2 else 9,
                transactional_id=transactional_id,
            )  # fmt: skip
            code, _ = produced(self.ask(asked))
            assert code == Code.NONE

    def _added(self, answer: Any) -> bool:
        codes = {
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        }
        assert codes <= {Code.NONE, Code.CONCURRENT_TRANSACTIONS}
        return codes == {Code.NONE}

    def end(self, transactional_id: str, *, commit: bool = True) -> None:
        producer_id, epoch = self.identity[transactional_id]
        ended = self.ask(
            EndTxnRequest(
                version=5 if self.version == 2 else 3, transactional_id=transactional_id,
                producer_id=producer_id, producer_epoch=epoch, committed=commit,
            )
        )  # fmt: skip
        assert ended.error_code == Code.NONE
        if self.version == 2:
            self.identity[transactional_id] = (ended.producer_id, ended.producer_epoch)

    def state(self, transactional_id: str) -> str:
        asked = DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id])
        (found,) = self.ask(asked).transaction_states
        return str(found.transaction_state)

    def open_since(self, partition: int, topic: str = "t") -> list[int]:
        """Where the partition's open transactions begin."""
        each = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
        (found,) = self.ask(DescribeProducersRequest(version=0, topics=[each])).topics
        starts = [one.current_txn_start_offset for one in found.partitions[0].active_producers]
        return [start for start in starts if start >= 0]

    def committed(self, partition: int) -> tuple[int, int]:
        """(last stable offset, records that a reader of committed records gets)."""
        part = fetched(self.ask(fetch("t", {partition: 0})))[partition]
        return part.last_stable_offset, len(part.records)

    def end_offset(self, partition: int) -> int:
        each = ListOffsetsRequest.ListOffsetsTopic
        part = each.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=-1)
        asked = ListOffsetsRequest(
            version=4, replica_id=-1, isolation_level=0, topics=[each(name="t", partitions=[part])]
        )
        return int(self.ask(asked).topics[0].partitions[0].offset)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_forgotten_marker_leaves_its_partition_hanging_and_the_transaction_complete(
    client: Client, commit: bool
) -> None:
    fault = client.kafka.fault_at_marker("t", 1, "forget")
    client.begin("x", 0, 1)
    client.end("x", commit=commit)

    until(lambda: client.state("x") == ("CompleteCommit" if commit else "CompleteAbort"))
    assert fault.fired == 1
    assert (client.open_since(0), client.open_since(1)) == ([], [0])
    assert (client.end_offset(0), client.end_offset(1)) == (2, 1)
    stable, size = client.committed(1)
    assert (stable, size) == (0, 0)
    assert client.committed(0)[0] == 2


def test_a_forgotten_marker_is_forgotten_over_a_restart(client: Client) -> None:
    fault = client.kafka.fault_at_marker("t", 1, "forget")
    client.begin("x", 0, 1)
    client.end("x")
    until(lambda: client.state("x") == "CompleteCommit")
    assert fault.fired == 1

    client.kafka.restart()
    client.kafka.advance(1)
    assert client.state("x") == "CompleteCommit"
    assert client.open_since(1) == [0]


def test_a_forgotten_marker_can_be_written_by_an_administrator(client: Client) -> None:
    client.kafka.fault_at_marker("t", 1, "forget", times=2)
    client.begin("x", 1)
    producer_id, epoch = client.identity["x"]
    client.end("x")
    until(lambda: client.state("x") == "CompleteCommit")

    each = WriteTxnMarkersRequest.WritableTxnMarker
    marker = each(
        producer_id=producer_id, producer_epoch=epoch, transaction_result=True, coordinator_epoch=0,
        topics=[each.WritableTxnMarkerTopic(name="t", partition_indexes=[1])],
    )  # fmt: skip
    answer = client.ask(WriteTxnMarkersRequest(version=1, markers=[marker]))
    assert answer.markers[0].topics[0].partitions[0].error_code == Code.NONE
    assert client.open_since(1) == []
    assert client.committed(1)[0] == 2


def test_which_markers_are_forgotten_can_be_chosen_by_transaction_outcome_and_count(client: Client) -> None:
    aborts_of_y = client.kafka.fault_at_marker("t", None, "forget", transactional_id="y", commit=False, skip=1)
    client.begin("x", 0, 1)
    client.end("x", commit=False)
    client.begin("y", 0, 1)
    client.end("y", commit=True)
    until(lambda: (client.state("x"), client.state("y")) == ("CompleteAbort", "CompleteCommit"))
    assert aborts_of_y.fired == 0

    # The first of the two markers passes, the second is forgotten; the fault has then fired as often as it may.
    client.begin("y", 0, 1)
    client.end("y", commit=False)
    until(lambda: client.state("y") == "CompleteAbort")
    assert aborts_of_y.fired == 1
    assert client.open_since(0) == []
    assert len(client.open_since(1)) == 1

    client.begin("y", 0)
    client.end("y", commit=False)
    until(lambda: client.state("y") == "CompleteAbort")
    assert (aborts_of_y.fired, client.open_since(0)) == (1, [])


def test_a_forgotten_marker_of_the_brokers_own_abort_hangs_too(client: Client) -> None:
    fault = client.kafka.fault_at_marker("t", 0, "forget", commit=False)
    client.begin("x", 0, 1)
    client.kafka.advance(60_001)

    until(lambda: client.state("x") == "CompleteAbort")
    assert fault.fired == 1
    assert (client.open_since(0), client.open_since(1)) == ([0], [])


def test_a_late_marker_is_written_when_it_is_released_and_holds_up_no_other(client: Client) -> None:
    fault = client.kafka.fault_at_marker("t", 0, "late")
    client.begin("x", 0, 1)
    client.end("x")

    until(lambda: fault.fired == 1 and client.open_since(1) == [])
    # Partition 0 comes first in the order of writing, and yet the other has its marker.
    assert (client.open_since(0), client.state("x")) == ([0], "PrepareCommit")
    client.kafka.advance(61_000)
    assert (client.open_since(0), client.state("x")) == ([0], "PrepareCommit")

    fault.release()
    until(lambda: client.state("x") == "CompleteCommit")
    assert client.open_since(0) == []
    assert (client.end_offset(0), client.end_offset(1)) == (2, 2)


def test_a_late_marker_comes_by_itself_after_its_delay(client: Client) -> None:
    fault = client.kafka.fault_at_marker("t", None, "late", times=2, delay_ms=200)
    client.begin("x", 0, 1)
    client.end("x")

    until(lambda: client.state("x") == "CompleteCommit")
    assert fault.fired == 2
    assert (client.end_offset(0), client.end_offset(1)) == (2, 2)


def test_a_late_marker_is_written_once_by_a_broker_that_was_restarted_meanwhile(client: Client) -> None:
    fault = client.kafka.fault_at_marker("t", 0, "late")
    client.begin("x", 0, 1)
    client.end("x", commit=False)
    until(lambda: fault.fired == 1 and client.open_since(1) == [])

    client.kafka.restart()
    until(lambda: client.state("x") == "CompleteAbort")
    assert (client.end_offset(0), client.end_offset(1)) == (2, 2)


def test_a_producer_is_kept_waiting_by_a_late_marker(client: Client) -> None:
    fault = client.kafka.fault_at_marker("t", 0, "late")
    client.begin("x", 0)
    client.end("x")
    until(lambda: fault.fired == 1)

    again = init("x")
    assert client.ask(again).error_code == Code.CONCURRENT_TRANSACTIONS
    fault.release()
    until(lambda: client.ask(again).error_code == Code.NONE)


def test_offsets_whose_marker_is_forgotten_stay_undecided_over_a_restart() -> None:
    with EmbeddedKafka(config={"offsets.topic.num.partitions": "1"}, in_process=True) as kafka:
        fault = kafka.fault_at_marker(OFFSETS, 0, "forget", transactional_id="x", commit=True)
        writer = producer(kafka, "x")
        group = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "log_level": 0})
        writer.begin_transaction()
        writer.produce("t", b"value", partition=0)
        writer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], group.consumer_group_metadata(), TIMEOUT_S)
        writer.commit_transaction(TIMEOUT_S)
        group.close()

        def offset(require_stable: bool) -> tuple[int, int]:
            each = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
            asked = OffsetFetchRequest(version=7, group_id="g", topics=[each], require_stable=require_stable)
            part = ask_over_the_wire(kafka.bootstrap_servers, asked).topics[0].partitions[0]
            return part.error_code, part.committed_offset

        until(lambda: fault.fired == 1)
        for _ in range(2):
            assert offset(require_stable=True) == (Code.UNSTABLE_OFFSET_COMMIT, -1)
            assert offset(require_stable=False) == (Code.NONE, -1)
            kafka.restart()
