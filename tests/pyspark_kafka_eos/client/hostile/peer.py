"""A broker that answers from the recording, and lets a case change what it sends; with TLS and with SASL."""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.pyspark_kafka_eos.client.hostile.recording import SASL_AUTHENTICATE, SASL_HANDSHAKE, Conversation
from tests.pyspark_kafka_eos.client.listener import _Scram

USERS = {"alice": "wonderland"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256")
_LARGEST = 1 << 22
_STALL_S = 0.5


class Sent:
    """What goes out in place of one answer: pieces of bytes. `ends`: the stream ends behind them; `stalls`: nothing
    more is sent.
    """

    def __init__(self, *pieces: bytes, ends: bool = False, stalls: bool = False) -> None:
        self.pieces, self.ends, self.stalls = pieces, ends, stalls


Change = Callable[[bytes, int, int], Sent]
"""(frame with its length, API key, version) -> what is sent."""


class Plan:
    """One case: which answers are changed. `always`: all of this API, else only the one after `skip` others."""

    def __init__(
        self, operation: str, api: int, skip: int, change: Change, *, always: bool = False,
        raw: Callable[[bytes], bytes] | None = None,
    ) -> None:  # fmt: skip
        self.operation, self.api, self.skip, self.change, self.always, self.raw = (
            operation,
            api,
            skip,
            change,
            always,
            raw,
        )
        self.delivered = 0
        self.seen: Counter[int] = Counter()


class Peer:
    """Listens on a free port of loopback. `plan` is the case that is being played."""

    def __init__(self, conversation: Conversation, *, tls: ssl.SSLContext | None, login: bool) -> None:
        self._tls, self.login = tls, login
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.conversation = conversation.at("127.0.0.1", self.port, login=login)
        self.plan: Plan | None = None
        self.session_ms = 0
        """How long a login is good for, 0 for ever. The peer ends a connection that asks for anything else
        afterwards.
        """
        self.logins = self.expired = 0
        self.lock = threading.Lock()
        self._closed = threading.Event()
        self._links: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """End every connection."""
        self._closed.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._accepting.join(10)
        for link in list(self._links):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                link = self._socket.accept()[0]
            except OSError:
                return
            self._links.add(link)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.settimeout(60)
            thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
            self._threads.add(thread)
            thread.start()

    def _serve(self, link: socket.socket) -> None:
        try:
            wire: Any = _Wire(link) if self._tls is None else _TlsWire(link, self._tls, self)
            _Link(self, wire).run()
        except (OSError, EOFError, ValueError, struct.error, AssertionError, IndexError):
            pass
        finally:
            # What is still to be read would turn the end of the stream into a reset, which overtakes what was sent.
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_WR)
            link.close()
            self._links.discard(link)
            self._threads.discard(threading.current_thread())

    def stall(self) -> None:
        """Nothing is sent for a while, or until the peer closes."""
        self._closed.wait(_STALL_S)

    def changed(self, frame: bytes, api: int, version: int) -> Sent:
        """What is sent instead of a true answer, by the plan."""
        plan = self.plan
        if plan is None or plan.api != api:
            return Sent(frame)
        with self.lock:
            number = plan.seen[api]
            plan.seen[api] += 1
            if not plan.always and number != plan.skip:
                return Sent(frame)
            plan.delivered += 1
        return plan.change(frame, api, version)


class _Link:
    """One connection."""

    def __init__(self, peer: Peer, wire: Any) -> None:
        self._peer, self._wire = peer, wire
        self._counts: Counter[tuple[str, int]] = Counter()
        self._mechanism = ""
        self._scram: _Scram | None = None
        self._ends_at = float("inf")

    def run(self) -> None:
        while True:
            (size,) = struct.unpack(">i", self._wire.read(4))
            if not 8 <= size < _LARGEST:
                return
            request = self._wire.read(size)
            api, version, correlation = struct.unpack_from(">hhi", request)
            (name,) = struct.unpack_from(">h", request, 8)
            body = self._body(api, version, request[10 + max(name, 0) :])
            if body is None:
                return
            frame = struct.pack(">ii", 4 + len(body), correlation) + body
            sent = self._peer.changed(frame, api, version)
            for piece in sent.pieces:
                self._wire.write(piece)
            if sent.stalls:
                self._peer.stall()
            if sent.ends or sent.stalls:
                return

    def _body(self, api: int, version: int, request: bytes) -> bytes | None:
        if api == SASL_HANDSHAKE:
            (length,) = struct.unpack_from(">h", request)
            self._mechanism = request[2 : 2 + length].decode()
            self._scram = None
            listed = b"".join(struct.pack(">h", len(each)) + each.encode() for each in MECHANISMS)
            return struct.pack(">hi", 0, len(MECHANISMS)) + listed
        if api == SASL_AUTHENTICATE:
            (length,) = struct.unpack_from(">i", request)
            answer = self._authenticated(request[4 : 4 + length])
            session_ms = self._peer.session_ms
            self._peer.logins += 1
            self._ends_at = time.monotonic() + session_ms / 1000 if session_ms else float("inf")
            lifetime = struct.pack(">q", session_ms) if version >= 1 else b""
            return struct.pack(">hhi", 0, -1, len(answer)) + answer + lifetime
        if time.monotonic() > self._ends_at:
            self._peer.expired += 1
            return None
        plan = self._peer.plan
        name = "open" if plan is None else plan.operation
        number = self._counts[name, api]
        self._counts[name, api] += 1
        return self._peer.conversation.answer(name, api, version, number)

    def _authenticated(self, token: bytes) -> bytes:
        if self._mechanism == "PLAIN":
            return b""
        if self._scram is None:
            self._scram = _Scram(self._mechanism, _Users(), token.decode())  # type: ignore[arg-type]
            return self._scram.challenge() or b""
        return self._scram.verdict(token.decode()) or b""


class _Users:
    """What `_Scram` asks its listener for."""

    iterations = "4096"

    def __init__(self) -> None:
        self.by_token: list[bool] = []

    def password_of(self, name: str) -> str | None:
        return USERS.get(name)


class _Wire:
    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._link.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def write(self, data: bytes) -> None:
        self._link.sendall(data)


class _TlsWire:
    """TLS in memory, so that its records can be changed, too."""

    def __init__(self, link: socket.socket, context: ssl.SSLContext, peer: Peer) -> None:
        self._link, self._peer = link, peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._do(self._tls.do_handshake)

    def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            left = count - len(data)
            piece = self._do(functools.partial(self._tls.read, left))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), 1 << 16):
            self._do(functools.partial(self._tls.write, data[at : at + (1 << 16)]))

    def _do(self, action: Callable[[], Any]) -> Any:
        while True:
            try:
                found = action()
                self._flush()
                return found
            except ssl.SSLWantReadError:
                self._flush()
                piece = self._link.recv(1 << 16)
                if not piece:
                    raise EOFError from None
                self._incoming.write(piece)
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()
                raise EOFError from None

    def _flush(self) -> None:
        if self._outgoing.pending:
            data = self._outgoing.read()
            plan = self._peer.plan
            if plan is not None and plan.raw is not None:
                with self._peer.lock:
                    mine = plan.seen[-1] == plan.skip or plan.always
                    plan.seen[-1] += 1
                    plan.delivered += mine
                if mine:
                    data = plan.raw(data)
            self._link.sendall(data)


def settle(peer: Peer, plan: Plan | None) -> None:
    """The next case begins, or none."""
    with peer.lock:
        peer.plan = plan
