"""Clients that have not logged in yet: how many may wait, for how long, and who goes where there are too many.

Owns: the connections without a login, in the order in which they came.
Does not know: sockets, what a login is.
Invariants:
- At most `waiting_at_most` connections are without a login, so strangers hold little memory, whatever they send.
- None is without a login for longer than `WITHIN_S`.
- A newcomer is let in: where there is no room, the oldest of the address that has the most goes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

WAITING_AT_MOST = 256
"""Each may have sent a request of 512 KB and has a buffer of 64 KB: 150 MB. Half would turn away clients of a job that
starts with hundreds of tasks; double is more than a broker for tests may take."""
WITHIN_S = 30.0
"""Java's socket.connection.setup.timeout.max.ms, after which its clients give up. Half cuts off clients of a busy
machine; with double strangers keep their places for longer."""


class Stranger(Protocol):
    """The part of a connection that this module uses."""

    host: str

    @property
    def unknown(self) -> bool:
        """Whether it has to log in and has not."""

    def cut_off(self, reason: str) -> None:
        """Close the connection at once."""


class Lobby:
    """The connections of one broker that have not logged in, on one event loop."""

    def __init__(self, max_connections: int) -> None:
        self.waiting_at_most = max(1, min(WAITING_AT_MOST, max_connections // 2))
        self._waiting: dict[Stranger, asyncio.TimerHandle] = {}

    def enter(self, stranger: Stranger) -> None:
        """A connection that has to log in was made."""
        for known in [each for each in self._waiting if not each.unknown]:
            self.leave(known)
        if len(self._waiting) >= self.waiting_at_most:
            self._make_room()
        late = asyncio.get_running_loop().call_later(WITHIN_S, self._late, stranger)
        self._waiting[stranger] = late

    def leave(self, stranger: Stranger) -> None:
        """The connection is closed, or has logged in."""
        late = self._waiting.pop(stranger, None)
        if late is not None:
            late.cancel()

    def _make_room(self) -> None:
        crowded, _ = Counter(each.host for each in self._waiting).most_common(1)[0]
        oldest = next(each for each in self._waiting if each.host == crowded)
        self.leave(oldest)
        oldest.cut_off(f"it has not logged in, and there are {self.waiting_at_most} others; its address has the most")

    def _late(self, stranger: Stranger) -> None:
        self.leave(stranger)
        if stranger.unknown:
            stranger.cut_off(f"it has not logged in within {WITHIN_S:.0f} s")
