"""One thread with an asyncio loop, on which everything of a cluster's connections happens.

Owns: the thread, how other threads hand work to it, when a turn of work is over.
Does not know: connections, requests.
Invariants:
- Work of one thread runs in the order in which it was handed over.
- What is to be done at the end of a turn is done before the loop waits again.
- The thread does not keep its process alive, and no work of another thread is waited for on it.

A turn is what the loop calls of ours at once: the work that was handed over, a timer, the bytes of a socket. Everything
that a turn asks of one connection leaves in one call of the system at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kafka_core import runtime

T = TypeVar("T")

Action = Callable[[], object]

_LAST_ROUNDS = 3
"""Of the loop, for what closing connections leaves to its next rounds. asyncio needs two with TLS."""


def open_loop() -> asyncio.AbstractEventLoop:
    """asyncio's loop, not running; a simulation has one of its own."""
    return asyncio.SelectorEventLoop()


class Loop:
    """The thread and its loop. `run_soon`, `run` and `stop` are for any thread, the rest for the loop's own."""

    def __init__(self, name: str) -> None:
        self.asyncio = open_loop()
        self.ended = False
        self._handed_over: deque[Action] = deque()
        self._woken = False
        self._at_end: list[Action] = []
        self._in_turn = False
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._thread = runtime.thread(self._run, f"{name}-network")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    # ---- from any thread

    def run_soon(self, action: Action) -> None:
        """Have `action` run in a turn on the loop's thread. RuntimeError where it has ended."""
        if self.ended:
            raise RuntimeError("the loop has ended")
        self._handed_over.append(action)
        # One wake-up is enough for all that is handed over before the loop looks: `_take` clears the flag first.
        if not self._woken:
            self._woken = True
            self.asyncio.call_soon_threadsafe(self._take)

    def run_if_open(self, action: Action) -> None:
        """The same for a result: a loop that has ended has nobody who waits for it."""
        with contextlib.suppress(RuntimeError):
            self.run_soon(action)

    def stop(self, timeout_s: float) -> None:
        """End the thread once its turn is over, and give back what the loop has of the system. A thread that does not
        end in time keeps it.
        """
        with contextlib.suppress(RuntimeError):
            self.asyncio.call_soon_threadsafe(self.asyncio.stop)
        self._thread.join(timeout_s)

    # ---- on the loop's thread

    def turn(self, action: Callable[..., object], *arguments: Any) -> None:
        """Do it in a turn: a part of the one that is going on, else one of its own."""
        if self._in_turn:
            action(*arguments)
            return
        self._in_turn = True
        try:
            action(*arguments)
        finally:
            self._in_turn = False
            self._finish()

    def at_end_of_turn(self, action: Action) -> None:
        """Have `action`, which raises nothing, run when this turn is over; in a coroutine, before the loop waits."""
        self._at_end.append(action)
        if not self._in_turn and len(self._at_end) == 1:
            self.asyncio.call_soon(self._finish)

    def later(self, delay_s: float, action: Action) -> asyncio.TimerHandle:
        """Have `action` run in a turn after so many seconds."""
        return self.asyncio.call_later(delay_s, self.turn, action)

    def task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """The coroutine as a task, which is kept until it is done."""
        task = self.asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def beside(self, work: Callable[[], T]) -> T:
        """The result of work that waits for others, done on a thread of its own, which outlives its waiter."""
        future: asyncio.Future[T] = self.asyncio.create_future()

        def do() -> None:
            try:
                settle = _settling(future.set_result, work())
            except BaseException as error:  # noqa: BLE001 -- its waiter would wait for ever
                settle = _settling(future.set_exception, error)
            self.run_if_open(lambda: future.done() or settle())

        runtime.thread(do, "kafka-eos-beside").start()
        return await future

    # ---- the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.asyncio)
        try:
            self.asyncio.run_forever()
            self._end_tasks()
            for _ in range(_LAST_ROUNDS):
                self.asyncio.run_until_complete(asyncio.sleep(0))
        finally:
            self.ended = True
            self.asyncio.close()

    def _end_tasks(self) -> None:
        tasks = list(self._tasks)
        for each in tasks:
            each.cancel()
        if tasks:
            self.asyncio.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _take(self) -> None:
        self._woken = False
        self.turn(self._take_all)

    def _take_all(self) -> None:
        while self._handed_over:
            action = self._handed_over.popleft()
            try:
                action()
            except Exception as error:  # noqa: BLE001 -- what others have handed over is done all the same
                self.asyncio.call_exception_handler({"message": "work that was handed over failed", "exception": error})

    def _finish(self) -> None:
        while self._at_end:
            self._at_end.pop()()


def _settling(how: Callable[[Any], object], value: Any) -> Action:
    return lambda: how(value)
