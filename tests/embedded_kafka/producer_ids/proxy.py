"""A proxy in front of ZooKeeper that loses one write or its answer, or lets something happen just before it.

It reads as much of ZooKeeper's protocol as it takes to know a write: frames, and the header's xid and type.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

CREATE, SET_DATA = 1, 5


class LosingProxy:
    """`lose` is "request" or "answer": the next write, or the answer to it, is lost and the connection cut.

    `before_write` is called once, when the next write has come from the client and not yet gone to the server.
    `fired` counts the connections cut.
    """

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.lose = ""
        self.before_write: Callable[[], object] | None = None
        self.fired = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cuts every connection and takes no new ones."""
        for each in (self._listener, *self._sockets):
            _cut(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                awaited: set[int] = set()
                for run in (self._requests, self._answers):
                    threading.Thread(target=run, args=(client, server, awaited), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, awaited: set[int]) -> None:
        with contextlib.suppress(OSError), contextlib.closing(client), contextlib.closing(server):
            server.sendall(_frame(client))  # asks for a session; has no header
            while True:
                frame = _frame(client)
                xid, kind = struct.unpack_from(">ii", frame, 4)
                if kind in (CREATE, SET_DATA):
                    before, self.before_write = self.before_write, None
                    if before is not None:
                        before()
                    if self.lose == "request":
                        return self._cut_both(client, server)
                    if self.lose == "answer":
                        awaited.add(xid)
                server.sendall(frame)

    def _answers(self, client: socket.socket, server: socket.socket, awaited: set[int]) -> None:
        with contextlib.suppress(OSError), contextlib.closing(client), contextlib.closing(server):
            client.sendall(_frame(server))
            while True:
                frame = _frame(server)
                if struct.unpack_from(">i", frame, 4)[0] in awaited:
                    return self._cut_both(client, server)
                client.sendall(frame)

    def _cut_both(self, client: socket.socket, server: socket.socket) -> None:
        self.lose = ""
        self.fired += 1
        _cut(client)
        _cut(server)


def _cut(connection: socket.socket) -> None:
    # close() alone does not wake a thread that reads from it.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _frame(source: socket.socket) -> bytes:
    head = _read(source, 4)
    return head + _read(source, struct.unpack(">i", head)[0])


def _read(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return data
