"""A Produce request is written at once as far as the socket takes it; the rest stays, in order, for the library's task."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport

from connector.client.network import _write_now

RECORDS = bytes(range(256)) * 16_384
"""4 MB: more than a socket between two processes takes at once."""


@pytest.fixture
def ends() -> Iterator[tuple[KafkaTCPTransport, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    selector = NetworkSelector()
    yield KafkaTCPTransport(selector, ours), theirs
    ours.close()
    theirs.close()
    selector.close()


def received(end: socket.socket) -> bytes:
    pieces = []
    while True:
        try:
            piece = end.recv(1 << 20)
        except BlockingIOError:
            return b"".join(pieces)
        pieces.append(piece)


def test_a_request_that_fits_goes_out_whole_and_leaves_nothing(
    ends: tuple[KafkaTCPTransport, socket.socket],
) -> None:
    transport, peer = ends
    transport.writelines([b"head", memoryview(b"records"), b"tail"])

    _write_now(transport)

    assert received(peer) == b"headrecordstail"
    assert not transport._write_buffer


def test_what_the_socket_does_not_take_stays_in_order(
    ends: tuple[KafkaTCPTransport, socket.socket],
) -> None:
    transport, peer = ends
    pieces = [b"head", memoryview(RECORDS), b"tail"]
    transport.writelines(pieces)

    _write_now(transport)

    taken = received(peer)
    assert 4 < len(taken) < 4 + len(RECORDS), "the socket was meant to take a part of the records"
    assert taken + b"".join(transport._write_buffer) == b"".join(pieces)
    assert transport._write_buffer[0].obj is RECORDS, "the records themselves, not a copy"


def test_a_socket_that_is_full_takes_nothing_and_everything_stays(
    ends: tuple[KafkaTCPTransport, socket.socket],
) -> None:
    transport, _ = ends
    transport.writelines([RECORDS])
    _write_now(transport)
    left = b"".join(transport._write_buffer)
    assert left

    _write_now(transport)

    assert b"".join(transport._write_buffer) == left


def test_a_lost_connection_is_left_to_the_task_that_closes_it(
    ends: tuple[KafkaTCPTransport, socket.socket],
) -> None:
    transport, peer = ends
    peer.close()
    transport.writelines([b"head", RECORDS])

    _write_now(transport)

    assert list(transport._write_buffer) == [b"head", RECORDS]
    assert not transport.is_closing()
