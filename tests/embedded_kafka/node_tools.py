"""A whole broker inside a test's own event loop, asked through its frames: everything but the socket.

Owns: the making of requests and of records for them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from embedded_kafka.context import Context
from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.log import encode_batch
from embedded_kafka.node import Node
from embedded_kafka.producer_ids import FileBlocks, ProducerIds
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.wire.server import (
    FetchRequest,
    InitProducerIdRequest,
    Message,
    ProduceRequest,
    response_class,
)
from kafka_core.protocol.error_codes import Code

WITHIN_S = 30
ME = Context(1, "me", "127.0.0.1")


async def ask(node: Node, request: Message) -> Any:
    """The broker's answer, by way of bytes in both directions; None where there is none."""
    request.with_header(correlation_id=7, client_id=ME.client_id)
    frame = memoryview(bytes(request.encode(header=True, framed=True)))[4:]
    answer = await node.answer(frame, lambda _client_id: ME)
    if answer is None:
        return None
    return response_class(request.API_KEY).decode(bytes(answer[4:]), version=request.API_VERSION, header=True)


def with_node(directory: Path, scenario: Callable[[Node], Awaitable[None]], config: BrokerConfig | None = None) -> None:
    """Start a broker, play the scenario, stop it, also where the scenario fails."""
    with_cluster(directory, lambda cluster: scenario(cluster.nodes[0]), config)


def with_cluster(
    directory: Path,
    scenario: Callable[[KafkaCluster], Awaitable[None]],
    config: BrokerConfig | None = None,
    brokers: int = 1,
) -> None:
    """Start brokers, play the scenario, stop them, also where the scenario fails."""

    async def play() -> None:
        ids = ProducerIds(FileBlocks(directory))
        directory.mkdir(exist_ok=True)
        cluster = KafkaCluster(directory, ids, config, brokers=brokers)
        await cluster.start()
        try:
            await asyncio.to_thread(ids.wait_until_ready, 10_000)
            await scenario(cluster)
        finally:
            await cluster.stop()

    asyncio.run(play())


def records(count: int = 1, **batch: Any) -> bytes:
    """A batch of so many small records; further facts as `encode_batch` takes them."""
    return bytes(encode_batch([(None, b"value %d" % n) for n in range(count)], timestamp_ms=1_000, **batch))


def produce(
    topic: str, data: bytes | None, *, partition: int = 0, version: int = 9, acks: int = -1,
    transactional_id: str | None = None,
) -> Message:  # fmt: skip
    """A Produce request for one partition."""
    each = ProduceRequest.TopicProduceData
    part = each.PartitionProduceData(index=partition, records=data)
    return ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[each(name=topic, partition_data=[part])],
    )


def fetch(
    topic: str, offsets: Mapping[int, int], *, version: int = 11, leader_epoch: int = -1, fetched_epoch: int = -1,
    max_wait_ms: int = 0, committed: bool = True,
) -> Message:  # fmt: skip
    """A Fetch request for these partitions of a topic, each from its offset on."""
    each = FetchRequest.FetchTopic
    partitions = [
        each.FetchPartition(
            partition=partition, current_leader_epoch=leader_epoch, fetch_offset=offset, log_start_offset=-1,
            last_fetched_epoch=fetched_epoch, partition_max_bytes=1 << 20,
        )
        for partition, offset in offsets.items()
    ]  # fmt: skip
    return FetchRequest(
        version=version, replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20,
        isolation_level=int(committed), session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[each(topic=topic, partitions=partitions)],
    )  # fmt: skip


def fetched(answer: Any) -> dict[int, Any]:
    """Each partition's part of the answer to `fetch`."""
    (topic,) = answer.responses
    return {part.partition_index: part for part in topic.partitions}


def produced(answer: Any) -> tuple[int, int]:
    """(error code, base offset) of the only partition."""
    (topic,) = answer.responses
    (part,) = topic.partition_responses
    return part.error_code, part.base_offset


def init(transactional_id: str) -> Message:
    """An InitProducerId request."""
    return InitProducerIdRequest(
        version=3, transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )  # fmt: skip


def initialised(kafka: EmbeddedKafka, transactional_id: str) -> Any:
    """The answer to it, as soon as the broker has a producer id at hand."""
    answers: list[Any] = []

    def done() -> bool:
        answers.append(ask_over_the_wire(kafka.bootstrap_servers, init(transactional_id)))
        return bool(answers[-1].error_code == Code.NONE)

    until(done)
    return answers[-1]


def until(what: Callable[[], bool]) -> None:
    """Until it is so."""
    deadline = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.01)


def ask_over_the_wire(bootstrap_servers: str, request: Message, timeout_s: float = 30) -> Any:
    """The answer to one request on a connection of its own; ConnectionError where that ends instead."""
    host, _, port = bootstrap_servers.rpartition(":")
    request.with_header(correlation_id=7, client_id=ME.client_id)
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(request.encode(header=True, framed=True))
        with connection.makefile("rb") as answers:
            head = answers.read(4)
            size = int.from_bytes(head, "big")
            answer = answers.read(size)
    if len(head) < 4 or len(answer) < size:
        raise ConnectionError("the connection ended instead of an answer")
    return response_class(request.API_KEY).decode(answer, version=request.API_VERSION, header=True)
