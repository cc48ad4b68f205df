"""Who has not logged in holds little and keeps nobody out (S13 of the security findings)."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from embedded_kafka import EmbeddedKafka
from embedded_kafka.connections import lobby
from embedded_kafka.connections.lobby import Lobby
from embedded_kafka.wire.server import SaslHandshakeRequest
from tests.embedded_kafka.security.doors import Line, asking, versions
from tests.support.memory import resident_bytes

MEMORY_MAY_GROW_BYTES = 25 << 20
"""Twenty strangers with 512 KB each are 10 MB. The 280 that went held 60 MB more until Python collected cycles."""


class Client:
    def __init__(self, host: str) -> None:
        self.host, self.unknown, self.reason = host, True, ""

    def cut_off(self, reason: str) -> None:
        self.reason = reason


def played(story: Callable[[Lobby], None], *, most: int = 4, wait_s: float = 0.0) -> None:
    async def play() -> None:
        story(Lobby(2 * most))
        await asyncio.sleep(wait_s)

    asyncio.run(play())


def entered(waiting: Lobby, *hosts: str) -> list[Client]:
    clients = [Client(host) for host in hosts]
    for each in clients:
        waiting.enter(each)
    return clients


def test_where_there_is_no_room_the_oldest_of_the_address_with_the_most_goes() -> None:
    def story(waiting: Lobby) -> None:
        user, *many = entered(waiting, "a", "b", "b", "b")
        (newcomer,) = entered(waiting, "c")
        assert [bool(each.reason) for each in (user, *many, newcomer)] == [False, True, False, False, False]
        assert many[0].reason == "it has not logged in, and there are 4 others; its address has the most"

    played(story)


def test_who_has_logged_in_or_left_takes_no_room() -> None:
    def story(waiting: Lobby) -> None:
        first, second, third, fourth = entered(waiting, "a", "a", "a", "a")
        first.unknown = False
        waiting.leave(second)
        entered(waiting, "b", "b")
        assert not any(each.reason for each in (first, second, third, fourth))
        entered(waiting, "b")
        assert third.reason
        assert not first.reason and not second.reason

    played(story)


def test_who_does_not_log_in_goes_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lobby, "WITHIN_S", 0.05)
    clients: list[Client] = []

    def story(waiting: Lobby) -> None:
        clients.extend(entered(waiting, "a", "a", "a"))
        clients[1].unknown = False
        waiting.leave(clients[2])

    played(story, wait_s=0.3)
    assert [each.reason for each in clients] == ["it has not logged in within 0 s", "", ""]


# ---- over sockets


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    folder = tmp_path_factory.mktemp("lobby")
    # Half of the places are for clients without a login. In a process of its own, so that its memory is known.
    with asking(folder, "SASL_PLAINTEXT", "PLAIN,SCRAM-SHA-256", in_process=False, max_connections="40") as broker:
        yield broker


def silent(_: socket.socket) -> None:
    """It sends nothing."""


def half_way(stranger: socket.socket) -> None:
    """It begins a login."""
    request = SaslHandshakeRequest(version=1, mechanism="SCRAM-SHA-256")
    request.with_header(correlation_id=7, client_id="stranger")
    stranger.sendall(request.encode(header=True, framed=True))


def large(stranger: socket.socket) -> None:
    """It sends all but the last byte of the largest message that a login may have."""
    half_way(stranger)
    size = 524_288
    with suppress(ConnectionError):
        stranger.sendall(struct.pack(">ihhih", size, 36, 2, 7, -1) + bytes(size - 11))


@pytest.mark.kafka
@pytest.mark.embedded
@pytest.mark.parametrize("does", [silent, half_way, large], ids=lambda each: each.__name__)
def test_three_hundred_half_logins_keep_no_user_out_and_hold_little(
    kafka: EmbeddedKafka, does: Callable[[socket.socket], None]
) -> None:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    before = resident_bytes(kafka.pid)
    with ExitStack() as stack:
        inside = stack.enter_context(Line(kafka))
        assert inside.plain().error_code == 0
        for _ in range(300):
            stranger = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            does(stranger)
        with Line(kafka) as user:
            assert user.ask(versions()).error_code == 0
            assert user.plain().error_code == 0
            assert user.works()
        assert inside.works(), "who has logged in stays"
        assert resident_bytes(kafka.pid) - before < MEMORY_MAY_GROW_BYTES
