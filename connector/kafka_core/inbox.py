"""What one thread waits for and others bring, in the order in which it comes: `queue.SimpleQueue` with the runtime's
waiting.

Owns: the waiting for the next thing.
Does not know: what is brought.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from kafka_core import runtime

T = TypeVar("T")


class Inbox(Generic[T]):
    """Of one reader and any number of writers."""

    def __init__(self) -> None:
        self._things: deque[T] = deque()
        self._arrived = runtime.condition()

    def bring(self, thing: T) -> None:
        """Put something in, from any thread."""
        with self._arrived:
            self._things.append(thing)
            self._arrived.notify()

    def get(self, timeout: float) -> T | None:
        """The next thing; None where nothing came within `timeout` seconds."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._things, timeout)
            return self._things.popleft() if self._things else None


__all__ = ["Inbox"]
