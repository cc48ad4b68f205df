"""The broker as a whole: topics and configurations through their APIs, what falls due with time, start after start."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_kafka.node import Node
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.wire.server import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.node_tools import ask, produce, produced, records, with_cluster, with_node

NONE = Code.NONE


def create(*names: str, partitions: int = 1, replicas: int = 1, validate_only: bool = False) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        version=7,
        topics=[topic(name=name, num_partitions=partitions, replication_factor=replicas) for name in names],
        timeout_ms=1_000,
        validate_only=validate_only,
    )


def described(*names: str, create_missing: bool = False) -> MetadataRequest:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(version=12, topics=topics, allow_auto_topic_creation=create_missing)


def test_a_replication_factor_above_one_is_accepted_and_noted(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        (made,) = (await ask(node, create("t", partitions=3, replicas=3))).topics
        assert (made.error_code, made.num_partitions, made.replication_factor) == (NONE, 3, 3)
        (topic,) = (await ask(node, described("t"))).topics
        assert [(part.partition_index, part.replica_nodes, part.isr_nodes) for part in topic.partitions] == [
            (number, [0], [0]) for number in range(3)
        ]

    with_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (create("t"), Code.TOPIC_ALREADY_EXISTS),
        (create("twice", "twice"), Code.INVALID_REQUEST),
        (create("a/b"), Code.INVALID_TOPIC_EXCEPTION),
        (create(".."), Code.INVALID_TOPIC_EXCEPTION),
        (create("x" * 250), Code.INVALID_TOPIC_EXCEPTION),
        (create("new", partitions=0), Code.INVALID_PARTITIONS),
        (create("new", replicas=0), Code.INVALID_REPLICATION_FACTOR),
        (create("new", partitions=30_000), Code.POLICY_VIOLATION),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_not_made(
    tmp_path: Path, request_: CreateTopicsRequest, code: Code
) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        assert {result.error_code for result in (await ask(node, request_)).topics} == {code}
        assert [topic.name for topic in node.parts.topics] == ["t"]

    with_node(tmp_path, scenario)


def test_what_is_only_validated_is_not_made(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        (made,) = (await ask(node, create("t", validate_only=True))).topics
        assert made.error_code == NONE
        assert node.parts.topics.get("t") is None

    with_node(tmp_path, scenario)


@pytest.mark.parametrize("name", ["a_b.c", "a.b_c", "a_b_c"])
def test_a_topic_whose_name_collides_with_another_is_refused_however_it_is_asked_for(tmp_path: Path, name: str) -> None:
    """A dot and an underscore are one in the names of Kafka's metrics."""

    async def scenario(node: Node) -> None:
        await ask(node, create("a.b.c"))
        for request in (create(name), create(name, validate_only=True), create(name, partitions=0)):
            (result,) = (await ask(node, request)).topics
            assert result.error_code == Code.INVALID_TOPIC_EXCEPTION
            assert "collides with the topic 'a.b.c'" in result.error_message
        (shown,) = (await ask(node, described(name, create_missing=True))).topics
        assert shown.error_code == Code.INVALID_TOPIC_EXCEPTION
        assert [topic.name for topic in node.parts.topics] == ["a.b.c"]

        assert (await ask(node, create("a.b-c", "a.b", "a.B.c"))).topics[0].error_code == NONE
        node.parts.topics.delete("a.b.c")
        assert (await ask(node, create(name))).topics[0].error_code == NONE

    with_node(tmp_path, scenario)


