"""A connection's bytes: written in order, once a round of the loop; delivered as they come, before the end."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from pyspark_kafka_eos.client.net.loop import Loop, open_loop
from pyspark_kafka_eos.client.net.transport import NotKafka, PlainTransport

RECORDS = bytes(range(256)) * 16_384
"""4 MB: more than a socket between two processes takes at once."""


@dataclass
class Connection:
    """What kafka-python's connection would be given."""

    received: list[bytes] = field(default_factory=list)
    ended: list[Exception | None] = field(default_factory=list)
    _sensors = None

    def data_received(self, data: bytes) -> None:
        assert not self.ended
        self.received.append(bytes(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.append(error)


@dataclass
class Ends:
    """Both ends of a connection, and the loop of ours, which nothing drives but the test."""

    loop: Loop
    transport: PlainTransport
    connection: Connection
    peer: socket.socket

    def turn(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.loop._poll_once(timeout=0)

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
    loop = open_loop("t")
    transport = PlainTransport(loop, ours)
    connection = Connection()
    transport.set_protocol(connection)
    transport.resume_reading()
    yield Ends(loop, transport, connection, theirs)
    transport.abort()
    theirs.close()
    loop.close()


def test_bytes_that_fit_leave_at_once_and_leave_nothing_to_do(ends: Ends) -> None:
    ends.transport.write(b"head")
    ends.transport.writelines([memoryview(b"records"), b"tail"])
    ends.turn()

    assert ends.received() == b"headrecordstail"
    assert not ends.transport._write_buffer
    assert not ends.loop._ready, "no task was made for them"


def test_bytes_that_the_socket_does_not_take_follow_in_order_without_a_copy(ends: Ends) -> None:
    pieces = [b"head", memoryview(RECORDS), b"tail"]
    ends.transport.writelines(pieces)
    ends.turn()

    taken = ends.received()
    assert 4 < len(taken) < 4 + len(RECORDS), "the socket was meant to take a part of the records"
    assert ends.transport._write_buffer[0].obj is RECORDS, "the records themselves, not a copy"
    # Later bytes may not overtake them, though the socket has room again.
    ends.transport.write(b"later")

    expected = b"".join([*pieces, b"later"])
    assert taken + ends.arrived(len(expected) - len(taken)) == expected


def test_bytes_written_to_a_full_socket_follow(ends: Ends) -> None:
    ends.transport.write(RECORDS)
    ends.transport.write(RECORDS[::-1])

    assert ends.arrived(2 * len(RECORDS)) == RECORDS + RECORDS[::-1]


def test_what_is_written_in_one_round_leaves_in_one_call_at_its_end(ends: Ends) -> None:
    def round_of_writes() -> None:
        ends.transport.write(b"head")
        ends.transport.writelines([b"records", b"tail"])
        ends.loop.call_soon(lambda: ends.transport.write(b"next"))
        assert ends.received() == b""

    ends.loop.call_soon(round_of_writes)
    ends.turn()
    assert ends.peer.recv(1 << 20) == b"headrecordstail"
    ends.turn()
    assert ends.peer.recv(1 << 20) == b"next"


def test_bytes_that_were_written_before_a_round_do_not_wait_for_its_end(ends: Ends) -> None:
    ends.transport.write(b"early")
    seen: list[bytes] = []
    ends.loop.call_soon(lambda: seen.append(ends.received()))
    ends.turn()

    assert seen == [b"early"]


def test_more_pieces_than_one_call_takes_all_leave_in_order(ends: Ends) -> None:
    pieces = [b"%d," % number for number in range(3_000)]
    ends.transport.writelines(pieces)

    assert ends.arrived(len(b"".join(pieces))) == b"".join(pieces)


def test_bytes_written_before_the_end_of_this_side_are_sent(ends: Ends) -> None:
    ends.transport.write(b"last")
    ends.transport.close()
    ends.turn(3)

    assert ends.received() == b"last"
    assert ends.connection.ended == [None]


def test_bytes_of_a_connection_that_is_cut_off_are_forgotten(ends: Ends) -> None:
    ends.transport.write(b"lost")
    ends.transport.abort()
    ends.turn(2)

    assert ends.received() == b""


def test_a_lost_connection_ends_in_the_loop_and_not_in_the_call_that_writes(ends: Ends) -> None:
    ends.transport.pause_reading()
    ends.peer.close()

    ends.transport.writelines([b"head", RECORDS])
    assert not ends.connection.ended
    ends.turn(3)

    (error,) = ends.connection.ended
    assert "Broken pipe" in str(error)


def test_nothing_and_bytes_after_the_end_are_refused(ends: Ends) -> None:
    with pytest.raises(ValueError, match="no bytes"):
        ends.transport.write(b"")
    ends.transport.close()
    with pytest.raises(RuntimeError, match="no more bytes"):
        ends.transport.write(b"late")


def test_a_connection_that_is_closed_with_bytes_left_writes_them_first(ends: Ends) -> None:
    ends.transport.write(RECORDS)
    ends.turn()
    ends.transport.close()
    # An answer that nobody waits for any more must not keep the loop busy.
    ends.peer.send(b"late answer")
    ends.turn(2)
    assert ends.loop._selector.select(0) == []

    assert ends.arrived(len(RECORDS)) == RECORDS
    ends.turn(2)
    assert ends.connection.received == []
    assert ends.connection.ended == [None]


def test_bytes_are_delivered_as_they_come(ends: Ends) -> None:
    for piece in (b"one", b"two"):
        ends.peer.send(piece)
        ends.turn()
    ends.turn()

    assert ends.connection.received == [b"one", b"two"]


def test_more_bytes_than_one_read_takes_are_all_delivered(ends: Ends) -> None:
    ends.peer.send(RECORDS[:150_000])
    ends.turn(4)

    assert b"".join(ends.connection.received) == RECORDS[:150_000]


def test_bytes_come_before_the_end_of_the_stream(ends: Ends) -> None:
    ends.peer.send(b"refused")
    ends.peer.close()
    ends.turn(3)

    assert ends.connection.received == [b"refused"]
    (error,) = ends.connection.ended
    assert "disconnected" in str(error)


def test_a_connection_that_is_paused_delivers_when_it_goes_on(ends: Ends) -> None:
    ends.transport.pause_reading()
    ends.transport.pause_reading()
    ends.peer.send(b"waits")
    ends.turn(2)
    assert ends.connection.received == []

    ends.transport.resume_reading()
    ends.transport.resume_reading()
    ends.turn()

    assert ends.connection.received == [b"waits"]


def test_a_connection_may_be_ended_by_what_it_delivers(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ends.connection, "data_received", lambda data: ends.transport.abort(error=ValueError("refused"))
    )
    ends.peer.send(b"refused")
    ends.turn(3)

    assert [str(error) for error in ends.connection.ended] == ["refused"]
    assert not ends.loop._pending_tasks


def test_the_error_for_another_protocol_is_pickled_as_it_is() -> None:
    error = pickle.loads(pickle.dumps(NotKafka("TLS")))

    assert (str(error), error.speaks) == (str(NotKafka("TLS")), "TLS")
