"""Just enough of two wire protocols to check whether a server is up.

Written by hand, so that the harness shares no line with the client that is tested against it.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

# A server on the loopback interface that needs longer is not ready.
_TIMEOUT_S = 2.0
_METADATA_KEY, _METADATA_VERSION = 3, 1
# ZooKeeper's operation and error codes (zookeeper.jute, KeeperException.Code), and the requested session.
_EXISTS, _CLOSE_SESSION, _NO_NODE, _SESSION_MS = 3, -11, -101, 4000
# An answer for a handful of brokers takes a few hundred bytes; more than this is not an answer from Kafka.
_MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True)
class ClusterView:
    """One broker's view of its cluster."""

    brokers: frozenset[int]
    controller_known: bool


def describe(host: str, port: int) -> ClusterView:
    """Asks a broker by Metadata v1 for no topics; raises OSError when it does not answer."""
    client = b"local"
    body = struct.pack(f">hhih{len(client)}si", _METADATA_KEY, _METADATA_VERSION, 1, len(client), client, 0)
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        answer = _exchange(connection, body)
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
    return ClusterView(frozenset(brokers), controller >= 0)


def zookeeper_has(host: str, port: int, path: str) -> bool:
    """Asks a ZooKeeper server whether a node exists; raises OSError when it does not answer."""
    open_session = struct.pack(">iqiqi16s", 0, 0, _SESSION_MS, 0, 16, bytes(16))
    name = path.encode()
    exists = struct.pack(f">iii{len(name)}s?", 1, _EXISTS, len(name), name, False)
    close = struct.pack(">ii", 2, _CLOSE_SESSION)
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        granted = _exchange(connection, open_session)
        if struct.unpack_from(">i", granted, 4)[0] <= 0:
            raise ConnectionError("ZooKeeper did not grant a session")
        error: int = struct.unpack_from(">i", _exchange(connection, exists), 12)[0]
        _exchange(connection, close)
    if error not in (0, _NO_NODE):
        raise ConnectionError(f"ZooKeeper answered {error}")
    return error == 0


def _exchange(connection: socket.socket, request: bytes) -> bytes:
    """One request, one answer; in both protocols each starts with its length."""
    connection.sendall(struct.pack(">i", len(request)) + request)
    (length,) = struct.unpack(">i", read_exactly(connection, 4))
    if not 0 < length <= _MAX_ANSWER_BYTES:
        raise ConnectionError(f"an answer of {length} bytes")
    return read_exactly(connection, length)


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes, in as many pieces as they come; ConnectionError where the other end is gone before."""
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("closed before the answer was complete")
        data += piece
    return data