def test_of_two_colliding_names_in_one_request_the_first_is_made(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        first, second = (await ask(node, create("a.b", "a_b"))).topics
        assert (first.error_code, second.error_code) == (NONE, Code.INVALID_TOPIC_EXCEPTION)
        assert [topic.name for topic in node.parts.topics] == ["a.b"]

    with_node(tmp_path, scenario)


def test_names_collide_after_a_restart_too_and_topics_of_before_are_kept(tmp_path: Path) -> None:
    """A data directory of before this was refused may have both."""

    async def first(node: Node) -> None:
        await ask(node, create("a.b", "c"))

    async def second(node: Node) -> None:
        assert sorted(topic.name for topic in node.parts.topics) == ["a.b", "a_b"]
        node.parts.topics.delete("a.b")
        (result,) = (await ask(node, create("a.b"))).topics
        assert result.error_code == Code.INVALID_TOPIC_EXCEPTION

    with_node(tmp_path, first)
    file = tmp_path / "topics.json"
    file.write_text(file.read_text().replace('"c"', '"a_b"'))
    with_node(tmp_path, second)


@pytest.mark.parametrize("wanted", [True, False])
def test_asking_for_a_topic_makes_it_only_where_the_client_wants_that(tmp_path: Path, wanted: bool) -> None:
    async def scenario(node: Node) -> None:
        (topic,) = (await ask(node, described("t", create_missing=wanted))).topics
        assert (topic.error_code, node.parts.topics.get("t") is not None) == (
            (NONE, True) if wanted else (Code.UNKNOWN_TOPIC_OR_PARTITION, False)
        )

    with_node(tmp_path, scenario)


def test_a_deleted_topic_is_gone_with_its_records_and_its_groups_offsets(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 2)
        await ask(node, produce("t", records(3), partition=1))
        (deleted,) = (await ask(node, DeleteTopicsRequest(version=4, topic_names=["t"], timeout_ms=1_000))).responses
        assert deleted.error_code == NONE
        assert not list(tmp_path.glob("t-*"))
        node.parts.topics.create("t", 2)
        assert node.parts.topics.log(TopicPartition("t", 1)).end_offset == 0

    with_node(tmp_path, scenario)


def test_topics_configurations_and_records_are_there_after_a_restart(tmp_path: Path) -> None:
    async def first(node: Node) -> None:
        node.parts.topics.create("t", 2, {"max.message.bytes": "2000"})
        await ask(node, produce("t", records(3), partition=1))

    async def second(node: Node) -> None:
        topic = node.parts.topics.get("t")
        assert topic is not None
        assert (topic.partitions, topic.configs) == (2, {"max.message.bytes": "2000"})
        assert node.parts.topics.log(TopicPartition("t", 1)).end_offset == 3

    with_node(tmp_path, first)
    with_node(tmp_path, second)


def test_partitions_are_added_and_never_taken_away(tmp_path: Path) -> None:
    def to(count: int) -> CreatePartitionsRequest:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=count, assignments=None)
        return CreatePartitionsRequest(version=3, topics=[topic], timeout_ms=1_000)

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 2)
        codes = [(await ask(node, to(count))).results[0].error_code for count in (4, 4, 1)]
        assert codes == [NONE, Code.INVALID_PARTITIONS, Code.INVALID_PARTITIONS]
        topic = node.parts.topics.get("t")
        assert topic is not None and topic.partitions == 4

    with_node(tmp_path, scenario)


def test_configurations_are_set_changed_and_shown(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        whole = AlterConfigsRequest.AlterConfigsResource
        request = AlterConfigsRequest(
            version=1,
            resources=[
                whole(
                    resource_type=2,
                    resource_name="t",
                    configs=[whole.AlterableConfig(name="retention.ms", value="1000")],
                )
            ],
        )
        assert (await ask(node, request)).responses[0].error_code == NONE

        single = IncrementalAlterConfigsRequest.AlterConfigsResource
        changes = [
            single.AlterableConfig(name="cleanup.policy", config_operation=2, value="compact"),
            single.AlterableConfig(name="retention.ms", config_operation=1, value=None),
            single.AlterableConfig(name="max.message.bytes", config_operation=0, value="100"),
        ]
        request = IncrementalAlterConfigsRequest(
            version=1, resources=[single(resource_type=2, resource_name="t", configs=changes)]
        )
        assert (await ask(node, request)).responses[0].error_code == NONE

        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2,
            resource_name="t",
            configuration_keys=["cleanup.policy", "retention.ms", "max.message.bytes"],
        )
        (shown,) = (await ask(node, DescribeConfigsRequest(version=4, resources=[resource]))).results
        assert {config.name: (config.value, config.config_source) for config in shown.configs} == {
            "cleanup.policy": ("delete,compact", 1),
            "max.message.bytes": ("100", 1),
            "retention.ms": ("604800000", 5),
        }
        # The log goes by it at once.
        assert produced(await ask(node, produce("t", records(50))))[0] == Code.MESSAGE_TOO_LARGE

    with_node(tmp_path, scenario)


