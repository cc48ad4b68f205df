"""When a session with a broker is renewed (KIP-368): early enough for a busy loop and for a new token.

Owns: the time that is left to a renewal.
Does not know: credentials, the renewal itself.
Invariants:
- A session of more than 3.1 s is renewed at least `_WORK_MS` before its end, where that is not within a second of its
  beginning.
- No session is renewed within a second of its beginning.

A renewal comes after 85 to 95 % of a session, as in Java. With 1.2 s left of a 6 s token that rule alone leaves 60 ms
for the answers in flight, for a new token and for three requests. The broker then ends the connection. `oauth.tokens`
sees to it that no token is used so late.
"""

from __future__ import annotations

_WORK_MS = 2_000
"""What a renewal may take. With half, Apache Kafka ended 6 connections in 30 s of load with tokens of 6 s on a busy
machine (85 to 95 % alone left even less); double renews sessions of less than a minute more often for nothing.
"""

_LATEST = 0.95
_SHORTEST_MS = 1_300
"""85 % of it are 1.1 s. Apache Kafka refuses a renewal within a second of the login (ILLEGAL_SASL_STATE) and ends the
connection.
"""


def planned_ms(lifetime_ms: int) -> int:
    """The lifetime (ms) to plan with: a renewal comes after 85 to 95 % of it."""
    latest_ms = lifetime_ms - _WORK_MS
    return max(_SHORTEST_MS, min(lifetime_ms, round(latest_ms / _LATEST)))
