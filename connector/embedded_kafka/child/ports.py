"""Free ports on the loopback interface."""

from __future__ import annotations

import random
import socket

from embedded_kafka.child.errors import LocalError

# Below the range from which Linux (32768) and macOS (49152) take ports for outgoing connections: a killed
# broker's port must be free for its restart, and a client's reconnect could otherwise occupy it.
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 1_000


BROKERS_AT_MOST = 9
"""Of the embedded cluster. No test needs more, and each has connections, a listener and coordinators of its own."""


def free_ports(count: int) -> list[int]:
    """`count` different ports of 127.0.0.1 on which no process listened just now.

    They are drawn at random, so two processes that ask at the same time rarely get the same ones.
    """
    ports: list[int] = []
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, _HIGHEST)
        if port not in ports and _is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise LocalError(f"Could not find {count} free ports between {_LOWEST} and {_HIGHEST} on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Servers set this option too; without it a port with closing connections would look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def ports_from(first: int, count: int) -> list[int]:
    """The ports of so many servers: the first and those behind it; 0 stands for free ones."""
    return [first + number if first else 0 for number in range(count)]