def test_the_brokers_settings_are_shown_and_cannot_be_changed(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=4,
            resource_name="0",
            configuration_keys=["transaction.max.timeout.ms", "message.max.bytes"],
        )
        (shown,) = (await ask(node, DescribeConfigsRequest(version=4, resources=[resource]))).results
        assert {config.name: config.value for config in shown.configs} == {
            "transaction.max.timeout.ms": "5000",
            "message.max.bytes": "1048588",
        }
        single = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = single.AlterableConfig(name="message.max.bytes", config_operation=0, value="1")
        request = IncrementalAlterConfigsRequest(
            version=1, resources=[single(resource_type=4, resource_name="0", configs=[change])]
        )
        assert (await ask(node, request)).responses[0].error_code == Code.INVALID_REQUEST

    with_node(tmp_path, scenario, BrokerConfig(transaction_max_timeout_ms=5_000))


def test_deleted_records_are_out_of_reach_and_offsets_go_on(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        await ask(node, produce("t", records(5)))
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        for offset, code, low in ((3, NONE, 3), (9, Code.OFFSET_OUT_OF_RANGE, -1), (-1, NONE, 5)):
            part = topic.DeleteRecordsPartition(partition_index=0, offset=offset)
            request = DeleteRecordsRequest(version=2, topics=[topic(name="t", partitions=[part])], timeout_ms=1_000)
            (answer,) = (await ask(node, request)).topics[0].partitions
            assert (answer.error_code, answer.low_watermark) == (code, low)
        assert produced(await ask(node, produce("t", records(1)))) == (NONE, 5)

    with_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [(-2, (0, -1)), (-1, (5, -1)), (-3, (0, 1_000)), (1_000, (0, 1_000)), (1_001, (-1, -1))],
)
def test_offsets_are_found_by_their_end_and_by_time(tmp_path: Path, timestamp: int, found: tuple[int, int]) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        await ask(node, produce("t", records(5)))
        topic = ListOffsetsRequest.ListOffsetsTopic
        part = topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(version=7, replica_id=-1, topics=[topic(name="t", partitions=[part])])
        (answer,) = (await ask(node, request)).topics[0].partitions
        assert (answer.error_code, answer.offset, answer.timestamp) == (NONE, *found)

    with_node(tmp_path, scenario)


def test_a_reader_that_knows_a_later_leader_is_told_so(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        for current, code in ((-1, NONE), (0, NONE), (1, Code.UNKNOWN_LEADER_EPOCH)):
            part = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=0)
            request = OffsetForLeaderEpochRequest(version=4, topics=[topic(topic="t", partitions=[part])])
            (answer,) = (await ask(node, request)).topics[0].partitions
            assert answer.error_code == code

    with_node(tmp_path, scenario)


def test_old_records_go_when_the_clock_is_moved(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        node = cluster.nodes[0]
        node.parts.topics.create("t", 1, {"retention.ms": "60000", "message.timestamp.type": "LogAppendTime"})
        log = node.parts.topics.log(TopicPartition("t", 0))
        await ask(node, produce("t", records(5)))
        node.parts.clock.advance(30_000)
        cluster.sweep()
        assert log.log_start_offset == 0

        # Too old, and nothing looks at it before the next check, as in Kafka.
        node.parts.clock.advance(31_000)
        cluster.sweep()
        assert log.log_start_offset == 0

        node.parts.clock.advance(node.parts.config.log_retention_check_interval_ms)
        cluster.sweep()
        assert (log.log_start_offset, log.end_offset) == (5, 5)

    with_cluster(tmp_path, scenario)
