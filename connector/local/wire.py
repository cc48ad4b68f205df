"""Just enough of two wire protocols to know whether a server is up.

Written out by hand, so that the harness shares no line with the client that is tested against it.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

# A server on the loopback interface that needs longer is not ready.
_TIMEOUT_S = 2.0
_METADATA_KEY, _METADATA_VERSION = 3, 1
# An answer for a handful of brokers takes a few hundred bytes; more than this is not an answer from Kafka.
_MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True)
class Cluster:
    """What one broker says of its cluster."""

    brokers: frozenset[int]
    controller_known: bool


def describe(host: str, port: int) -> Cluster:
    """Asks a broker by Metadata v1 for no topics; raises OSError when it does not answer."""
    client = b"local"
    body = struct.pack(f">hhih{len(client)}si", _METADATA_KEY, _METADATA_VERSION, 1, len(client), client, 0)
    answer = _ask(host, port, struct.pack(">i", len(body)) + body)
    at = 4  # the correlation id
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    brokers: set[int] = set()
    for _ in range(count):
        node, host_length = struct.unpack_from(">ih", answer, at)
        at += 6 + host_length + 4
        (rack_length,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(0, rack_length)
        brokers.add(node)
    (controller,) = struct.unpack_from(">i", answer, at)
    return Cluster(frozenset(brokers), controller >= 0)


def zookeeper_answers(host: str, port: int) -> None:
    """Opens a ZooKeeper session of 1 s and leaves; raises OSError when the server does not grant it."""
    request = struct.pack(">iqiqi16s", 0, 0, 1000, 0, 16, bytes(16))
    answer = _ask(host, port, struct.pack(">i", len(request)) + request)
    (granted_ms,) = struct.unpack_from(">i", answer, 4)
    if granted_ms <= 0:
        raise ConnectionError("ZooKeeper did not grant a session")


def _ask(host: str, port: int, request: bytes) -> bytes:
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(request)
        (length,) = struct.unpack(">i", _read(connection, 4))
        if not 0 < length <= _MAX_ANSWER_BYTES:
            raise ConnectionError(f"an answer of {length} bytes")
        return _read(connection, length)


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("closed before the answer was complete")
        data += piece
    return data
