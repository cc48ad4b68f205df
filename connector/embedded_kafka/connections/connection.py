"""One client's connection: bytes in, frames out of them, answers back in the order of the requests.

Owns: the reading buffer, the order of answers, the limits on what a client may send, the
unsent rest of an answer.
Does not know: what requests mean; the node answers them.
Invariants:
- A connection processes its requests one after another; a producer's sequences rely on this order.
- A frame gets memory only after its length and API have been checked, and only as fast as its bytes arrive.
- A request starts only after the answer to the previous one has been sent, so a client that does not
  read holds one answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from embedded_kafka.connections.receive_buffers import LARGEST_BYTES, ReceiveBuffers
from embedded_kafka.connections.unread import SMALL_BYTES, Unread
from embedded_kafka.context import Context
from embedded_kafka.refusals import Disconnect
from embedded_kafka.security.acls import ANONYMOUS
from embedded_kafka.security.listener_security import UNKNOWN_CLIENT_BYTES, LoginSession, principal_of
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.wire.server import REQUESTS, MalformedRequest, ProduceRequest

log = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024
"""Frames up to this size are cut out of one buffer; larger ones are received straight into their own."""
_FIRST_PART_BYTES = LARGEST_BYTES
"""Room for the first part of a large frame; it doubles as bytes arrive. Most requests with records are 1 MB,
so they are received without a copy. A length without its bytes takes no more than this."""
_WAITING_AT_MOST = 8
"""Frames that are read ahead while one is processed. Clients have five in flight; TCP slows down a client
that sends more, the broker does not reject it."""
_WAITING_BEFORE_LOGIN = 1
"""The same while the client has not logged in: a login is one message after another, and strangers hold little."""
_PART_BYTES = 1024 * 1024
"""How much of an answer is written at once. The operating system takes up to a few MB; the
transport copies the rest."""
_NOTHING = memoryview(b"")
_SMALLEST_FRAME = 10
"""API key, version, correlation id and the length of a client id."""


class Server(Protocol):
    """What a connection asks of the broker."""

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more connection."""

    def disconnected(self, connection: Connection) -> None:
        """The connection is closed."""

    async def answer(self, frame: memoryview, context_of: Callable[[str | None], Context]) -> bytes | None:
        """The answer to one frame, or None where the client wants none. Disconnect, MalformedRequest."""


