"""When to look at which key again, so that a sweep costs what is due, and not what exists.

Owns: one time per key, the earliest that was asked for.
Does not know: what a key stands for, and whether it is really due: its time may have been put off meanwhile.
Invariants: a key is looked at by the time asked for, or earlier; the looker asks again with the time that is true then.
Putting a time off therefore costs nothing: the entry stays where it is.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

_Key = TypeVar("_Key", str, int)

_STALE_AT_LEAST = 1_000
"""Entries of keys that were asked for earlier since. A heap below this size is not worth tidying; above it, the tidying is paid
for by as many `by`s."""


class DueTimes(Generic[_Key]):
    """Keys and the times by which they are to be looked at."""

    def __init__(self) -> None:
        self._by: dict[_Key, int] = {}
        self._heap: list[tuple[int, _Key]] = []

    def __len__(self) -> int:
        return len(self._by)

    def by(self, key: _Key, at_ms: int) -> None:
        """Look at it then, or earlier if that was asked for before."""
        known = self._by.get(key)
        if known is not None and known <= at_ms:
            return
        self._by[key] = at_ms
        heapq.heappush(self._heap, (at_ms, key))
        if len(self._heap) > 2 * len(self._by) + _STALE_AT_LEAST:
            self._heap = [(at, each) for each, at in self._by.items()]
            heapq.heapify(self._heap)

    def due(self, now_ms: int, at_most: int | None = None) -> list[_Key]:
        """The keys whose time has come, the earliest first; they have no time any more. The rest stays due."""
        found: list[_Key] = []
        while self._heap and self._heap[0][0] <= now_ms and (at_most is None or len(found) < at_most):
            at_ms, key = heapq.heappop(self._heap)
            if self._by.get(key) == at_ms:
                del self._by[key]
                found.append(key)
        return found
