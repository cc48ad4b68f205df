"""The connection of a request as its handler sees it, and the exception that closes the connection.

Owns: nothing that changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embedded_kafka.security.door import Session

ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of a client that has shown nothing."""


@dataclass(frozen=True)
class Context:
    """One connection's client, as of one request. `session`: None where the listener asks for no login."""

    connection_id: int
    client_id: str
    client_host: str
    principal: str = ANONYMOUS
    session: Session | None = None


class Disconnect(Exception):
    """The connection is to be closed; `last_bytes` go out before that."""

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        self.reason = reason
        self.last_bytes = last_bytes
        super().__init__(reason, last_bytes)
