"""An event loop without files, sockets and threads, in which nothing is waited for: the broker runs in it on the
caller's thread.

Owns: the loop's own time, which goes on to the next timer where nothing else is left to do for what is asked.
Does not know: the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST_S = 1_000.0
"""Longer than a broker waits for anything: what takes so long waits for ever."""


class StillLoop(asyncio.BaseEventLoop):
    """`run` gives what a coroutine gives, once nothing that it began can go on without time."""

    def __init__(self) -> None:
        super().__init__()
        # asyncio's own loop asks it only where nothing is ready.
        self._selector = self
        self._now = 0.0
        self._until: asyncio.Task[Any] | None = None
        self._deadline = 0.0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result, or its error."""
        self._until = task = self.create_task(work)
        self._deadline = self._now + _LONGEST_S
        self.run_forever()
        return task.result()

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Of a selector: nothing ever comes from outside. `timeout`: seconds to the next timer, 0 where something is
        ready.
        """
        if timeout == 0:
            return []
        if self._until is None or self._until.done():
            self.stop()
        elif timeout is None or self._now > self._deadline:
            raise RuntimeError("the broker waits for something that never comes")
        else:
            self._now += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who could be woken."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """At once, on this thread."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 -- it is the future's
            future.set_exception(error)
        return future

    async def create_server(self, *_: Any, **__: Any) -> Any:
        """Nobody connects."""
        return _Nowhere()


class _Nowhere:
    """A server, and its socket."""

    @property
    def sockets(self) -> list[_Nowhere]:
        return [self]

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def close(self) -> None:
        """Nothing is open."""
