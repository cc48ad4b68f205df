"""TCP without TLS for asyncio: large answers into the reader's own memory, large records out without a copy.

Owns: a connected socket and the bytes that it has not taken yet.
Does not know: requests, answers.
Invariants:
- Bytes leave in the order in which they were written, and those that were written before `close` still leave.
- The protocol hears of the end once, after all bytes that came before it.

asyncio's own transport joins what it writes before Python 3.12, and keeps what the socket does not take as a copy: of a
Produce of 1 MB that is half of the client's work. TLS copies anyway, so connections with it have asyncio's.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Iterable
from typing import Any

_MOST_PIECES = 1_024
"""Of one call that writes (Linux' IOV_MAX)."""

_READS_AT_ONCE = 16
"""So often a socket is read before others have their turn: with the 64 KB of a small answer's memory 1 MB. Half makes
no difference to a large answer, whose memory is its own; double lets one connection hold up the others for longer.
"""


class PlainTransport(asyncio.Transport):
    """Of a protocol that has its own buffers (`asyncio.BufferedProtocol`). Everything runs on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: Any, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__({"socket": sock, "peername": sock.getpeername()})
        self._loop, self._sock, self._protocol = loop, sock, protocol
        self._number = sock.fileno()
        self._waiting: deque[Any] = deque()
        self._closing = False
        self._lost = False
        protocol.connection_made(self)
        if not self._closing:
            loop.add_reader(self._number, self._readable)

    # ---- reading

    def _readable(self) -> None:
        for _ in range(_READS_AT_ONCE):
            if self._closing:
                return
            room: Any = self._protocol.get_buffer(-1)
            try:
                count = self._sock.recv_into(room)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(error)
                return
            if count == 0:
                # Kafka's brokers never end one direction alone, so nobody reads what is left to write.
                self._lose(None)
                return
            self._protocol.buffer_updated(count)
            if count < len(room):
                return

    # ---- writing

    def write(self, data: Any) -> None:
        """Send these bytes behind all earlier ones."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send these bytes behind all earlier ones, in one call of the system. What the socket does not take is kept as
        it was given. After the end of the connection nothing happens.
        """
        if self._closing:
            return
        first = not self._waiting
        self._waiting.extend(list_of_data)
        if first:
            self._write_now()
            if self._waiting and not self._lost:
                self._loop.add_writer(self._number, self._writable)

    def _writable(self) -> None:
        self._write_now()
        if not self._waiting and not self._lost:
            self._loop.remove_writer(self._number)
            if self._closing:
                self._lose(None)

    def _write_now(self) -> None:
        waiting = self._waiting
        while waiting:
            pieces = list(waiting) if len(waiting) <= _MOST_PIECES else list(itertools.islice(waiting, _MOST_PIECES))
            try:
                sent = self._sock.sendmsg(pieces)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(error)
                return
            while waiting and sent >= len(waiting[0]):
                sent -= len(waiting.popleft())
            if sent:
                waiting[0] = memoryview(waiting[0])[sent:]
                return

    # ---- the end

    def is_closing(self) -> bool:
        """Whether it takes no more bytes."""
        return self._closing

    def close(self) -> None:
        """Read no more, write what is left, and end."""
        if not self._closing:
            self._closing = True
            self._loop.remove_reader(self._number)
            if not self._waiting:
                self._lose(None)

    def abort(self) -> None:
        """End now."""
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._closing = self._lost = True
        self._loop.remove_reader(self._number)
        self._loop.remove_writer(self._number)
        self._waiting.clear()
        # Not within a call of the protocol's own.
        self._loop.call_soon(self._ended, error)

    def _ended(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()


_OPTIONS = (
    (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    # Boxes that translate addresses forget a connection that is still after 4 minutes (Azure) or 350 s (AWS).
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 60),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)


def set_options(sock: Any, unacknowledged_ms: int) -> None:
    """Have the system send at once, notice a peer that is gone, and keep boxes between them from forgetting it.
    `unacknowledged_ms`: how long bytes may wait for the peer's system; Linux' own limit is about 15 minutes.
    """
    options = (*_OPTIONS, (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", unacknowledged_ms))
    for level, name, value in options:
        # Not every system has them all.
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(level, option, value)
