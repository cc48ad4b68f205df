"""A blocking client of one connection, for requests that no well-behaved client would send.

Owns: framing, correlation ids, and the way from plain dictionaries to kafka-python's messages (and those of ours) and
back.
Does not know: retries, what an answer means, anything of our own client.
Invariants: a request goes out in exactly the version that was asked for; after the broker has hung up (`HungUp`) the
next request starts with a new connection.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer

from embedded_kafka.wire import consumer_groups
from kafka_core.protocol import api_versions

Answer = dict[str, Any]

_ANSWERS_WITHIN_S = 60.0
"""A broker beside two others and their tests on two cores may pause for seconds; a hang shows a minute later."""
_MODULES = (api_versions, consumer_groups, producer, consumer, metadata, admin)


class HungUp(Exception):
    """The broker closed the connection instead of answering, or left the request without an answer."""


class Connection:
    """To one broker, made when it is first needed."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._address = (host, int(port))
        self._socket: socket.socket | None = None
        self._correlation = 0
        self.answers_within_s = _ANSWERS_WITHIN_S
        """A request that has no answer by then has none: HungUp."""

    def call(self, api: str, version: int, **fields: Any) -> Answer:
        """One request and its answer, both as plain dictionaries; HungUp."""
        self.send(api, version, **fields)
        assert self._socket is not None
        try:
            (length,) = struct.unpack(">i", self._read(4))
            frame = self._read(length)
        except (OSError, HungUp) as error:
            self.close()
            raise HungUp(str(error)) from error
        response = _message(f"{api}Response")
        if api == "ApiVersions":
            (code,) = struct.unpack_from(">h", frame, 4)
            # The library would read any refusal as if it came in version 0, as the one of an unknown version does.
            if code not in (0, _UNSUPPORTED_VERSION):
                return {"error_code": code}
            version = 0 if code else version
        decoded = response.decode(frame, version=version, header=True)
        answered = decoded.header.correlation_id
        assert answered == self._correlation, f"answer {answered} to request {self._correlation}"
        return decoded.to_dict(json=False)  # type: ignore[no-any-return]

    def send(self, api: str, version: int, **fields: Any) -> None:
        """A request whose answer nobody awaits (acks=0)."""
        self._correlation += 1
        cls = _message(f"{api}Request")
        told = min(version, cls.max_version)
        request = _filled(cls, told, fields)
        request.with_header(correlation_id=self._correlation, client_id="script")
        frame = bytearray(request.encode(header=True, framed=True))
        struct.pack_into(">h", frame, 6, version)
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=_ANSWERS_WITHIN_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(self.answers_within_s)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise HungUp(str(error)) from error

    def close(self) -> None:
        """The next request makes a new one."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _read(self, count: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise HungUp(f"after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)


def codes(answer: Any) -> Iterator[int]:
    """Every error code of an answer."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key.endswith("error_code"):
                yield value
            else:
                yield from codes(value)
    elif isinstance(answer, list):
        for one in answer:
            yield from codes(one)


_UNSUPPORTED_VERSION = 35


def _message(name: str) -> Any:
    for module in _MODULES:
        if hasattr(module, name):
            return getattr(module, name)
    raise KeyError(name)


def _filled(cls: Any, version: int, fields: dict[str, Any]) -> Any:
    """The message with every dictionary, also in lists, made into the nested structure of its field."""
    values = {}
    for name, value in fields.items():
        field = cls._struct.fields[name]
        if field.is_struct_array() and value is not None:
            value = [_filled(field.data_class, version, one) for one in value]
        elif field.is_struct() and value is not None:
            value = _filled(field.data_class, version, value)
        values[name] = value
    return cls(version=version, **values)
