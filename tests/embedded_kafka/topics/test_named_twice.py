"""A topic or a partition that one request names twice: what Kafka 4.3.1 answers, played to it byte by byte, and no
connection is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from embedded_kafka.node import Node
from embedded_kafka.wire.server import (
    AddPartitionsToTxnRequest,
    AlterConfigsRequest,
    CreatePartitionsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.node_tools import ask, init, records, with_node

NONE = Code.NONE
T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
Partitions = tuple[str, list[tuple[int, Any]]]
"""A topic, and for each partition what is asked of it."""

TWICE: tuple[list[Partitions], ...] = (
    [("t", [(0, 0), (0, 1)])],
    [("t", [(0, 0)]), ("t", [(0, 1)])],
    [("t", [(0, 0)]), ("u", [(0, 0)]), ("t", [(0, 1)])],
)
"""The partition t-0 named twice: within its topic, in two entries next to each other, and with another topic in
between.
"""


def fetching(*topics: Partitions, max_wait_ms: int = 0, version: int = 11) -> FetchRequest:
    each = FetchRequest.FetchTopic
    return FetchRequest(
        version=version, replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=1,
        session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[
            each(topic=name, partitions=[
                each.FetchPartition(
                    partition=partition, current_leader_epoch=-1, fetch_offset=offset, log_start_offset=-1,
                    last_fetched_epoch=-1, partition_max_bytes=1 << 20,
                )
                for partition, offset in partitions
            ])
            for name, partitions in topics
        ],
    )  # fmt: skip


def producing(*topics: Partitions) -> ProduceRequest:
    each = ProduceRequest.TopicProduceData
    return ProduceRequest(
        version=9, transactional_id=None, acks=-1, timeout_ms=1_000,
        topic_data=[
            each(name=name, partition_data=[each.PartitionProduceData(index=at, records=data) for at, data in parts])
            for name, parts in topics
        ],
    )  # fmt: skip


def listing(*topics: Partitions) -> ListOffsetsRequest:
    each = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        version=7, replica_id=-1, isolation_level=0,
        topics=[
            each(name=name, partitions=[each.ListOffsetsPartition(partition_index=at, timestamp=when) for at, when in parts])
            for name, parts in topics
        ],
    )  # fmt: skip


def committing(*topics: Partitions) -> OffsetCommitRequest:
    each = OffsetCommitRequest.OffsetCommitRequestTopic
    return OffsetCommitRequest(
        version=8, group_id="g", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[
            each(name=name, partitions=[
                each.OffsetCommitRequestPartition(
                    partition_index=at, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
                )
                for at, offset in parts
            ])
            for name, parts in topics
        ],
    )  # fmt: skip


def shape(topics: Any, partitions: str = "partitions", name: str = "name") -> list[tuple[str, list[int]]]:
    """Topics of an answer, each with the partitions that it names, in order and as often as it does."""
    number = "index" if partitions == "partition_responses" else "partition_index"
    return [(getattr(topic, name), [getattr(part, number) for part in getattr(topic, partitions)]) for topic in topics]


async def two_topics(node: Node) -> None:
    for name in ("t", "u"):
        node.parts.topics.create(name, 2)
        for _ in range(3):
            await ask(node, producing((name, [(0, records())])))


def codes_of(results: Sequence[Any]) -> list[tuple[str, int]]:
    return [(result.name, result.error_code) for result in results]


@pytest.mark.parametrize("asked", TWICE)
@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_partition_that_a_fetch_names_twice_is_read_once_from_the_later_offset(
    tmp_path: Path, asked: list[Partitions], version: int
) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        answer = await ask(node, fetching(*asked, version=version))
        assert shape(answer.responses, name="topic") == [(name, [0]) for name in dict(asked)]
        (part,) = answer.responses[0].partitions
        assert part.error_code == NONE
        assert part.records == bytes(
            node.parts.topics.log(T0).read(1, 1 << 20, read_committed=True, at_least_one=True).records
        )

    with_node(tmp_path, scenario)  # fmt: skip


def test_a_fetch_that_waits_for_a_partition_named_twice_is_answered_and_leaves_nobody_waiting(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        answer = await ask(node, fetching(("t", [(0, 3), (0, 3)]), max_wait_ms=20))
        assert [part.error_code for part in answer.responses[0].partitions] == [NONE]
        assert not node.parts.readers._waiting

    with_node(tmp_path, scenario)


def test_a_partition_that_does_not_exist_is_refused_once_however_often_a_fetch_names_it(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node) -> None:
        answer = await ask(node, fetching(("nope", [(0, 0), (0, 1)])))
        (part,) = answer.responses[0].partitions
        assert part.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    with_node(tmp_path, scenario)


@pytest.mark.parametrize("asked", TWICE)
def test_of_records_for_a_partition_named_twice_the_later_are_written(tmp_path: Path, asked: list[Partitions]) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        with_records = [(name, [(at, records(5 if later else 2)) for at, later in parts]) for name, parts in asked]
        answer = await ask(node, producing(*with_records))
        assert shape(answer.responses, "partition_responses") == [(name, [0]) for name in dict(asked)]
        assert node.parts.topics.log(T0).end_offset == 3 + 5

    with_node(tmp_path, scenario)


@pytest.mark.parametrize("asked", TWICE)
def test_offsets_of_a_partition_named_twice_are_not_listed(tmp_path: Path, asked: list[Partitions]) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        answer = await ask(node, listing(*((name, [(at, -1) for at, _ in parts]) for name, parts in asked)))
        assert [
            (topic.name, [(part.error_code, part.offset) for part in topic.partitions]) for topic in answer.topics
        ] == [("t", [(Code.INVALID_REQUEST, -1)]), ("u", [(NONE, 3)])][: len(dict(asked))]

    with_node(tmp_path, scenario)  # fmt: skip


@pytest.mark.parametrize("asked", TWICE)
def test_of_offsets_committed_for_a_partition_named_twice_the_later_is_kept(
    tmp_path: Path, asked: list[Partitions]
) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        answer = await ask(node, committing(*asked))
        assert shape(answer.topics) == [(name, [at for at, _ in parts]) for name, parts in asked]
        assert all(part.error_code == NONE for topic in answer.topics for part in topic.partitions)
        assert (await node.parts.groups.fetch_offsets("g", [T0]))[T0].offset == 1

    with_node(tmp_path, scenario)


@pytest.mark.parametrize("asked", TWICE)
@pytest.mark.parametrize("version", [7, 8])
def test_a_committed_offset_asked_for_twice_is_answered_twice(
    tmp_path: Path, asked: list[Partitions], version: int
) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        await ask(node, committing(("t", [(0, 2)])))
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        of = group.OffsetFetchRequestTopics if version == 8 else OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [of(name=name, partition_indexes=[at for at, _ in parts]) for name, parts in asked]
        request = (
            OffsetFetchRequest(version=8, groups=[group(group_id="g", topics=topics)], require_stable=False)
            if version == 8
            else OffsetFetchRequest(version=7, group_id="g", topics=topics, require_stable=False)
        )
        answer = await ask(node, request)
        found = answer.groups[0].topics if version == 8 else answer.topics
        assert shape(found) == [(name, [at for at, _ in parts]) for name, parts in asked]
        offsets = {part.committed_offset for topic in found if topic.name == "t" for part in topic.partitions}
        assert offsets == {2}

    with_node(tmp_path, scenario)


@pytest.mark.parametrize("asked", TWICE)
def test_a_partition_added_twice_to_a_transaction_is_in_it_once_and_answered_twice(
    tmp_path: Path, asked: list[Partitions]
) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        who = await ask(node, init("x"))
        each = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            version=3, v3_and_below_transactional_id="x", v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.producer_epoch,
            v3_and_below_topics=[each(name=name, partitions=[at for at, _ in parts]) for name, parts in asked],
        )  # fmt: skip
        answer = (await ask(node, request)).results_by_topic_v3_and_below
        assert shape(answer, "results_by_partition") == [(name, [at for at, _ in parts]) for name, parts in asked]
        assert not any(part.partition_error_code for topic in answer for part in topic.results_by_partition)
        assert node.parts.transactions.describe("x").partitions == {
            TopicPartition(name, at) for name, parts in asked for at, _ in parts
        }

    with_node(tmp_path, scenario)


def test_of_two_starts_for_a_partition_the_later_is_its_start(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        each = DeleteRecordsRequest.DeleteRecordsTopic
        starts = [each.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (2, 1)]
        request = DeleteRecordsRequest(version=2, topics=[each(name="t", partitions=starts)], timeout_ms=1_000)
        (topic,) = (await ask(node, request)).topics
        assert [(part.error_code, part.low_watermark) for part in topic.partitions] == [(NONE, 1)]
        assert node.parts.topics.log(T0).log_start_offset == 1

    with_node(tmp_path, scenario)


@pytest.mark.parametrize("name", ["t", "nope"])
def test_a_topic_asked_for_twice_is_described_once(tmp_path: Path, name: str) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        each = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            version=12, topics=[each(name=name), each(name=name)], allow_auto_topic_creation=False
        )
        assert [topic.name for topic in (await ask(node, request)).topics] == [name]

    with_node(tmp_path, scenario)


def test_a_topic_whose_partitions_are_raised_twice_in_a_request_keeps_its_own(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        each = CreatePartitionsRequest.CreatePartitionsTopic
        wanted = [each(name=name, count=count, assignments=None) for name, count in (("t", 3), ("u", 3), ("t", 4))]
        request = CreatePartitionsRequest(version=3, topics=wanted, timeout_ms=1_000)
        assert codes_of((await ask(node, request)).results) == [("t", Code.INVALID_REQUEST), ("u", NONE)]
        assert {topic.name: topic.partitions for topic in node.parts.topics} == {"t": 2, "u": 3}

    with_node(tmp_path, scenario)  # fmt: skip


@pytest.mark.parametrize("version", [4, 6])
def test_a_topic_that_is_to_be_deleted_twice_stays(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        names = ("t", "t", "u", "nope", "nope")
        each = DeleteTopicsRequest.DeleteTopicState
        request = (
            DeleteTopicsRequest(version=version, topic_names=list(names), timeout_ms=1_000)
            if version == 4
            else DeleteTopicsRequest(version=version, topics=[each(name=name) for name in names], timeout_ms=1_000)
        )
        assert sorted(codes_of((await ask(node, request)).responses)) == [
            ("nope", Code.INVALID_REQUEST),
            ("t", Code.INVALID_REQUEST),
            ("u", NONE),
        ]
        assert [topic.name for topic in node.parts.topics] == ["t"]

    with_node(tmp_path, scenario)  # fmt: skip


def test_a_topic_that_is_to_be_deleted_by_its_name_and_by_its_id_stays(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        topic = node.parts.topics.get("t")
        assert topic is not None
        each = DeleteTopicsRequest.DeleteTopicState
        both = [each(name="t"), each(name=None, topic_id=topic.topic_id)]
        (result,) = (await ask(node, DeleteTopicsRequest(version=6, topics=both, timeout_ms=1_000))).responses
        assert result.error_code == Code.INVALID_REQUEST
        assert node.parts.topics.get("t") is topic

    with_node(tmp_path, scenario)


@pytest.mark.parametrize("incremental", [False, True])
def test_a_topic_whose_configurations_are_altered_twice_in_a_request_keeps_them(
    tmp_path: Path, incremental: bool
) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        kind: Any = IncrementalAlterConfigsRequest if incremental else AlterConfigsRequest
        resource = kind.AlterConfigsResource
        operation = {"config_operation": 0} if incremental else {}

        def to(name: str, value: str) -> Any:
            config = resource.AlterableConfig(name="retention.ms", value=value, **operation)
            return resource(resource_type=2, resource_name=name, configs=[config])

        request = kind(version=1, resources=[to("t", "1000"), to("u", "3000"), to("t", "2000")])
        answer = (await ask(node, request)).responses
        assert [(each.resource_name, each.error_code) for each in answer] == [
            ("t", Code.INVALID_REQUEST),
            ("u", NONE),
            ("t", Code.INVALID_REQUEST),
        ]
        assert {topic.name: dict(topic.configs) for topic in node.parts.topics} == {
            "t": {},
            "u": {"retention.ms": "3000"},
        }

    with_node(tmp_path, scenario)


def test_a_configuration_that_is_named_twice_for_a_topic_is_not_altered(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await two_topics(node)
        resource = AlterConfigsRequest.AlterConfigsResource
        configs = [resource.AlterableConfig(name="retention.ms", value=value) for value in ("1000", "2000")]
        request = AlterConfigsRequest(
            version=1, resources=[resource(resource_type=2, resource_name="t", configs=configs)]
        )
        (answer,) = (await ask(node, request)).responses
        assert answer.error_code == Code.INVALID_REQUEST
        topic = node.parts.topics.get("t")
        assert topic is not None and topic.configs == {}

    with_node(tmp_path, scenario)
