"""Who asks: what a handler knows of the connection that its request came by.

Owns: nothing that changes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Context:
    """One connection's client, as of one request."""

    connection_id: int
    client_id: str
    client_host: str
