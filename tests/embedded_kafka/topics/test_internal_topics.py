"""The broker's own topics: whoever asks for them first, they get their own settings, and the coordinators work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from embedded_kafka.node import Node
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from embedded_kafka.wire.server import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from kafka_core.errors import OptionsError
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.node_tools import ask, init, produce, produced, records, with_node

NONE = Code.NONE
OWN = {
    OFFSETS_TOPIC: (5, {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}),
    TRANSACTIONS_TOPIC: (
        7,
        {
            "cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": "104857600",
            "min.insync.replicas": "1", "unclean.leader.election.enable": "false",
        },
    ),
}  # fmt: skip
"""As Kafka 4.3.1 shows them, but for the partitions, of which there are 50 by default."""
CONFIG = BrokerConfig(offsets_topic_partitions=5, transaction_state_partitions=7)


def create(name: str, partitions: int = 1, *, check_only: bool = False, **configs: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic
    given = [topic.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreateTopicsRequest(
        version=7, timeout_ms=1_000, validate_only=check_only,
        topics=[topic(name=name, num_partitions=partitions, replication_factor=-1, configs=given)],
    )  # fmt: skip


def metadata(name: str, *, create_missing: bool = True) -> MetadataRequest:
    topics = [MetadataRequest.MetadataRequestTopic(name=name)]
    return MetadataRequest(version=12, topics=topics, allow_auto_topic_creation=create_missing)


def find(key_type: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(version=4, key_type=key_type, coordinator_keys=["any"])


def commit(group: str) -> OffsetCommitRequest:
    each = OffsetCommitRequest.OffsetCommitRequestTopic
    part = each.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_leader_epoch=-1, committed_metadata=""
    )
    return OffsetCommitRequest(
        version=8, group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[each(name="t", partitions=[part])],
    )  # fmt: skip


async def coordinators_work(node: Node) -> None:
    """For ids and groups of every partition."""
    if node.parts.topics.get("t") is None:
        node.parts.topics.create("t", 1)
    for number in range(20):
        assert (await ask(node, init(f"id-{number}"))).error_code == NONE
        (topic,) = (await ask(node, commit(f"group-{number}"))).topics
        assert [part.error_code for part in topic.partitions] == [NONE]


FIRST: dict[str, Callable[[Node, str], Awaitable[Any]]] = {
    "Metadata": lambda node, name: ask(node, metadata(name)),
    "CreateTopics": lambda node, name: ask(node, create(name)),
    "CreateTopics with the defaults": lambda node, name: ask(node, create(name, -1)),
    "CreateTopics with settings": lambda node, name: ask(
        node, create(name, 3, cleanup_policy="delete", retention_ms="1")
    ),
    "FindCoordinator": lambda node, name: ask(node, find(int(name == TRANSACTIONS_TOPIC))),
}


@pytest.mark.parametrize("first", FIRST)
def test_whoever_asks_first_an_internal_topic_gets_its_own_settings_and_works(tmp_path: Path, first: str) -> None:
    async def scenario(node: Node) -> None:
        for name, own in OWN.items():
            await FIRST[first](node, name)
            topic = node.parts.topics.get(name)
            assert topic is not None and topic.internal
            assert (topic.partitions, dict(topic.configs)) == own
        await coordinators_work(node)

    with_node(tmp_path, scenario, CONFIG)
    with_node(tmp_path, coordinators_work, CONFIG)


def test_the_answer_to_who_makes_one_names_the_settings_that_it_got(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        for check_only in (True, False):
            (made,) = (await ask(node, create(OFFSETS_TOPIC, 1, check_only=check_only))).topics
            assert (made.error_code, made.num_partitions) == (NONE, 5)
            assert {each.name: each.value for each in made.configs}["cleanup.policy"] == "compact"
            assert (node.parts.topics.get(OFFSETS_TOPIC) is None) == check_only

    with_node(tmp_path, scenario, CONFIG)


def test_a_request_for_one_that_no_topic_could_fulfil_is_refused(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        (zero,) = (await ask(node, create(OFFSETS_TOPIC, 0))).topics
        (strange,) = (await ask(node, create(OFFSETS_TOPIC, 1, no_such_thing="1"))).topics
        assert (zero.error_code, strange.error_code) == (Code.INVALID_PARTITIONS, Code.INVALID_CONFIG)
        assert node.parts.topics.get(OFFSETS_TOPIC) is None

    with_node(tmp_path, scenario, CONFIG)


def test_an_internal_topic_that_is_not_there_yet_is_shown_as_internal(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        (shown,) = (await ask(node, metadata(OFFSETS_TOPIC, create_missing=False))).topics
        assert (shown.error_code, shown.is_internal) == (Code.UNKNOWN_TOPIC_OR_PARTITION, True)

    with_node(tmp_path, scenario, CONFIG)


def test_the_topic_of_kafkas_controllers_is_made_for_nobody(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        (refused,) = (await ask(node, create("__cluster_metadata"))).topics
        assert refused.error_code == Code.INVALID_REQUEST
        (shown,) = (await ask(node, metadata("__cluster_metadata"))).topics
        assert shown.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert list(node.parts.topics) == []

    with_node(tmp_path, scenario, CONFIG)


def test_an_internal_topic_that_an_older_broker_made_too_small_is_raised_to_its_own_number(
    tmp_path: Path,
) -> None:
    async def older(node: Node) -> None:
        for name in OWN:
            node.parts.topics.create(name, 1)
        await coordinators_work(node)

    one = BrokerConfig(offsets_topic_partitions=1, transaction_state_partitions=1)

    async def empty(node: Node) -> None:
        for name in OWN:
            node.parts.topics.create(name, 1)

    with_node(tmp_path / "empty", empty, one)
    with_node(tmp_path / "empty", coordinators_work, CONFIG)

    with_node(tmp_path / "used", older, one)
    with pytest.raises(OptionsError, match="another number of partitions"):
        with_node(tmp_path / "used", coordinators_work, CONFIG)
    with_node(tmp_path / "used", coordinators_work, one)


@pytest.mark.parametrize("setting", ["offsets_topic_partitions", "transaction_state_partitions"])
def test_a_start_with_fewer_partitions_than_were_used_is_refused_and_loses_nothing(
    tmp_path: Path, setting: str
) -> None:
    fewer = BrokerConfig(**{"offsets_topic_partitions": 5, "transaction_state_partitions": 7, setting: 2})
    with_node(tmp_path, coordinators_work, CONFIG)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.log")}

    with pytest.raises(OptionsError, match="another number of partitions"):
        with_node(tmp_path, coordinators_work, fewer)

    assert {path: path.read_bytes() for path in tmp_path.rglob("*.log")} == before

    async def still_there(node: Node) -> None:
        where = TopicPartition("t", 0)
        for number in range(20):
            assert (await node.parts.groups.fetch_offsets(f"group-{number}", [where]))[where].offset == 3
        assert len(node.parts.transactions.listing()) == 20

    with_node(tmp_path, still_there, CONFIG)


def test_partitions_that_an_operator_adds_to_an_internal_topic_are_no_obstacle(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await coordinators_work(node)
        each = CreatePartitionsRequest.CreatePartitionsTopic
        more = [each(name=name, count=9, assignments=None) for name in OWN]
        answer = await ask(node, CreatePartitionsRequest(version=3, topics=more, timeout_ms=1_000))
        assert [result.error_code for result in answer.results] == [NONE, NONE]
        await coordinators_work(node)

    with_node(tmp_path, scenario, CONFIG)
    with_node(tmp_path, coordinators_work, CONFIG)


def test_clients_neither_write_to_an_internal_topic_nor_remove_it(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await coordinators_work(node)
        ends = {where: log.end_offset for where, log in node.parts.topics.opened()}
        for name in OWN:
            assert produced(await ask(node, produce(name, records())))[0] == Code.INVALID_TOPIC_EXCEPTION
            (gone,) = (await ask(node, DeleteTopicsRequest(version=4, topic_names=[name], timeout_ms=1_000))).responses
            assert gone.error_code == Code.INVALID_TOPIC_EXCEPTION
        assert {where: log.end_offset for where, log in node.parts.topics.opened()} == ends
        await coordinators_work(node)

    with_node(tmp_path, scenario, CONFIG)
