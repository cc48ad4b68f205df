"""Offsets asked for in ways that no client library has: twice, of no partition, of several groups at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from embedded_kafka.node import Node
from embedded_kafka.wire.server import Message, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ask, with_node


def commit(*partitions: int, version: int = 7) -> Message:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    parts = [
        topic.OffsetCommitRequestPartition(partition_index=each, committed_offset=10 + each, committed_metadata="m")
        for each in partitions
    ]
    return OffsetCommitRequest(
        version=version, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        topics=[topic(name="t", partitions=parts)],
    )  # fmt: skip


def fetch(version: int, *asked: tuple[str, list[int]]) -> Message:
    if version >= 8:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        named = [group.OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in asked]
        return OffsetFetchRequest(version=version, groups=[group(group_id="g", topics=named)])
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(
        version=version,
        group_id="g",
        topics=[topic(name=name, partition_indexes=parts) for name, parts in asked],
    )


def shown(answer: Any, version: int) -> list[tuple[str, list[tuple[int, int]]]]:
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    return [
        (topic.name, [(part.partition_index, part.committed_offset) for part in topic.partitions]) for topic in topics
    ]


@pytest.mark.parametrize("version", [1, 5, 7, 8, 9])
def test_offsets_are_answered_as_they_were_asked_for(tmp_path: Path, version: int) -> None:
    """As Kafka since 4.0: also what was named twice, and a topic without partitions."""

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 2)
        await ask(node, commit(0, 1))
        asked = [("t", [1, 1]), ("u", []), ("t", [0])]
        assert shown(await ask(node, fetch(version, *asked)), version) == [
            ("t", [(1, 11), (1, 11)]), ("u", []), ("t", [(0, 10)]),
        ]  # fmt: skip

    with_node(tmp_path, scenario)


def test_a_topic_without_partitions_is_left_out_of_commits_and_deletions(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 2)
        assert (await ask(node, commit())).topics == []
        (topic,) = (await ask(node, commit(0))).topics
        assert [part.error_code for part in topic.partitions] == [Code.NONE]
        named = OffsetDeleteRequest.OffsetDeleteRequestTopic
        request = OffsetDeleteRequest(version=0, group_id="g", topics=[named(name="t", partitions=[])])
        assert (await ask(node, request)).topics == []

    with_node(tmp_path, scenario)
