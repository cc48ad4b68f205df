"""A conversation over HTTP that ends in time, whatever the other side does.

Owns: the watch over the sockets of one conversation, which are shut down when its time is over.
Does not know: what is said.
Invariants: who waits for a byte of it does not wait beyond the limit, also where each single byte comes in time: a
socket's own timeout begins again with each one.

Behind a proxy the TLS handshake is not watched: the tunnel is the library's.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
import ssl
import urllib.request
from typing import Any

from kafka_core import runtime


class TimeLimit:
    """Its sockets are shut down after `seconds`; `over` says that they were. A context, whose end gives them free."""

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._seconds = seconds
        self._done = runtime.event()
        self._changing = runtime.lock()
        self._watched: list[socket.socket] = []

    def __enter__(self) -> TimeLimit:
        runtime.thread(self._wait, "kafka-eos-time-limit").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        with self._changing:
            for each in self._watched:
                each.close()
            self._watched.clear()

    def watch(self, sock: socket.socket) -> None:
        """Shut this one down, too, by a descriptor of its own: TLS takes the socket's away."""
        with self._changing:
            if self.over:
                raise TimeoutError("its time is over")
            self._watched.append(sock.dup())

    def handlers(self, context: ssl.SSLContext | None) -> tuple[urllib.request.BaseHandler, ...]:
        """For an opener of urllib: its connections, of which this is the limit. `context`: of TLS, None without."""
        return (_Plain(self), *([_Tls(self, context)] if context is not None else []))

    def _wait(self) -> None:
        if self._done.wait(self._seconds):
            return
        with self._changing:
            self.over = True
            for each in self._watched:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


class _PlainConnection(http.client.HTTPConnection):
    def __init__(self, limit: TimeLimit, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._limit = limit

    def connect(self) -> None:
        super().connect()
        self._limit.watch(self.sock)


class _TlsConnection(http.client.HTTPSConnection):
    def __init__(self, limit: TimeLimit, host: str, *, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(host, context=context, **options)
        self._limit, self._tls, self._has_tunnel = limit, context, False

    def set_tunnel(self, *given: Any, **named: Any) -> None:
        super().set_tunnel(*given, **named)
        self._has_tunnel = True

    def connect(self) -> None:
        if self._has_tunnel:
            super().connect()
            self._limit.watch(self.sock)
            return
        http.client.HTTPConnection.connect(self)
        self._limit.watch(self.sock)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, limit: TimeLimit) -> None:
        super().__init__()
        self._limit = limit

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_PlainConnection, self._limit), req)


class _Tls(urllib.request.HTTPSHandler):
    def __init__(self, limit: TimeLimit, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._limit, self._tls = limit, context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_TlsConnection, self._limit, context=self._tls), req)
