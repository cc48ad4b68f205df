"""kafka-python's loop over its sockets, with timers and look-ups whose cost does not depend on how many requests are on their way.

Owns: when a timer runs, and what a cancelled one leaves behind.
Does not know: connections, requests.
Invariants:
- A cancelled timer never runs, and holds nothing of what it would have done.
- Cancelled timers are at most half of those that are kept, or `_FEW`.
"""

from __future__ import annotations

import heapq
import selectors
from typing import Any

from kafka.net.selector import NetworkSelector, TaskState

from connector import runtime

_FEW = 64
"""Cancelled timers that are left where they are, however few others there are. With half, small bursts are cleared more often; double
gains nothing."""


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


class Loop(NetworkSelector):  # type: ignore[misc]
    """The library's loop. Every answer cancels the timer of its request.

    The library searches its list of timers for that and orders it anew, which with 512 requests on their way takes longer than the
    request. Here a cancelled timer stays in the list until its time comes or the list is cleared.
    """

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self._cancelled = 0

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


def open_loop(client_id: str) -> Loop:
    """The loop, not started; a simulation has one of its own."""
    return Loop(client_id=client_id, slow_task_threshold_secs=0, selector=_Selector)
