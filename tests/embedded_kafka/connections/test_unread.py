"""Clients that do not read their answers: what they hold is bounded over all of them, and others are served."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from embedded_kafka.connections.unread import SLOW_AFTER_S, STUCK_AFTER_S, Unread
from embedded_kafka.log import encode_batch
from embedded_kafka.node import Node
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.wire.server import FetchRequest, MetadataRequest, response_class
from kafka_core.values import TopicPartition
from tests.embedded_kafka.node_tools import WITHIN_S, ask, produce, records, with_node

LIMIT = 1_000
MB = 1024 * 1024


class Client:
    """One connection's side of it: so much is unsent until the test says otherwise."""

    def __init__(self, unread: Unread, number: int, size: int) -> None:
        self.unread, self.number, self.size = unread, number, size
        self.reasons: list[str] = []
        unread.holds(number, self)

    def unsent_bytes(self) -> int:
        return self.size

    def held_bytes(self) -> int:
        return self.size

    def cut_off(self, reason: str) -> None:
        self.reasons.append(reason)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def played(scenario: Callable[[Unread, Clock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = Clock()
        unread = Unread(LIMIT, now_s=clock)
        try:
            await asyncio.wait_for(scenario(unread, clock), WITHIN_S)
        finally:
            unread.close()

    asyncio.run(main())


async def become(what: Callable[[], bool]) -> None:
    """Until it is so; `played` bounds it."""
    while not what():
        await asyncio.sleep(0.01)


async def looks(unread: Unread, times: int = 3) -> None:
    """So many looks at who has read meanwhile."""
    for _ in range(times):
        unread._look_again()
        await asyncio.sleep(0)


def test_the_more_is_unread_the_smaller_are_the_answers_and_there_is_always_one() -> None:
    async def scenario(unread: Unread, _clock: Clock) -> None:
        shares = []
        for number in range(12):
            shares.append(unread.share)
            Client(unread, number, unread.share)
        assert shares[0] == LIMIT // 4 and shares == sorted(shares, reverse=True) and shares[-1] >= 1
        assert unread.held_bytes <= LIMIT

    played(scenario)


def test_nobody_is_cut_off_while_nobody_waits() -> None:
    async def scenario(unread: Unread, clock: Clock) -> None:
        idle = Client(unread, 1, 2 * LIMIT)
        clock.now_s = 10 * SLOW_AFTER_S
        await looks(unread)
        assert idle.reasons == [] and unread.held_bytes == 2 * LIMIT

    played(scenario)


def test_who_waits_gets_room_when_another_has_read_its_answer() -> None:
    async def scenario(unread: Unread, _clock: Clock) -> None:
        reader = Client(unread, 1, LIMIT)
        waiting = asyncio.ensure_future(unread.room())
        await looks(unread)
        assert not waiting.done()
        unread.drained(1)
        await waiting
        assert reader.reasons == [] and unread.held_bytes == 0

    played(scenario)


def test_a_client_that_reads_nothing_is_cut_off_for_one_that_waits_but_one_that_reads_is_not() -> None:
    async def scenario(unread: Unread, clock: Clock) -> None:
        stuck, reading = Client(unread, 1, 600), Client(unread, 2, 600)
        waiting = asyncio.ensure_future(unread.room())
        for _ in range(4):
            await looks(unread, 1)
            assert not waiting.done() and stuck.reasons == []
            clock.now_s += STUCK_AFTER_S / 4
            reading.size -= 10
        await looks(unread, 1)
        await waiting
        assert len(stuck.reasons) == 1 and "600 bytes" in stuck.reasons[0]
        assert reading.reasons == [] and unread.held_bytes == 560

    played(scenario)


def test_a_client_that_reads_a_byte_now_and_then_does_not_keep_its_room_for_ever() -> None:
    async def scenario(unread: Unread, clock: Clock) -> None:
        trickling = Client(unread, 1, LIMIT + 500)
        waiting = asyncio.ensure_future(unread.room())
        await looks(unread, 1)
        while clock.now_s < SLOW_AFTER_S:
            assert not waiting.done()
            clock.now_s += 1
            trickling.size -= 1
            await looks(unread, 1)
        await waiting
        assert len(trickling.reasons) == 1

    played(scenario)


def test_a_part_of_the_room_is_for_those_who_have_just_asked() -> None:
    async def scenario(unread: Unread, clock: Clock) -> None:
        Client(unread, 1, LIMIT)
        old = [asyncio.ensure_future(unread.room()) for _ in range(3)]
        await looks(unread)
        clock.now_s += 2
        fresh = asyncio.ensure_future(unread.room())
        await looks(unread)
        Client(unread, 1, LIMIT - 100)  # a little of it was read
        await looks(unread)
        assert fresh.done() and not any(each.done() for each in old)
        unread.drained(1)
        await asyncio.gather(*old)

    played(scenario)


def test_who_leaves_while_it_waits_keeps_nobody_from_their_turn() -> None:
    async def scenario(unread: Unread, _clock: Clock) -> None:
        Client(unread, 1, LIMIT)
        first = asyncio.ensure_future(unread.room())
        second = asyncio.ensure_future(unread.room())
        await looks(unread)
        second.cancel()
        unread.drained(1)
        await first

    played(scenario)


# ---- with sockets


def fetching(max_bytes: int, correlation_id: int = 7, topic: str = "t") -> bytes:
    each = FetchRequest.FetchTopic
    part = each.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    request = FetchRequest(
        version=11, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, isolation_level=0, session_id=0,
        session_epoch=-1, forgotten_topics_data=[], rack_id="", topics=[each(topic=topic, partitions=[part])],
    )  # fmt: skip
    request.with_header(correlation_id=correlation_id, client_id="me")
    return bytes(request.encode(header=True, framed=True))


def making(topic: str) -> bytes:
    asked = MetadataRequest.MetadataRequestTopic(name=topic)
    request = MetadataRequest(version=12, topics=[asked], allow_auto_topic_creation=True)
    request.with_header(correlation_id=8, client_id="me")
    return bytes(request.encode(header=True, framed=True))


async def connected(node: Node) -> socket.socket:
    """With hardly any room of its own for what the broker sends."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (node.parts.me.host, node.parts.me.port))
    return client


async def read(client: socket.socket) -> bytes:
    """One whole answer, without its length."""
    loop = asyncio.get_running_loop()

    async def exactly(count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            piece = await loop.sock_recv(client, min(count - len(found), 65_536))
            assert piece, "the connection ended"
            found += piece
        return bytes(found)

    return await exactly(int.from_bytes(await exactly(4), "big"))


async def filled(node: Node, megabytes: int) -> None:
    node.parts.topics.create("t", 1)
    large = bytes(encode_batch([(None, bytes(900_000))], timestamp_ms=node.parts.clock.now_ms()))
    for _ in range(megabytes):
        await ask(node, produce("t", large))


def limited(limit: int, stuck_after_s: float, scenario: Callable[[Node], Awaitable[Any]], tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        node.parts = replace(node.parts, unread=Unread(limit, stuck_after_s=stuck_after_s))
        await asyncio.wait_for(scenario(node), WITHIN_S)

    with_node(tmp_path, play, BrokerConfig(unread_answers_max_bytes=limit))


def test_a_large_answer_is_whole_however_slowly_it_is_read(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await filled(node, 12)
        client = await connected(node)
        await asyncio.get_running_loop().sock_sendall(client, fetching(12 * MB))
        await become(lambda: node.parts.unread.held_bytes > 0)
        answer = response_class(FetchRequest.API_KEY).decode(await read(client), version=11, header=True)
        log = node.parts.topics.log(TopicPartition("t", 0))
        sent = log.read(0, 12 * MB, read_committed=False, at_least_one=True).records
        assert answer.responses[0].partitions[0].records == sent
        await become(lambda: node.parts.unread.held_bytes == 0)
        client.close()

    limited(100 * MB, 60, scenario, tmp_path)


def test_a_request_is_not_begun_before_the_answer_to_the_one_before_it_is_sent(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await filled(node, 12)
        client = await connected(node)
        await asyncio.get_running_loop().sock_sendall(client, fetching(12 * MB) + making("made"))
        await become(lambda: node.parts.unread.held_bytes > 0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert node.parts.topics.get("made") is None
        await read(client)
        await read(client)
        assert node.parts.topics.get("made") is not None
        client.close()

    limited(100 * MB, 60, scenario, tmp_path)


def test_thirty_clients_that_read_nothing_hold_no_more_than_the_limit_and_others_are_served(
    tmp_path: Path,
) -> None:
    limit = 8 * MB

    async def scenario(node: Node) -> None:
        await filled(node, 12)
        loop = asyncio.get_running_loop()
        silent = [await connected(node) for _ in range(30)]
        for client in silent:
            await loop.sock_sendall(client, fetching(12 * MB) * 10)
        await become(lambda: node.parts.unread.held_bytes > limit // 2)
        assert node.parts.unread.held_bytes <= limit + MB

        other = await connected(node)
        for number in range(20):
            await loop.sock_sendall(other, making(f"topic-{number}"))
            await read(other)
            await loop.sock_sendall(other, fetching(MB))
            answer = response_class(FetchRequest.API_KEY).decode(await read(other), version=11, header=True)
            assert answer.responses[0].partitions[0].records
            assert node.parts.unread.held_bytes <= limit + MB
        await ask(node, produce("t", records()))
        for client in [*silent, other]:
            client.close()
        await become(lambda: node.parts.unread.held_bytes == 0 and not node._connections)

    limited(limit, 0.2, scenario, tmp_path)
