"""Memory for large requests is used again, and only where nobody looks at it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embedded_kafka.connections.receive_buffers import (
    LARGEST_BYTES,
    SMALLEST_BYTES,
    SPARE_BYTES,
    ReceiveBuffers,
)
from embedded_kafka.log import encode_batch
from embedded_kafka.node import Node
from kafka_core.values import TopicPartition
from tests.embedded_kafka.node_tools import WITHIN_S, produce, with_node

KB = 1024


@pytest.mark.parametrize("size", [1, SMALLEST_BYTES, SMALLEST_BYTES + 1, 1_000 * KB, LARGEST_BYTES])
def test_what_was_given_back_is_handed_out_again_for_a_request_of_that_size(size: int) -> None:
    buffers = ReceiveBuffers()
    first = buffers.take(size)
    memory = first.obj
    assert len(first) == size
    buffers.give_back(first)

    again = buffers.take(size)

    assert len(again) == size
    assert again.obj is memory
    # It is out now, so the next one gets another.
    assert buffers.take(size).obj is not memory


def keep_a_slice(view: memoryview) -> Any:
    return view[10:20]


def keep_an_array(view: memoryview) -> Any:
    return np.frombuffer(view, np.uint8)


@pytest.mark.parametrize("keep", [keep_a_slice, keep_an_array])
def test_a_buffer_that_is_still_looked_at_is_not_handed_out(
    keep: Callable[[memoryview], Any],
) -> None:
    buffers = ReceiveBuffers()
    view = buffers.take(300 * KB)
    view[10:20] = b"0123456789"
    memory = view.obj
    kept = keep(view)

    buffers.give_back(view)
    other = buffers.take(300 * KB)
    other[:] = bytes(300 * KB)

    assert other.obj is not memory
    assert b"0123456789" in bytes(kept)


def test_memory_of_others_is_left_alone() -> None:
    buffers = ReceiveBuffers()
    for other in (bytes(SMALLEST_BYTES), bytearray(10), bytearray(2 * LARGEST_BYTES)):
        view = memoryview(other)
        buffers.give_back(view)
        # Not released: its owner may go on with it.
        assert view[0] == 0


def test_what_is_spare_is_bounded_over_all_sizes() -> None:
    buffers = ReceiveBuffers()
    views = [buffers.take(size) for size in (LARGEST_BYTES, LARGEST_BYTES // 2, SMALLEST_BYTES) for _ in range(20)]
    memory = {id(view.obj): view.obj for view in views}
    for view in views:
        buffers.give_back(view)

    handed_out = []
    for size in (LARGEST_BYTES, LARGEST_BYTES // 2, SMALLEST_BYTES):
        while id((view := buffers.take(size)).obj) in memory:
            handed_out.append(view)

    assert SPARE_BYTES - LARGEST_BYTES < sum(len(memory[id(each.obj)]) for each in handed_out) <= SPARE_BYTES


def test_one_large_request_after_another_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    """The second comes in where the first was; the log has each as it was sent."""
    values = [bytes([65 + number]) * (400 * KB - number) for number in range(4)]

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1, {})
        reader, writer = await asyncio.open_connection("127.0.0.1", node.parts.me.port)
        for number, value in enumerate(values):
            request = produce("t", bytes(encode_batch([(None, value)], timestamp_ms=1_000)))
            request.with_header(correlation_id=number, client_id="it")
            writer.write(request.encode(header=True, framed=True))
            size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), WITHIN_S), "big")
            await reader.readexactly(size)
        view = node.receive_buffers.take(400 * KB)
        # It is the buffer of the requests, not a fresh one.
        assert values[-1][:1] * 1_000 in bytes(view)
        writer.close()
        stored = node.parts.topics.log(TopicPartition("t", 0)).scan_records()
        assert [record.value for record in stored] == values

    with_node(tmp_path, scenario)
