"""The loop's thread: work that is handed over runs in its order, and what it asks leaves at the end of its turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pyspark_kafka_eos.client.net.loop import Loop

WAIT_S = 30.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop("t")
    made.start()
    yield made
    made.stop(WAIT_S)


def all_done(loop: Loop) -> None:
    """Wait until everything that was handed over so far has run."""
    done = threading.Event()
    loop.run_soon(done.set)
    assert done.wait(WAIT_S)


def test_work_of_one_thread_runs_in_its_order_on_the_loops_thread(loop: Loop) -> None:
    ran: list[tuple[int, str]] = []
    for number in range(1_000):
        loop.run_soon(lambda number=number: ran.append((number, threading.current_thread().name)))  # type: ignore[misc]
    all_done(loop)

    assert ran == [(number, "t-network") for number in range(1_000)]


def test_work_of_many_threads_is_never_left_lying(loop: Loop) -> None:
    ran: list[int] = []

    def hand_over() -> None:
        for number in range(2_000):
            loop.run_soon(lambda number=number: ran.append(number))  # type: ignore[misc]

    threads = [threading.Thread(target=hand_over) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAIT_S)
    all_done(loop)

    assert len(ran) == 8_000


def test_what_a_turn_leaves_to_its_end_runs_once_behind_all_of_it(loop: Loop) -> None:
    ran: list[str] = []

    def part(name: str) -> None:
        ran.append(name)
        loop.at_end_of_turn(lambda: ran.append(f"end of {name}"))

    def turn() -> None:
        loop.turn(part, "inner")
        part("outer")

    loop.run_soon(turn)
    all_done(loop)

    assert ran[:2] == ["inner", "outer"]
    assert sorted(ran[2:]) == ["end of inner", "end of outer"]


def test_the_end_of_a_turn_comes_for_a_coroutine_too(loop: Loop) -> None:
    ended = threading.Event()

    async def work() -> None:
        loop.at_end_of_turn(ended.set)

    loop.run_soon(lambda: loop.task(work()))

    assert ended.wait(WAIT_S)


def test_a_timer_runs_in_a_turn_and_a_cancelled_one_never(loop: Loop) -> None:
    ran: list[str] = []
    over = threading.Event()

    def begin() -> None:
        loop.later(0.001, lambda: ran.append("cancelled")).cancel()
        loop.later(0.002, lambda: loop.at_end_of_turn(over.set))

    loop.run_soon(begin)

    assert over.wait(WAIT_S)
    assert ran == []


@pytest.mark.parametrize("fails", [False, True])
def test_work_beside_the_loop_gives_its_result_or_its_error(loop: Loop, fails: bool) -> None:
    found: list[object] = []
    over = threading.Event()

    def work() -> str:
        if fails:
            raise ValueError("no")
        return threading.current_thread().name

    async def wait() -> None:
        try:
            found.append(await loop.beside(work))
        except ValueError as error:
            found.append(str(error))
        over.set()

    loop.run_soon(lambda: loop.task(wait()))

    assert over.wait(WAIT_S)
    assert found == ["no" if fails else "kafka-eos-beside"]


def test_work_that_fails_does_not_end_the_loop_and_is_reported(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("a defect")

    loop.run_soon(fail)
    all_done(loop)

    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [("a defect",)]  # type: ignore[union-attr]


def test_a_loop_that_has_ended_takes_no_work_and_its_tasks_have_ended() -> None:
    loop = Loop("t")
    loop.start()
    begun, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await loop.asyncio.create_future()
        finally:
            cancelled.set()

    loop.run_soon(lambda: loop.task(wait()))
    assert begun.wait(WAIT_S)
    loop.stop(WAIT_S)

    assert cancelled.is_set() and loop.asyncio.is_closed()
    with pytest.raises(RuntimeError, match="ended"):
        loop.run_soon(lambda: None)
    loop.run_if_open(lambda: None)
    loop.stop(WAIT_S)
