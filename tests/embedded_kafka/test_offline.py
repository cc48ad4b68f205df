"""A partition whose files are damaged is offline; the others and the broker start."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded_kafka.groups.offsets import NewOffset
from embedded_kafka.node import Node
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from embedded_kafka.wire.server import FindCoordinatorRequest, ListOffsetsRequest, MetadataRequest
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.log.log_tools import refused
from tests.embedded_kafka.node_tools import ask, fetch, fetched, init, produce, produced, records, with_node

FIRST = f"{0:020d}.log"
WHERE = TopicPartition("t", 0)
SMALL = BrokerConfig(offsets_topic_partitions=2, transaction_state_partitions=2)


def garbled(directory: Path) -> None:
    """Garbage in the middle, with valid batches behind it."""
    content = bytearray((directory / FIRST).read_bytes())
    content[90:120] = bytes(30)
    (directory / FIRST).write_bytes(content)


def no_directory(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.write_text("no directory")


def no_file(directory: Path) -> None:
    (directory / FIRST).unlink()
    (directory / FIRST).mkdir()


def with_damage(tmp_path: Path, damage: Callable[[Path], None], look: Callable[[Node], object]) -> None:
    """Write to two partitions, damage the first one's files, start again."""

    async def fill(node: Node) -> None:
        node.parts.topics.create("t", 2)
        for partition in (0, 1):
            for _ in range(3):
                await ask(node, produce("t", records(2), partition=partition))

    with_node(tmp_path, fill)
    (tmp_path / "t-0" / "clean-end.json").unlink()
    damage(tmp_path / "t-0")
    with_node(tmp_path, look)  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", [garbled, no_directory, no_file])
def test_a_damaged_partition_is_offline_and_the_others_are_served(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def look(node: Node) -> None:
        assert f"t-0 is offline, its files in {tmp_path / 't-0'} cannot be used" in caplog.text
        assert produced(await ask(node, produce("t", records())))[0] == Code.KAFKA_STORAGE_ERROR
        assert produced(await ask(node, produce("t", records(), partition=1))) == (Code.NONE, 6)
        parts = fetched(await ask(node, fetch("t", {0: 0, 1: 0})))
        assert [parts[number].error_code for number in (0, 1)] == [Code.KAFKA_STORAGE_ERROR, Code.NONE]
        asked = ListOffsetsRequest.ListOffsetsTopic
        answer = await ask(
            node,
            ListOffsetsRequest(version=5, replica_id=-1, isolation_level=0, topics=[
                asked(name="t", partitions=[asked.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)])]),
        )  # fmt: skip
        assert answer.topics[0].partitions[0].error_code == Code.KAFKA_STORAGE_ERROR
        names = [MetadataRequest.MetadataRequestTopic(name="t")]
        (topic,) = (await ask(node, MetadataRequest(version=9, topics=names, allow_auto_topic_creation=False))).topics
        assert [(part.error_code, part.leader_id, part.offline_replicas) for part in topic.partitions] == [
            (Code.LEADER_NOT_AVAILABLE, -1, [0]),
            (Code.NONE, 0, []),
        ]

    with_damage(tmp_path, damage, look)


def test_files_of_an_offline_partition_are_left_alone_and_mended_ones_are_served(tmp_path: Path) -> None:
    async def look(node: Node) -> None:
        assert node.parts.topics.offline("t") == {0}

    with_damage(tmp_path, garbled, look)
    content = bytearray((tmp_path / "t-0" / FIRST).read_bytes())
    content[90:120] = (tmp_path / "t-1" / FIRST).read_bytes()[90:120]
    (tmp_path / "t-0" / FIRST).write_bytes(content)

    async def mended(node: Node) -> None:
        assert node.parts.topics.log(WHERE).end_offset == 6

    with_node(tmp_path, mended)


@pytest.mark.parametrize("damage", [garbled, no_directory])
def test_a_topic_with_an_offline_partition_can_be_deleted_and_made_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    async def look(node: Node) -> None:
        node.parts.topics.delete("t")
        node.parts.topics.create("t", 1)
        assert produced(await ask(node, produce("t", records()))) == (Code.NONE, 0)

    with_damage(tmp_path, damage, look)


def coordinator(key: str, kind: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(version=2, key=key, key_type=kind)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_coordinator_does_not_answer_for_what_stood_in_a_damaged_partition(tmp_path: Path, sealed: bool) -> None:  # fmt: skip
    groups, ids = ["g0", "g1"], ["i0", "i1"]

    async def fill(node: Node) -> None:
        for number in range(4):
            for group, name in zip(groups, ids, strict=True):
                await node.parts.groups.commit_offsets(group, [NewOffset(WHERE, number)])
                await ask(node, init(name))
        assert {node.parts.groups.partition_for(group) for group in groups} == {0, 1}
        assert {node.parts.transactions.partition_for(name) for name in ids} == {0, 1}
        if sealed:
            for _, log in list(node.parts.topics.opened()):
                log._begin_writing()
                log._roll(1)

    with_node(tmp_path, fill, SMALL)
    for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        (tmp_path / f"{topic}-0" / "clean-end.json").unlink()
        garbled(tmp_path / f"{topic}-0")

    async def look(node: Node) -> None:
        for group, name in zip(groups, ids, strict=True):
            lost = node.parts.groups.partition_for(group) == 0
            found = await ask(node, coordinator(group, 0))
            assert found.error_code == (Code.COORDINATOR_NOT_AVAILABLE if lost else Code.NONE)
            if lost:
                with refused(Code.NOT_COORDINATOR):
                    await node.parts.groups.fetch_offsets(group, [WHERE])
                with refused(Code.NOT_COORDINATOR):
                    await node.parts.groups.commit_offsets(group, [NewOffset(WHERE, 9)])
            else:
                assert (await node.parts.groups.fetch_offsets(group, [WHERE]))[WHERE].offset == 3
            lost = node.parts.transactions.partition_for(name) == 0
            found = await ask(node, coordinator(name, 1))
            assert found.error_code == (Code.COORDINATOR_NOT_AVAILABLE if lost else Code.NONE)
            answer = await ask(node, init(name))
            assert answer.error_code == (Code.NOT_COORDINATOR if lost else Code.NONE)

    with_node(tmp_path, look, SMALL)
