"""Fetch by the topic's id (KIP-516): a reader gets records of the topic that it means, and of no other of that name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from embedded_kafka.node import Node
from embedded_kafka.wire.server import FetchRequest
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ask, produce, records, with_node


def fetching(topic_id: UUID, offset: int = 0, *, max_wait_ms: int = 0) -> Any:
    """Of the first partition."""
    each = FetchRequest.FetchTopic
    part = each.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, log_start_offset=-1, last_fetched_epoch=-1,
        partition_max_bytes=1 << 20,
    )  # fmt: skip
    return FetchRequest(
        version=13, replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=1,
        session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[each(topic_id=topic_id, partitions=[part])],
    )  # fmt: skip


def part_of(answer: Any, topic_id: UUID) -> Any:
    """The one partition's part of an answer, which names the topic by the id that was asked for."""
    (topic,) = answer.responses
    # The library has None for the id of zeros.
    assert (topic.topic_id or UUID(int=0)) == topic_id
    (part,) = topic.partitions
    return part


def id_of(node: Node, topic: str) -> UUID:
    """Of a topic that exists."""
    found = node.parts.topics.get(topic)
    assert found is not None
    return found.topic_id


async def made(node: Node, count: int) -> UUID:
    """A topic with so many records: its id."""
    node.parts.topics.create("t", 1, {})
    if count:
        await ask(node, produce("t", records(count)))
    return id_of(node, "t")


def test_a_topic_is_read_by_its_id(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        found = await made(node, 3)
        part = part_of(await ask(node, fetching(found, 1)), found)
        assert (part.error_code, part.high_watermark) == (Code.NONE, 3)
        assert part.records == records(3, base_offset=0, leader_epoch=0)

    with_node(tmp_path, scenario)


@pytest.mark.parametrize("topic_id", [uuid4(), UUID(int=0)], ids=["unknown", "none"])
def test_an_id_that_no_topic_has_is_refused(tmp_path: Path, topic_id: UUID) -> None:
    async def scenario(node: Node) -> None:
        await made(node, 3)
        part = part_of(await ask(node, fetching(topic_id)), topic_id)
        assert (part.error_code, bytes(part.records or b"")) == (Code.UNKNOWN_TOPIC_ID, b"")

    with_node(tmp_path, scenario)


def test_a_topic_recreated_has_nothing_for_the_id_of_the_one_before(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        before = await made(node, 3)
        node.parts.topics.delete("t")
        now = await made(node, 3)
        assert part_of(await ask(node, fetching(before)), before).error_code == Code.UNKNOWN_TOPIC_ID
        assert part_of(await ask(node, fetching(now)), now).error_code == Code.NONE

    with_node(tmp_path, scenario)


def test_a_fetch_that_waits_gets_nothing_of_a_topic_that_is_recreated_meanwhile(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        before = await made(node, 0)
        waiting = asyncio.ensure_future(ask(node, fetching(before, max_wait_ms=60_000)))
        while not node.parts.readers._waiting:
            await asyncio.sleep(0)
        node.parts.topics.delete("t")
        await made(node, 3)
        part = part_of(await asyncio.wait_for(waiting, 30), before)
        assert part.error_code == Code.UNKNOWN_TOPIC_ID

    with_node(tmp_path, scenario)
