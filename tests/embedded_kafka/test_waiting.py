"""A wait for an event ends by the event, by its time, or by a cancellation, which is never lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from embedded_kafka.node import Node
from embedded_kafka.waiting import set_within
from embedded_kafka.wire.server import FetchRequest
from kafka_core.values import TopicPartition
from tests.embedded_kafka.node_tools import ask, with_node


def test_it_says_whether_the_event_or_the_time_came_first() -> None:
    async def story() -> None:
        event = asyncio.Event()
        assert not await set_within(event, 0.001)
        asyncio.get_running_loop().call_later(0.001, event.set)
        assert await set_within(event, 10)
        assert await set_within(event, None)

    asyncio.run(story())


@pytest.mark.parametrize("turns", range(5))
def test_a_task_that_is_cancelled_just_when_the_event_is_set_ends(turns: int) -> None:
    """Where the wait is over before the cancellation comes, the task has ended by itself."""

    async def story() -> None:
        event = asyncio.Event()
        waiting = asyncio.ensure_future(set_within(event, 10))
        await asyncio.sleep(0.001)
        event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled = waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() == cancelled

    asyncio.run(story())


@pytest.mark.parametrize("turns", range(5))
def test_a_fetch_that_waits_ends_with_its_connection_also_when_a_record_arrives_then(
    tmp_path: Path, turns: int
) -> None:
    async def story(node: Node) -> None:
        node.parts.topics.create("t", 1, {})
        part = FetchRequest.FetchTopic.FetchPartition(
            partition=0, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=-1,
            partition_max_bytes=1000,
        )  # fmt: skip
        request = FetchRequest(
            version=12, replica_id=-1, max_wait_ms=60_000, min_bytes=1, max_bytes=1000, isolation_level=0, session_id=0,
            session_epoch=-1, topics=[FetchRequest.FetchTopic(topic="t", partitions=[part])], forgotten_topics_data=[],
            rack_id="",
        )  # fmt: skip
        fetching = asyncio.ensure_future(ask(node, request))
        await asyncio.sleep(0.01)
        assert not fetching.done()
        node.parts.readers.wake(TopicPartition("t", 0))
        for _ in range(turns):
            await asyncio.sleep(0)
        fetching.cancel()
        ended, _ = await asyncio.wait([fetching], timeout=5)
        assert ended and fetching.cancelled()

    with_node(tmp_path, story)
