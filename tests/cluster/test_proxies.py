"""A proxy that is cut: nothing passes, nothing is refused, nothing is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.cluster.proxies import Proxies, Proxy

SILENT_S = 0.2
"""How long the silence of a cut is listened to. A proxy that lets bytes through does so within a millisecond."""


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    with Proxies() as made:
        yield made


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(10)
        yield made


def before(proxies: Proxies, server: socket.socket) -> Proxy:
    return proxies.before(server.getsockname()[1])


def joined(proxy: Proxy, server: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    there, _ = server.accept()
    there.settimeout(10)
    return client, there


def says_nothing(end: socket.socket) -> bool:
    end.settimeout(SILENT_S)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(10)
    return False


def test_bytes_pass_both_ways(proxies: Proxies, server: socket.socket) -> None:
    client, there = joined(before(proxies, server), server)
    with client, there:
        client.sendall(b"asked")
        assert there.recv(5) == b"asked"
        there.sendall(b"answered")
        assert client.recv(8) == b"answered"


def test_a_cut_holds_what_is_said_until_it_is_mended_and_closes_nothing(
    proxies: Proxies, server: socket.socket
) -> None:
    proxy = before(proxies, server)
    client, there = joined(proxy, server)
    with client, there:
        client.sendall(b"a")
        assert there.recv(1) == b"a"
        proxy.cut()
        client.sendall(b"b")
        assert says_nothing(there) and says_nothing(client)
        assert proxy.held == 1

        proxy.mend()

        assert there.recv(1) == b"b"


def test_a_connection_that_comes_while_it_is_cut_is_taken_and_leads_on_when_it_is_mended(
    proxies: Proxies, server: socket.socket
) -> None:
    proxy = before(proxies, server)
    proxy.cut()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
        client.sendall(b"early")
        assert says_nothing(client)
        server.settimeout(SILENT_S)
        with pytest.raises(TimeoutError):
            server.accept()
        server.settimeout(10)

        proxy.mend()

        there, _ = server.accept()
        with there:
            assert there.recv(5) == b"early"


def test_an_end_that_closes_while_it_is_cut_is_heard_of_when_it_is_mended(
    proxies: Proxies, server: socket.socket
) -> None:
    proxy = before(proxies, server)
    client, there = joined(proxy, server)
    with client:
        client.sendall(b"a")
        assert there.recv(1) == b"a"
        proxy.cut()
        there.close()
        assert says_nothing(client)

        proxy.mend()

        assert client.recv(1) == b""


def test_a_target_that_is_not_there_ends_the_connection(proxies: Proxies, server: socket.socket) -> None:
    proxy = before(proxies, server)
    server.close()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
        assert client.recv(1) == b""
    assert proxy.taken == 1


def test_the_end_closes_every_connection_and_port(server: socket.socket) -> None:
    with Proxies() as proxies:
        proxy = before(proxies, server)
        client, there = joined(proxy, server)
    with client, there:
        assert client.recv(1) == b"" and there.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def test_another_loopback_address_may_have_the_port_of_the_target(proxies: Proxies, server: socket.socket) -> None:
    port = server.getsockname()[1]
    proxy = proxies.before(port, host="127.0.0.2", at=port)
    with socket.create_connection(("127.0.0.2", proxy.port), timeout=10) as client:
        there, _ = server.accept()
        with there:
            client.sendall(b"a")
            assert there.recv(1) == b"a"
