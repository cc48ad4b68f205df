"""The broker's time of day, which tests can move.

Owns: the current time.
Does not know: its callers.
Invariants: no other part of the broker reads the time of day from the operating system.
"""

from __future__ import annotations

from kafka_core import runtime


class Clock:
    """Wall time plus what tests have added. Never goes back."""

    def __init__(self) -> None:
        self._added_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return runtime.time_ns() // 1_000_000 + self._added_ms

    @property
    def added_ms(self) -> int:
        """How far this clock is ahead of the machine's."""
        return self._added_ms

    def advance(self, by_ms: int) -> None:
        """Move forward. The broker handles what became due in its next sweep. ValueError for a step back."""
        if by_ms < 0:
            raise ValueError(f"the broker's clock cannot go back ({by_ms} ms)")
        self._added_ms += by_ms
