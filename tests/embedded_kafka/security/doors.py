"""A broker that asks for a login, and one connection to it whose requests a test sends by itself.

Owns: the listener's files, the messages of PLAIN and of SCRAM as a client makes them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from embedded_kafka import EmbeddedKafka
from embedded_kafka.wire.server import (
    ApiVersionsRequest,
    Message,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    response_class,
)
from tests.pyspark_kafka_eos.client.certificates import Authority

USERS = {"alice": "alice's secret", "bob,=": "a=b,c ü\\\"';"}
TIMEOUT_S = 30


def asking(folder: Path, protocol: str, mechanisms: str = "", *, in_process: bool = True, **more: str) -> EmbeddedKafka:
    """A broker with that listener, not started: in a thread, or in a process of its own. `more`: its settings, with
    underscores for dots."""
    folder.mkdir(exist_ok=True)
    config = {
        "security.protocol": protocol,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    if mechanisms:
        users = folder / "users"
        users.write_text(json.dumps(USERS))
        config |= {"sasl.enabled.mechanisms": mechanisms, "sasl.users.file": str(users)}
    if protocol.endswith("SSL"):
        config |= listener_files(folder)
    return EmbeddedKafka(in_process=in_process, config=config)


def listener_files(folder: Path) -> dict[str, str]:
    """The listener's settings for TLS; the authority of its certificate is `folder`/authority/ca.pem."""
    certificate, key = Authority(folder / "authority").issue("broker")
    store = folder / "broker.pem"
    store.write_text(key.read_text() + certificate.read_text())
    return {"ssl.keystore.location": str(store)}


class Line:
    """One connection; `ask` sends a request and reads its answer."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self, request: Message) -> Any:
        """The answer; ConnectionError where the connection ends instead."""
        answer = self.raw(request)
        return response_class(request.API_KEY).decode(answer, version=request.API_VERSION, header=True)

    def raw(self, request: Message) -> bytes:
        """The answer's header and body."""
        request.with_header(correlation_id=7, client_id="line")
        self._socket.sendall(request.encode(header=True, framed=True))
        head = self._answers.read(4)
        answer = self._answers.read(int.from_bytes(head, "big"))
        if len(head) < 4:
            raise ConnectionError("the connection ended instead of an answer")
        return answer

    def handshake(self, mechanism: str) -> Any:
        """SaslHandshake."""
        return self.ask(SaslHandshakeRequest(version=1, mechanism=mechanism))

    def message(self, message: bytes) -> Any:
        """SaslAuthenticate."""
        return self.ask(SaslAuthenticateRequest(version=2, auth_bytes=message))

    def plain(self, user: str = "alice", password: str = USERS["alice"]) -> Any:
        """A login with PLAIN: the answer to its message."""
        self.handshake("PLAIN")
        return self.message(plain(user, password))

    def works(self) -> bool:
        """Whether the broker serves a request."""
        return self.ask(metadata()).error_code == 0

    def ended(self) -> bool:
        """Whether the broker has closed the connection, with nothing unread before that."""
        try:
            return self._answers.read(1) == b""
        except ConnectionError:
            return True


def metadata() -> Message:
    """A request that needs no topic."""
    return MetadataRequest(version=12, topics=[])


def versions() -> Message:
    """ApiVersions."""
    return ApiVersionsRequest(version=3, client_software_name="line", client_software_version="1")


def plain(user: str, password: str, other: str = "") -> bytes:
    """PLAIN's message."""
    return f"{other}\0{user}\0{password}".encode()


class ScramClient:
    """SCRAM as RFC 5802 has the client; written for these tests alone."""

    def __init__(
        self, user: str, password: str, hash_name: str = "sha256", nonce: str = "fyko+d2lbbFgONRv9qkx"
    ) -> None:
        self._password = password
        self._hash = hash_name
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self.signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes, *, nonce: str | None = None, binding: str = "biws") -> bytes:
        """The final message, behind the broker's answer to the first."""
        parts: Mapping[str, str] = dict(part.split("=", 1) for part in answer.decode().split(","))  # type: ignore[misc]
        assert parts["r"].startswith(self._nonce)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        without = f"c={binding},r={nonce or parts['r']}"
        signed = f"{self._bare},{answer.decode()},{without}".encode()
        proof = bytes(
            a ^ b
            for a, b in zip(
                client_key,
                hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash),
                strict=True,
            )
        )
        self.signature = b"v=" + base64.b64encode(
            hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        )
        return f"{without},p={base64.b64encode(proof).decode()}".encode()
