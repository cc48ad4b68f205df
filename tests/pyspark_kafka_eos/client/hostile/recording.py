"""A recorded conversation of our client with the embedded broker: every answer of it, as it was on the wire.

`python -m tests.pyspark_kafka_eos.client.hostile --record` makes conversation.json anew.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka.protocol.api_header import ResponseClassRegistry

from kafka_core.protocol.messages import api_name

FILE = Path(__file__).parent / "conversation.json"
API_VERSIONS, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 18, 3, 10, 60
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
_KEEPS_ADDRESSES = (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER)

Said = tuple[int, int, bytes]
"""API key, version, and the answer behind its correlation id."""


def response_class(api: int) -> Any:
    """The library's class of an API's answers."""
    return ResponseClassRegistry._response_class_registry[api]


def decoded(api: int, version: int, body: bytes) -> Any:
    """The answer behind its correlation id, read by the library."""
    cls = response_class(api)
    answer = cls[version].decode(memoryview(body)[1 if _flexible(api, version) else 0 :])
    answer._header = None  # the library's compiled reader leaves it unset
    return answer


def encoded(answer: Any, api: int, version: int) -> bytes:
    """The other way."""
    body = bytes(answer.encode(version=version))
    return (b"\0" if _flexible(api, version) else b"") + body


def _flexible(api: int, version: int) -> bool:
    return api != API_VERSIONS and bool(response_class(api).flexible_version_q(version))


class Conversation:
    """The answers of each operation, in their order."""

    def __init__(self, said: dict[str, list[Said]]) -> None:
        self.said = said

    @staticmethod
    def load(path: Path = FILE) -> Conversation:
        """From the file."""
        raw = json.loads(path.read_text())
        return Conversation(
            {
                name: [(api, version, base64.b64decode(body)) for api, version, body in all_of_it]
                for name, all_of_it in raw.items()
            }
        )

    def save(self, path: Path = FILE) -> None:
        """To the file, one answer a line."""
        lines = []
        for name, all_of_it in self.said.items():
            rows = [json.dumps([api, version, base64.b64encode(body).decode()]) for api, version, body in all_of_it]
            lines.append(f"{json.dumps(name)}: [\n" + ",\n".join(rows) + "\n]")
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    def at(self, host: str, port: int, *, login: bool) -> Conversation:
        """The same conversation with a broker at this address. `login`: it offers SASL."""
        return Conversation(
            {
                name: [(api, version, _moved(api, version, body, host, port, login)) for api, version, body in said]
                for name, said in self.said.items()
            }
        )

    def apis(self, name: str) -> dict[int, int]:
        """API key -> how many answers of it an operation gets."""
        found: dict[int, int] = {}
        for api, _, _ in self.said[name]:
            found[api] = found.get(api, 0) + 1
        return found

    def answer(self, name: str, api: int, version: int, number: int) -> bytes | None:
        """The number-th answer to an API within an operation, the last one where there are fewer; of another operation,
        or in another version, where it has none.
        """
        own = [body for key, which, body in self.said.get(name, ()) if (key, which) == (api, version)]
        if own:
            return own[min(number, len(own) - 1)]
        for said in self.said.values():
            for key, which, body in said:
                if (key, which) == (api, version):
                    return body
        for said in self.said.values():
            for key, which, body in said:
                if key == api:
                    try:
                        return encoded(decoded(key, which, body), api, version)
                    except (ValueError, TypeError, struct.error, AttributeError):
                        return None
        return None


def _moved(api: int, version: int, body: bytes, host: str, port: int, login: bool) -> bytes:
    if api == API_VERSIONS and login:
        answer = decoded(api, version, body)
        entry = type(answer.api_keys[0])
        known = {each.api_key for each in answer.api_keys}
        for key in {SASL_HANDSHAKE, SASL_AUTHENTICATE} - known:
            answer.api_keys.append(entry(version=version, api_key=key, min_version=0, max_version=1))
        return encoded(answer, api, version)
    if api not in _KEEPS_ADDRESSES:
        return body
    answer = decoded(api, version, body)
    listed = getattr(answer, "brokers", None) or getattr(answer, "coordinators", None) or [answer]
    for each in listed:
        each.host, each.port = host, port
    return encoded(answer, api, version)


class Recorder:
    """Passes everything on between a client and a broker, and keeps the answers. `moved` makes the broker's addresses
    this one's.
    """

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.said: dict[str, list[Said]] = {}
        self.name = ""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def during(self, name: str, action: Callable[[], object]) -> object:
        """Run an operation; its answers are kept under its name."""
        self.name = name
        self.said[name] = []
        return action()

    def close(self) -> None:
        """Take no more connections."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        # One request at a time: the client's requests queue on this side, and each answer is known to be the oldest
        # one's.
        with client, socket.create_connection(self._target) as broker:
            try:
                while True:
                    request = _frame(client)
                    api, version = struct.unpack_from(">hh", request)
                    broker.sendall(struct.pack(">i", len(request)) + request)
                    answer = _frame(broker)
                    body = answer[4:]
                    self.said.setdefault(self.name, []).append((api, version, body))
                    body = _moved(api, version, body, "127.0.0.1", self.port, login=False)
                    client.sendall(struct.pack(">i", 4 + len(body)) + answer[:4] + body)
            except (OSError, EOFError):
                return


def _frame(link: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(link, 4))
    return _exactly(link, size)


def _exactly(link: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = link.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def name_of(api: int) -> str:
    """Kafka's name of an API."""
    return {SASL_HANDSHAKE: "SaslHandshake", SASL_AUTHENTICATE: "SaslAuthenticate"}.get(api) or api_name(api)
