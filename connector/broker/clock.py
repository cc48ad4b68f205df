"""The broker's time of day, which tests can move.

Owns: now.
Does not know: who asks. Nothing in the broker asks the operating system for the time of day.
"""

from __future__ import annotations

import time


class Clock:
    """Wall time plus what tests have added. Never goes back."""

    def __init__(self) -> None:
        self._added_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch of Unix."""
        return time.time_ns() // 1_000_000 + self._added_ms

    @property
    def added_ms(self) -> int:
        """How far it is ahead of the machine's."""
        return self._added_ms

    def advance(self, by_ms: int) -> None:
        """Move on. What has become due happens at the broker's next sweep; ValueError for a step back."""
        if by_ms < 0:
            raise ValueError(f"the broker's clock does not go back ({by_ms} ms)")
        self._added_ms += by_ms
