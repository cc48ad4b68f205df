"""Time in tests where nothing becomes true by waiting: brokers that are values on this thread.

Owns: a runtime whose pauses take no time and move its clock.
Does not know: threads and sockets. Where another thread has to do something in the meantime, a pause must be one.
"""

from __future__ import annotations

from kafka_core import runtime


class Skipping(runtime.Runtime):
    """The operating system's, but what would have been slept has gone by at once. A pause that left the clock where it
    is would not end a loop with a deadline any sooner: the loop asks again without a pause until the deadline comes.
    """

    def __init__(self) -> None:
        self._skipped_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._skipped_s

    def sleep(self, seconds: float) -> None:
        self._skipped_s += seconds
