"""The loop's timers: each runs once, in the order of their times, unless it was cancelled or moved."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector import runtime
from connector.client.loop import _FEW, Loop, open_loop

SOON_S = 0.001
LATER_S = 3_600.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = open_loop("t")
    yield made
    made.close()


def test_timers_run_in_the_order_of_their_times(loop: Loop) -> None:
    ran: list[int] = []
    now = runtime.monotonic()
    for number in (3, 1, 2):
        loop.call_at(now + number * SOON_S, lambda number=number: ran.append(number))

    loop.drain(scheduled=True)

    assert ran == [1, 2, 3]


def test_a_cancelled_timer_never_runs_and_keeps_no_loop_awake(loop: Loop) -> None:
    ran: list[str] = []
    cancelled = loop.call_later(SOON_S, lambda: ran.append("cancelled"))
    loop.call_later(2 * SOON_S, lambda: ran.append("kept"))
    loop.cancel(cancelled)

    loop.drain(scheduled=True)
    loop.cancel(loop.call_later(LATER_S, lambda: None))
    # Nothing is left to wait for.
    loop.drain(scheduled=True)

    assert ran == ["kept"]
    assert loop._next_scheduled_timeout(runtime.monotonic()) is None


def test_a_timer_that_is_moved_runs_once_at_its_new_time(loop: Loop) -> None:
    ran: list[str] = []
    now = runtime.monotonic()
    moved = loop.call_at(now + SOON_S, lambda: ran.append("moved"))
    loop.reschedule(now + 3 * SOON_S, moved)
    loop.reschedule(now + 3 * SOON_S, moved)
    loop.call_at(now + 2 * SOON_S, lambda: ran.append("between"))

    loop.drain(scheduled=True)

    assert ran == ["between", "moved"]


def test_what_a_cancelled_timer_would_have_used_is_free_at_once(loop: Loop) -> None:
    class Answer:
        pass

    answer = Answer()
    gone = weakref.ref(answer)

    def late(held: Answer = answer) -> None:
        raise AssertionError(held)

    timer = loop.call_later(LATER_S, late)
    del answer, late
    loop.cancel(timer)
    gc.collect()

    assert gone() is None


def test_cancelled_timers_do_not_pile_up_whatever_their_time_is(loop: Loop) -> None:
    kept = [loop.call_later(LATER_S, lambda: None) for _ in range(10)]
    for _ in range(10_000):
        loop.cancel(loop.call_later(LATER_S / 2, lambda: None))

    assert len(loop._scheduled) <= len(kept) + _FEW + 1
    assert len(loop._pending_tasks) == len(kept)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["new", "cancel", "move"]), st.integers(0, 400)), max_size=400))
def test_each_timer_that_is_left_runs_once_in_order_whatever_was_cancelled_and_moved(
    steps: list[tuple[str, int]],
) -> None:
    loop = open_loop("t")
    ran: list[int] = []
    timers: list[Any] = []
    expected: dict[int, float] = {}
    # All of them are due, so nothing waits.
    now = time.monotonic() - 1_000
    try:
        for kind, value in steps:
            if kind == "new":
                number = len(timers)
                timers.append(loop.call_at(now + value, lambda number=number: ran.append(number)))
                expected[number] = now + value
            elif timers and value % len(timers) in expected:
                number = value % len(timers)
                if kind == "cancel":
                    loop.cancel(timers[number])
                    del expected[number]
                else:
                    loop.reschedule(now + value, timers[number])
                    expected[number] = now + value
        loop.drain(scheduled=True)
    finally:
        loop.close()

    assert sorted(ran) == sorted(expected)
    assert [expected[number] for number in ran] == sorted(expected.values())
