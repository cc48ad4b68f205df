"""The loop's timers: each runs once, in the order of their times, unless it was cancelled or moved."""

from __future__ import annotations

import functools
import gc
import itertools
import socket
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_core import runtime
from pyspark_kafka_eos.client.net.loop import _FEW, Loop, open_loop

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


def test_a_watcher_is_called_for_each_arrival_until_it_is_unwatched(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    seen: list[bytes] = []
    with ours, theirs:
        watcher = loop.watch(ours, lambda: seen.append(ours.recv(10)))
        for piece in (b"one", b"two"):
            theirs.send(piece)
            loop._poll_once(timeout=0)
        loop.unwatch(ours, watcher)
        loop.unwatch(ours, watcher)
        theirs.send(b"three")
        loop._poll_once(timeout=0)

    assert seen == [b"one", b"two"]
    assert not loop._pending_tasks


def test_a_watcher_is_not_called_once_another_one_has_unwatched_it(loop: Loop) -> None:
    """Both sockets can be read in one round, and the first watcher ends the other connection."""
    pairs = [socket.socketpair() for _ in range(2)]
    seen: list[int] = []
    watchers: list[Any] = []

    def readable(number: int) -> None:
        seen.append(number)
        loop.unwatch(pairs[1 - number][0], watchers[1 - number])

    try:
        for number, (ours, theirs) in enumerate(pairs):
            watchers.append(loop.watch(ours, functools.partial(readable, number)))
            theirs.send(b"x")
        loop._poll_once(timeout=0)
    finally:
        for end in itertools.chain(*pairs):
            end.close()

    assert len(seen) == 1


def test_a_watcher_that_fails_ends_and_the_loop_goes_on(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    ran: list[str] = []

    def readable() -> None:
        ran.append("watcher")
        raise ValueError("a defect")

    with ours, theirs:
        loop.watch(ours, readable)
        theirs.send(b"x")
        loop._poll_once(timeout=0)
        loop.call_soon(lambda: ran.append("next"))
        loop._poll_once(timeout=0)

    assert ran == ["watcher", "next"]
    assert not loop._pending_tasks


def test_functions_methods_and_coroutines_are_run(loop: Loop) -> None:
    ran: list[str] = []

    class Owner:
        def method(self) -> None:
            ran.append("method")

        async def coroutine_method(self) -> None:
            ran.append("coroutine method")

    async def coroutine() -> None:
        ran.append("coroutine")

    def generator() -> Iterator[None]:
        ran.append("generator")
        return
        yield

    owner = Owner()
    for each in (
        lambda: ran.append("function"),
        owner.method,
        owner.coroutine_method,
        coroutine,
        coroutine(),
        generator,
    ):
        loop.call_soon(each)
    loop.drain()

    assert ran == ["function", "method", "coroutine method", "coroutine", "coroutine", "generator"]
