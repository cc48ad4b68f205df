"""The broker's listening socket, with TLS or without.

Owns: accepting connections, handshakes of TLS that are under way, and their end.
Does not know: what the connections are for.
Invariants:
- After `close` no handshake is under way.
- At most `_HANDSHAKES_AT_MOST` handshakes are under way, so silent clients hold few sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from kafka_core.errors import StorageInUse

log = logging.getLogger(__name__)

_BACKLOG = 512
_HANDSHAKES_AT_MOST = 256
"""Others wait in the operating system's queue. Half would slow down a test that opens hundreds of connections at once;
more would take memory for clients that send nothing."""
_HANDSHAKE_WITHIN_S = 10.0
"""A client that connects and is silent holds a socket that long. Half would cut off handshakes on a busy machine."""
_WITHOUT_SOCKETS_S = 1.0
"""asyncio's own pause where the process has no file descriptors left."""


class Listener:
    """One address. `made` makes the protocol of a new connection; with TLS it is connected after the handshake."""

    def __init__(self, made: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None) -> None:
        self._made = made
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_HANDSHAKES_AT_MOST)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. StorageInUse where another process has it."""
        try:
            if self._tls is None:
                loop = asyncio.get_running_loop()
                self._server = await loop.create_server(self._made, host, port, backlog=_BACKLOG)
                return int(self._server.sockets[0].getsockname()[1])
            self._socket = socket.create_server((host, port), backlog=_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise StorageInUse(
                "another process listens on this port; stop it or choose another port", {"port": port}
            ) from None
        self._socket.setblocking(False)
        self._accepting = asyncio.ensure_future(self._accept_forever(self._socket, self._tls))
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Accept nothing more, and end the handshakes. Connections that are made stay open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = [*self._handshakes, *([self._accepting] if self._accepting is not None else [])]
        self._accepting = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _accept_forever(self, listening: socket.socket, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionError:
                self._room.release()
                continue
            except OSError as error:
                self._room.release()
                log.warning("cannot accept connections: %s", error)
                await asyncio.sleep(_WITHOUT_SOCKETS_S)
                continue
            task = asyncio.ensure_future(self._shake(accepted, tls))
            self._handshakes.add(task)
            task.add_done_callback(self._shaken)

    async def _shake(self, accepted: socket.socket, tls: ssl.SSLContext) -> None:
        # The client has the reason of a failure by an alert.
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self._made, accepted, ssl=tls, ssl_handshake_timeout=_HANDSHAKE_WITHIN_S
            )

    def _shaken(self, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        self._room.release()
