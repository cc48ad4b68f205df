"""When a session with a broker is renewed (KIP-368): early enough for a busy loop and for a new token.

Owns: the time that is left to a renewal.
Does not know: credentials, the renewal itself.
Invariants:
- A session of more than 3.1 s is renewed at least `_WORK_MS` before its end, where that is not within a second of its
  beginning.
- No session is renewed within a second of its beginning.

The library renews after 85 to 95 % of a session. With 1.2 s left of a 6 s token, the library's rule leaves 60 ms for
the answers in flight, for a new token and for three requests. The broker then ends the connection. `oauth.tokens` sees
to it that no token is used so late.
"""

from __future__ import annotations

import functools
from typing import Any

_WORK_MS = 2_000
"""What a renewal may take. With half, Apache Kafka ended 6 connections in 30 s of load with tokens of 6 s on a busy
machine (the library's own rule left even less); double renews sessions of less than a minute more often for nothing.
"""

_LIBRARYS_LATEST = 0.95
_SHORTEST_MS = 1_300
"""The library renews after 85 % of it at the earliest, which is 1.1 s. Apache Kafka refuses a renewal within a second
of the login (ILLEGAL_SASL_STATE) and ends the connection.
"""


def renew_in_time(connection: Any) -> None:
    """Have a connection renew its sessions early enough. Call before its first login."""
    sessions = connection._reauth
    sessions.session_updated = functools.partial(_updated, sessions, sessions.session_updated)


def _updated(sessions: Any, updated: Any, lifetime_ms: int | None) -> None:
    updated(lifetime_ms)
    if sessions.session_lifetime_ms > 0:
        sessions.session_lifetime_ms = planned_ms(lifetime_ms or 0)


def planned_ms(lifetime_ms: int) -> int:
    """The lifetime (ms) that the library plans with: it renews after 85 to 95 % of it."""
    latest_ms = lifetime_ms - _WORK_MS
    return max(_SHORTEST_MS, min(lifetime_ms, round(latest_ms / _LIBRARYS_LATEST)))
