"""Several processes of the product in one: state that modules keep for a process is the state of the process that a
thread is of.

Owns: which simulated process a thread belongs to, its end, and the clock of the driver's machine.
Does not know: what a process does.
Invariants:
- A thread that a process starts is of that process.
- A process that has ended has no connection and no memory; the next one begins without either.
- The broker, whose threads are nobody's, has the machine's own clock.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from kafka_core import runtime
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.spark import checkpoint
from pyspark_kafka_eos.spark.sink import foreach_batch
from pyspark_kafka_eos.spark.source import source_group

_numbers = itertools.count(2 * 10**9)
"""No process of the operating system has such a number."""


class ManyProcesses(runtime.Runtime):
    """The runtime in force while cells are played."""

    def __init__(self) -> None:
        self.clock_offset_ns = 0
        self._mine = threading.local()
        self._living: dict[str, int] = {}

    def process_id(self) -> int:
        return getattr(self._mine, "number", 0) or super().process_id()

    def time_ns(self) -> int:
        ours = getattr(self._mine, "number", 0)
        return super().time_ns() + (self.clock_offset_ns if ours else 0)

    def thread(self, target: Callable[..., object], name: str, args: Sequence[Any] = ()) -> runtime.Thread:
        number = getattr(self._mine, "number", 0)

        def run(*given: Any) -> None:
            self._mine.number = number
            target(*given)

        return super().thread(run, name, args)

    def workers(self, threads: int) -> contextlib.AbstractContextManager[Executor]:
        number = getattr(self._mine, "number", 0)
        return ThreadPoolExecutor(threads, initializer=setattr, initargs=(self._mine, "number", number))

    # ---- the processes

    @contextlib.contextmanager
    def within(self, name: str) -> Iterator[None]:
        """In the process of this name: a new one where there is none, or where it was ended."""
        if name not in self._living:
            self._living[name] = next(_numbers)
        before = getattr(self._mine, "number", 0)
        self._mine.number = self._living[name]
        try:
            yield
        finally:
            self._mine.number = before

    def end_all(self) -> None:
        """Every process ends: connections are closed, and what modules keep for a process is gone."""
        for name, number in list(self._living.items()):
            with self.within(name):
                Cluster.close_shared()
            runtime.forget(number)
        self._living.clear()
        # Kept for the whole of a process, not by its number.
        foreach_batch._calls.clear()
        foreach_batch._owners.clear()
        source_group._said.clear()
        checkpoint._open.cache_clear()


@contextlib.contextmanager
def many_processes() -> Iterator[ManyProcesses]:
    """The runtime for the time of the context; all processes end with it."""
    many = ManyProcesses()
    with runtime.replaced(many):
        try:
            yield many
        finally:
            many.end_all()