class Connection(asyncio.BufferedProtocol):
    """The event loop's protocol object for one socket. `session`: None where the listener asks for no login."""

    def __init__(
        self,
        server: Server,
        number: int,
        session: LoginSession | None,
        config: BrokerConfig,
        buffers: ReceiveBuffers,
        unread: Unread,
    ) -> None:
        self._server = server
        self._config = config
        self._buffers = buffers
        self._unread = unread
        self._number = number
        self.host = ""
        """The client's address."""
        self._session = session
        self._principal = ANONYMOUS
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)
        self._have = 0
        # A frame larger than the buffer, while its bytes arrive: room for its next part, and its whole size.
        self._large: memoryview | None = None
        self._large_have = 0
        self._large_size = 0
        self._frames: deque[memoryview] = deque()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._answer = _NOTHING
        self._answer_size = 0
        self._paused = False
        self._worker: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("",)
        self.host = str(peer[0])
        self._principal = principal_of(transport)
        transport.set_write_buffer_limits(high=SMALL_BYTES)
        if not self._server.admit(self):
            log.warning("refused a connection: %d are open already", self._config.max_connections)
            transport.abort()
            return
        self._worker = asyncio.ensure_future(self._serve())

    def connection_lost(self, _error: Exception | None) -> None:
        """The socket is closed, by either side."""
        self._server.disconnected(self)
        self._unread.drained(self._number)
        self._forget_unread()
        if self._worker is not None:
            self._worker.cancel()

    async def close(self) -> None:
        """Close, and cancel the request in progress; returns when nothing of it runs any more."""
        self._abort()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])

    def get_buffer(self, _hint: int) -> memoryview:
        """The buffer for the next bytes."""
        if self._large is not None:
            return self._large[self._large_have :]
        return self._view[self._have :]

    def buffer_updated(self, count: int) -> None:
        """That many bytes have arrived."""
        if self._large is not None:
            self._large_have += count
            if self._large_have == self._large_size:
                self._received(self._large)
                self._large = None
            elif self._large_have == len(self._large):
                self._large = _larger(self._large, self._large_size)
            return
        self._have += count
        try:
            self._cut()
        except Disconnect as error:
            self._give_up(error)

    def pause_writing(self) -> None:
        """The client is not reading its answers."""
        self._writable.clear()
        self._unread.holds(self._number, self)

    def resume_writing(self) -> None:
        """The client is reading again."""
        self._writable.set()

    @property
    def unknown(self) -> bool:
        """Whether the client has to log in and has not."""
        return self._session is not None and self._session.unknown

    def unsent_bytes(self) -> int:
        """Bytes of the answer that the operating system has not taken yet."""
        buffered = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return len(self._answer) + buffered

    def held_bytes(self) -> int:
        """The memory of the unsent answer: all of it, until all of it is in the transport's buffer."""
        return self.unsent_bytes() - len(self._answer) + (self._answer_size if self._answer else 0)

    def cut_off(self, reason: str) -> None:
        """Close at once and discard what has not been sent."""
        log.warning("closing connection %d from %s: %s", self._number, self.host, reason)
        self._abort()
        # The event loop tells of the end later, and the place is free now: many may come in one of its rounds.
        self.connection_lost(None)

    def _cut(self) -> None:
        at = 0
        while self._have - at >= 6:
            size = int.from_bytes(self._view[at : at + 4], "big", signed=True)
            _judge_size(
                size,
                int.from_bytes(self._view[at + 4 : at + 6], "big", signed=True),
                self._config,
                known=not self.unknown,
            )
            begin, end = at + 4, at + 4 + size
            if end <= self._have:
                self._received(memoryview(bytes(self._view[begin:end])))
                at = end
                continue
            if size > _READ_BYTES - 4:
                self._large = self._buffers.take(min(size, _FIRST_PART_BYTES))
                self._large_size = size
                self._large_have = self._have - begin
                self._large[: self._large_have] = self._view[begin : self._have]
                self._have = at = 0
            break
        if at:
            self._buffer[: self._have - at] = self._buffer[at : self._have]
            self._have -= at

    def _received(self, frame: memoryview) -> None:
        self._frames.append(frame)
        self._arrived.set()
        at_most = _WAITING_BEFORE_LOGIN if self.unknown else _WAITING_AT_MOST
        if len(self._frames) >= at_most and self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    async def _serve(self) -> None:
        try:
            while True:
                while not self._frames:
                    self._arrived.clear()
                    await self._arrived.wait()
                frame = self._frames.popleft()
                if self._paused and len(self._frames) < _WAITING_AT_MOST // 2:
                    self._resume()
                answer = await self._server.answer(frame, self._context)
                self._buffers.give_back(frame)
                if answer is not None:
                    self._answer, self._answer_size = memoryview(answer), len(answer)
                    del answer
                    await self._send()
        except Disconnect as error:
            self._give_up(error)
        except MalformedRequest as error:
            self._give_up(Disconnect(str(error)))
        except asyncio.CancelledError:
            raise
        except Exception:
            # A bug in the broker: this client gets no answer, the others continue.
            log.exception("closing connection %d from %s after an error of the broker", self._number, self.host)
            self._abort()

    async def _send(self) -> None:
        """Write the answer part by part, because the transport's buffer holds a copy."""
        while self._answer and self._transport is not None:
            answer = self._answer
            # An empty rest would keep the whole answer alive, too.
            self._answer = answer[_PART_BYTES:] if len(answer) > _PART_BYTES else _NOTHING
            self._transport.write(answer[:_PART_BYTES])
            del answer
            await self._writable.wait()
        self._answer = _NOTHING
        self._unread.drained(self._number)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _forget_unread(self) -> None:
        """Give up the memory of what has been received: the event loop may know this object for longer."""
        self._large = None
        self._frames.clear()
        self._buffer = bytearray()
        self._view = _NOTHING
        self._have = 0

    def _context(self, client_id: str | None) -> Context:
        session = self._session
        principal = self._principal if session is None else session.principal
        return Context(self._number, client_id or "", self.host, principal, session)

    def _resume(self) -> None:
        self._paused = False
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):  # closing already
                self._transport.resume_reading()

    def _give_up(self, error: Disconnect) -> None:
        log.warning("closing connection %d from %s: %s", self._number, self.host, error.reason)
        if self._transport is not None:
            if error.last_bytes:
                self._transport.write(error.last_bytes)
            self._transport.close()


def _larger(part: memoryview, size: int) -> memoryview:
    room = bytearray(min(size, 2 * len(part)))
    room[: len(part)] = part
    return memoryview(room)


def _judge_size(size: int, api_key: int, config: BrokerConfig, *, known: bool) -> None:
    """Disconnect if this length is not valid for the API. Runs before the frame gets any memory. `known`: whether the
    client has logged in, or need not."""
    limit = (
        config.socket_request_max_bytes
        if api_key == ProduceRequest.API_KEY
        else min(config.small_request_max_bytes, config.socket_request_max_bytes)
    )
    if not known:
        limit = min(limit, UNKNOWN_CLIENT_BYTES)
    if api_key not in REQUESTS:
        raise Disconnect(f"a request for an unknown API, {api_key}")
    if not _SMALLEST_FRAME <= size <= limit:
        raise Disconnect(f"a request of {size} bytes; API {api_key} takes {_SMALLEST_FRAME} to {limit}")
