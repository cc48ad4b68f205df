"""kafka-python's loop over its sockets, with timers and look-ups whose cost does not depend on how many requests are on
their way.

Owns: when a timer runs, and what a cancelled one leaves behind; sockets that are watched, not waited for once.
Does not know: connections, requests.
Invariants:
- A cancelled timer never runs, and holds nothing of what it would have done.
- Cancelled timers are at most half of those that are kept, or `_FEW`.
- A watcher is called while its socket is watched, and never afterwards.
- What is to be done at the end of a round is done before the loop waits again.
"""

from __future__ import annotations

import functools
import heapq
import inspect
import selectors
from collections.abc import Callable, Iterator
from typing import Any

from kafka.net.selector import KernelEvent, NetworkSelector, Task, TaskState, yield_callback

from kafka_core import runtime

_FEW = 64
"""Cancelled timers that are left where they are, however few others there are. With half, small bursts are cleared more
often; double gains nothing.
"""


class _Selector(selectors.DefaultSelector):
    """A faster lookup. Before each wait the library checks whether the socket is registered already. It is
    not, and Python's own lookup formats a description of the socket into the error: 6 % of the thread's time
    while sending."""

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """The socket's registration; KeyError where there is none, ValueError for a closed socket."""
        if self.get_map() is None:
            raise RuntimeError("the selector is closed")
        key: selectors.SelectorKey = self._fd_to_key[self._fileobj_lookup(fileobj)]  # type: ignore[attr-defined]
        return key


_DEFERRED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE
"""Of a function whose call only makes what is to be run."""

_WATCHES_ON = KernelEvent("_watch_on")
"""A watcher's answer to the loop: call it again when there is more."""


class _Watcher(Task):  # type: ignore[misc]
    """What the loop calls whenever a socket can be read, with no step in between."""

    def __init__(self, readable: Callable[[], None], ended: Callable[[], None]) -> None:
        super().__init__(_nothing())
        self._readable, self._ended = readable, ended

    def __call__(self, arg: object = None) -> KernelEvent:
        try:
            self._readable()
        except BaseException:
            # The loop logs it, and the watcher has ended, as any task has that fails.
            self._stack = None
            self._ended()
            raise
        return _WATCHES_ON


def _nothing() -> Iterator[None]:
    yield


class Loop(NetworkSelector):  # type: ignore[misc]
    """The library's loop. Every answer cancels the timer of its request.

    The library searches its list of timers for that and orders it anew, which with 512 requests on their way takes
    longer than the request. Here a cancelled timer stays in the list until its time comes or the list is cleared.
    """

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self._cancelled = 0
        self._at_end: list[Callable[[], None]] = []

    def at_end_of_round(self, action: Callable[[], None]) -> None:
        """Run `action`, which raises nothing, once everything is done that this round of the loop has to do; call on
        its thread.
        """
        self._at_end.append(action)

    def _poll_once(self, timeout: float | None = None) -> None:
        self._end_round()
        super()._poll_once(timeout)
        self._end_round()

    def _end_round(self) -> None:
        while self._at_end:
            self._at_end.pop()()

    def watch(self, sock: Any, readable: Callable[[], None]) -> Task:
        """Call `readable` on the loop's thread whenever the socket can be read, until `unwatch`; call on that thread.

        The library registers and unregisters a socket for each wait, with two calls of the system.
        """
        watcher = _Watcher(readable, functools.partial(self.unregister_event, sock, selectors.EVENT_READ))
        watcher.state = TaskState.WAIT_IO
        self._pending_tasks.add(watcher)
        self.register_event(sock, selectors.EVENT_READ, watcher)
        return watcher

    def unwatch(self, sock: Any, watcher: Task) -> None:
        """Call the watcher no more; a second time changes nothing."""
        if watcher.state not in (TaskState.DONE, TaskState.CANCELLED):
            self.unregister_event(sock, selectors.EVENT_READ)
            self.cancel(watcher)

    def _watch_on(self) -> None:
        self._current.state = TaskState.WAIT_IO

    def call_at(self, when: float, task: Any) -> Task:
        """Run a task or a function at a time (monotonic seconds)."""
        return super().call_at(when, _as_it_runs(task))

    def call_later(self, delay: float, task: Any) -> Task:
        """Run a task or a function after so many seconds."""
        return self.call_at(runtime.monotonic() + delay, task)

    def call_soon(self, task: Any) -> Task:
        """Run a task or a function in the loop's next round."""
        return super().call_soon(_as_it_runs(task))

    def drain(self, scheduled: bool = False) -> None:
        """Run what is ready, and with `scheduled` what is due later, until nothing is left."""
        while self._ready or (scheduled and self._any_timer()):
            self._poll_once()

    def _unschedule(self, task: Any) -> None:
        assert task.state is TaskState.SCHEDULED
        assert task.scheduled_at is not None
        task.scheduled_at = None
        task.state = TaskState.UNSCHEDULED
        self._cancelled += 1
        if self._cancelled > _FEW and 2 * self._cancelled > len(self._scheduled):
            self._scheduled[:] = [(when, each) for when, each in self._scheduled if each.scheduled_at == when]
            heapq.heapify(self._scheduled)
            self._cancelled = 0

    def _schedule_tasks(self) -> None:
        while self._any_timer() and self._scheduled[0][0] <= runtime.monotonic():
            _, task = heapq.heappop(self._scheduled)
            task.scheduled_at = None
            self._add_ready_task(task)

    def _next_scheduled_timeout(self, now: float) -> float | None:
        return self._scheduled[0][0] - now if self._any_timer() else None

    def _any_timer(self) -> bool:
        """Whether a timer is to run. The first one of the list is such a timer then."""
        while self._scheduled and self._scheduled[0][1].scheduled_at != self._scheduled[0][0]:
            heapq.heappop(self._scheduled)
            self._cancelled -= 1
        return bool(self._scheduled)


def _as_it_runs(task: Any) -> Any:
    """A plain function as the library would have it run, found without its questions what else it could be: 40 us of a
    request.
    """
    code = getattr(task, "__code__", None)
    return task if code is None or code.co_flags & _DEFERRED else yield_callback(task)


def open_loop(client_id: str) -> Loop:
    """The loop, not started; a simulation has one of its own."""
    return Loop(client_id=client_id, slow_task_threshold_secs=0, selector=_Selector)
