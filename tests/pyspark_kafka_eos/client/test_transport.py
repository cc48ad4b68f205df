"""A connection's bytes: written in order, without a copy; delivered as they come, before the end."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pyspark_kafka_eos.client.net.failures import NotKafka
from pyspark_kafka_eos.client.net.transport import PlainTransport

RECORDS = bytes(range(256)) * 16_384
"""4 MB: more than a socket between two processes takes at once."""


class Connection(asyncio.BufferedProtocol):
    """A reader with room for 64 KB."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.ended: list[Exception | None] = []
        self._room = bytearray(65_536)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        assert not self.ended
        self.received.append(bytes(self._room[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.append(exc)


@dataclass
class Ends:
    """Both ends of a connection, and the loop of ours, which nothing drives but the test."""

    loop: asyncio.AbstractEventLoop
    transport: PlainTransport
    connection: Connection
    peer: socket.socket

    def turn(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def received(self) -> bytes:
        pieces = []
        while True:
            try:
                piece = self.peer.recv(1 << 20)
            except (BlockingIOError, ConnectionResetError):
                # Reset: closed with bytes that it never read, after its own were read here.
                return b"".join(pieces)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)

    def arrived(self, expected: int) -> bytes:
        """What the peer has received once the loop has written `expected` bytes."""
        pieces = b""
        for _ in range(1_000):
            self.turn()
            pieces += self.received()
            if len(pieces) >= expected:
                break
        return pieces


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    loop = asyncio.SelectorEventLoop()
    connection = Connection()
    made = Ends(loop, PlainTransport(loop, ours, connection), connection, theirs)
    yield made
    made.transport.abort()
    made.turn(2)
    theirs.close()
    loop.close()


def test_bytes_leave_at_once_in_one_call_and_leave_nothing_to_do(ends: Ends) -> None:
    ends.transport.writelines([b"head", memoryview(b"records"), b"tail"])

    assert ends.peer.recv(1 << 20) == b"headrecordstail"
    assert not ends.transport._waiting


def test_bytes_that_the_socket_does_not_take_follow_in_order_without_a_copy(ends: Ends) -> None:
    pieces = [b"head", memoryview(RECORDS), b"tail"]
    ends.transport.writelines(pieces)

    taken = ends.received()
    assert 4 < len(taken) < 4 + len(RECORDS), "the socket was meant to take a part of the records"
    assert ends.transport._waiting[0].obj is RECORDS, "the records themselves, not a copy"
    # Later bytes may not overtake them, though the socket has room again.
    ends.transport.write(b"later")

    expected = b"".join([*pieces, b"later"])
    assert taken + ends.arrived(len(expected) - len(taken)) == expected


def test_bytes_written_to_a_full_socket_follow(ends: Ends) -> None:
    ends.transport.write(RECORDS)
    ends.transport.write(RECORDS[::-1])

    assert ends.arrived(2 * len(RECORDS)) == RECORDS + RECORDS[::-1]


def test_more_pieces_than_one_call_takes_all_leave_in_order(ends: Ends) -> None:
    pieces = [b"%d," % number for number in range(3_000)]
    ends.transport.writelines(pieces)

    assert ends.arrived(len(b"".join(pieces))) == b"".join(pieces)


def test_bytes_of_a_connection_that_is_cut_off_are_forgotten(ends: Ends) -> None:
    ends.transport.write(RECORDS)
    ends.received()
    ends.transport.abort()
    ends.turn(2)

    assert len(ends.received()) < len(RECORDS)
    assert ends.connection.ended == [None]


def test_a_lost_connection_ends_in_the_loop_and_not_in_the_call_that_writes(ends: Ends) -> None:
    ends.peer.close()

    ends.transport.writelines([b"head", RECORDS])
    assert not ends.connection.ended
    ends.turn(2)

    (error,) = ends.connection.ended
    assert isinstance(error, BrokenPipeError)


def test_bytes_after_the_end_are_forgotten(ends: Ends) -> None:
    ends.transport.close()
    ends.transport.write(b"late")
    ends.turn(2)

    assert ends.received() == b""
    assert ends.transport.is_closing() and ends.connection.ended == [None]


def test_a_connection_that_is_closed_with_bytes_left_writes_them_first(ends: Ends) -> None:
    ends.transport.write(RECORDS)
    ends.transport.close()
    # An answer that nobody waits for any more is not delivered.
    ends.peer.send(b"late answer")

    assert ends.arrived(len(RECORDS)) == RECORDS
    ends.turn(2)
    assert ends.connection.received == []
    assert ends.connection.ended == [None]


def test_bytes_are_delivered_as_they_come(ends: Ends) -> None:
    for piece in (b"one", b"two"):
        ends.peer.send(piece)
        ends.turn(2)

    assert ends.connection.received == [b"one", b"two"]


def test_more_bytes_than_one_read_takes_are_all_delivered(ends: Ends) -> None:
    ends.peer.send(RECORDS[:150_000])
    ends.turn(3)

    assert b"".join(ends.connection.received) == RECORDS[:150_000]


def test_bytes_come_before_the_end_of_the_stream(ends: Ends) -> None:
    ends.peer.send(b"refused")
    ends.peer.close()
    ends.turn(4)

    assert ends.connection.received == [b"refused"]
    assert ends.connection.ended == [None]


def test_a_connection_may_be_ended_by_what_it_delivers(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends.connection, "buffer_updated", lambda count: ends.transport.abort())
    ends.peer.send(b"refused")
    ends.turn(4)

    assert ends.connection.ended == [None]


def test_the_error_for_another_protocol_is_pickled_as_it_is() -> None:
    error = pickle.loads(pickle.dumps(NotKafka("TLS")))

    assert (str(error), error.speaks) == (str(NotKafka("TLS")), "TLS")
