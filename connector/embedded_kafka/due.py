"""The time of each key's next check, so that the cost of a sweep follows the keys that are due, not all keys.

Owns: one time per key, the earliest that was requested.
Does not know: what a key stands for, and whether it is really due: its time may have been postponed.
Invariants:
- A key comes up for a check at the requested time or earlier.
- The caller then requests the next check for the time that is true by then. So postponing a time is free.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

_Key = TypeVar("_Key", str, int)

_STALE_AT_LEAST = 1_000
"""Entries superseded by an earlier time for their key. A smaller heap is not worth rebuilding; a rebuild of a
larger one is amortised over as many calls of `by`."""


class DueTimes(Generic[_Key]):
    """Keys and the times by which they are to be checked."""

    def __init__(self) -> None:
        self._by: dict[_Key, int] = {}
        self._heap: list[tuple[int, _Key]] = []

    def __len__(self) -> int:
        return len(self._by)

    def by(self, key: _Key, at_ms: int) -> None:
        """Check the key at that time, or earlier if an earlier check was requested before."""
        known = self._by.get(key)
        if known is not None and known <= at_ms:
            return
        self._by[key] = at_ms
        heapq.heappush(self._heap, (at_ms, key))
        if len(self._heap) > 2 * len(self._by) + _STALE_AT_LEAST:
            self._heap = [(at, each) for each, at in self._by.items()]
            heapq.heapify(self._heap)

    def due(self, now_ms: int, at_most: int | None = None) -> list[_Key]:
        """The keys whose time has come, earliest first; their times are cleared. Keys beyond `at_most` stay due."""
        found: list[_Key] = []
        while self._heap and self._heap[0][0] <= now_ms and (at_most is None or len(found) < at_most):
            at_ms, key = heapq.heappop(self._heap)
            if self._by.get(key) == at_ms:
                del self._by[key]
                found.append(key)
        return found
