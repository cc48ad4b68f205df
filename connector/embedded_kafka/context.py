"""The connection of a request as its handler sees it."""

from __future__ import annotations

from dataclasses import dataclass

from embedded_kafka.security.acls import ANONYMOUS
from embedded_kafka.security.listener_security import LoginSession


@dataclass(frozen=True)
class Context:
    """One connection's client, as of one request. `session`: None where the listener asks for no login."""

    connection_id: int
    client_id: str
    client_host: str
    principal: str = ANONYMOUS
    session: LoginSession | None = None
