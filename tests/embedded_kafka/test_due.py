"""What falls due: a sweep does all of it, no earlier than it is due, and does not look at what is not due.

That a sweep's cost follows what is due is shown by counting the functions that it calls, not by a clock.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from embedded_kafka.due import DueTimes
from embedded_kafka.log.producer_state import ProducerStateEntry
from embedded_kafka.log.producers import Producers
from embedded_kafka.node import Node, framed
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import DAY_MS, BrokerConfig
from embedded_kafka.transactions import TransactionCoordinator
from embedded_kafka.transactions.machine.events import TransactionLogEntry, TransactionState
from embedded_kafka.transactions.machine.moves import Transaction
from embedded_kafka.transactions.state_log import encode_key, encode_value
from embedded_kafka.wire.server import ListTransactionsRequest
from tests.embedded_kafka.groups.groups_world import World as GroupsWorld
from tests.embedded_kafka.groups.groups_world import run
from tests.embedded_kafka.node_tools import ask, with_node
from tests.embedded_kafka.transactions.transactions_world import A, B, StateRecord, World, settle


def calls_of(work: Callable[[], object]) -> int:
    """How many functions of Python the work calls, generators' steps included."""
    count = 0

    def seen(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    # The collector may run at any moment, and what it finds of other tests may have finalizers in Python.
    gc.disable()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


# ---- the times themselves


def test_a_key_is_due_at_its_time_and_only_once() -> None:
    times: DueTimes[str] = DueTimes()
    times.by("a", 10)
    assert times.due(9) == []
    assert times.due(10) == ["a"]
    assert times.due(10) == [] and len(times) == 0


def test_the_earlier_of_two_times_counts_whichever_was_given_first() -> None:
    for first, second in ((10, 20), (20, 10)):
        times: DueTimes[str] = DueTimes()
        times.by("a", first)
        times.by("a", second)
        assert times.due(15) == ["a"]
        assert times.due(30) == []


def test_the_earliest_come_first_and_what_is_too_much_stays_due() -> None:
    times: DueTimes[int] = DueTimes()
    for key, at in enumerate((30, 10, 20, 40)):
        times.by(key, at)
    assert times.due(35, at_most=2) == [1, 2]
    assert times.due(35, at_most=2) == [0]
    assert times.due(100) == [3]


def test_keys_whose_times_are_brought_forward_again_and_again_take_no_more_room() -> None:
    times: DueTimes[int] = DueTimes()
    for at in range(100_000, 0, -1):
        times.by(at % 10, at)
    assert len(times._heap) <= 2 * len(times) + 1_000
    assert sorted(times.due(10)) == list(range(10))


# ---- transactional ids


def with_ids(count: int, state: TransactionState = TransactionState.COMPLETE_COMMIT) -> World:
    """A log in which so many ids were used now; the open ones have a timeout of a minute."""
    world = World()
    now_ms = world.clock.now_ms()
    world.config = BrokerConfig(transaction_state_partitions=1)
    for number in range(count):
        entry = TransactionLogEntry(
            number, epoch=1, state=state, timeout_ms=60_000, start_ms=now_ms, last_update_ms=now_ms,
            partitions=frozenset({A}) if state is TransactionState.ONGOING else frozenset(),
        )  # fmt: skip
        world.journal.append(StateRecord(0, encode_key(f"id-{number}"), encode_value(entry, 1)))
    return world


def in_world(world: World, play: Callable[[TransactionCoordinator], Any]) -> Any:
    async def main() -> Any:
        coordinator = world.start()
        try:
            return await play(coordinator)
        finally:
            await coordinator.close()

    return asyncio.run(main())


@pytest.mark.parametrize("state", [TransactionState.COMPLETE_COMMIT, TransactionState.ONGOING])
def test_a_sweep_over_two_thousand_ids_of_which_none_is_due_takes_the_steps_of_one_over_two(
    state: TransactionState,
) -> None:
    async def steps(coordinator: TransactionCoordinator) -> int:
        coordinator.tick()
        return calls_of(coordinator.tick)

    assert in_world(with_ids(2_000, state), steps) == in_world(with_ids(2, state), steps)


def test_after_a_jump_of_the_clock_one_sweep_expires_all_ids_that_are_due() -> None:
    world = with_ids(300)

    async def play(coordinator: TransactionCoordinator) -> None:
        world.clock.advance(world.config.transactional_id_expiration_ms - 1)
        coordinator.tick()
        assert len(coordinator.listing()) == 300
        world.clock.advance(1)
        coordinator.tick()
        assert coordinator.listing() == []

    in_world(world, play)


def test_a_sweep_with_a_limit_does_so_many_and_the_next_ones_the_rest() -> None:
    world = with_ids(25, TransactionState.ONGOING)

    async def play(coordinator: TransactionCoordinator) -> None:
        world.clock.advance(60_001)
        done = []
        for _ in range(4):
            coordinator.tick(10)
            await settle()
            done.append(len(coordinator.listing([TransactionState.COMPLETE_ABORT])))
        assert done == [10, 20, 25, 25]

    in_world(world, play)


def test_an_id_that_was_used_meanwhile_lives_on_for_as_long_again() -> None:
    world = with_ids(1)

    async def play(coordinator: TransactionCoordinator) -> None:
        world.clock.advance(6 * DAY_MS)
        await coordinator.init_producer_id("id-0", 1_000)
        world.clock.advance(6 * DAY_MS)
        coordinator.tick()
        assert len(coordinator.listing()) == 1
        world.clock.advance(DAY_MS)
        coordinator.tick()
        assert coordinator.listing() == []

    in_world(world, play)


def test_an_end_that_could_not_be_written_is_tried_again_by_each_sweep_until_it_is() -> None:
    world = with_ids(2, TransactionState.ONGOING)

    async def play(coordinator: TransactionCoordinator) -> None:
        world.unreachable = {A}
        world.clock.advance(60_001)
        for _ in range(3):
            coordinator.tick()
            await settle()
            assert len(coordinator.listing([TransactionState.PREPARE_ABORT])) == 2
        world.unreachable = set()
        coordinator.tick()
        await settle()
        assert len(coordinator.listing([TransactionState.COMPLETE_ABORT])) == 2
        assert len(world.markers(A)) == 2

    in_world(world, play)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_no_sweep_leaves_anything_undone_that_is_due(seed: int) -> None:
    """Ids with timeouts of their own, used in any order, on a log and partitions that fail now and then."""
    dice = random.Random(seed)
    world = World()

    async def step(coordinator: TransactionCoordinator, name: str) -> None:
        world.log_error = OSError("full") if dice.random() < 0.1 else None
        world.unreachable = {B} if dice.random() < 0.2 else set()
        world.ids_left = 0 if dice.random() < 0.1 else 1_000_000
        try:
            if dice.random() < 0.3:
                await coordinator.init_producer_id(name, dice.choice([1, 1_000, 60_000, 600_000]))
                return
            identity = coordinator.describe(name).identity
            if dice.random() < 0.6:
                await coordinator.add_partitions(name, identity, {dice.choice([A, B])}, version=2)
            else:
                await coordinator.end(name, identity, commit=dice.random() < 0.5, version=2)
        except Refused:
            pass

    async def play(coordinator: TransactionCoordinator) -> None:
        for _ in range(300):
            await step(coordinator, f"id-{dice.randrange(8)}")
            if dice.random() < 0.3:
                await settle()
            if dice.random() < 0.3:
                world.clock.advance(dice.choice([1, 500, 60_000, 600_000, DAY_MS, 7 * DAY_MS]))
                coordinator.tick(dice.choice([None, 3]))
        world.log_error, world.unreachable, world.ids_left = None, set(), 1_000_000
        for _ in range(3):
            await settle()
            coordinator.tick()
        now_ms = world.clock.now_ms()
        await settle()
        late = [
            each
            for each in coordinator._book
            if each.timed_out(now_ms)
            or each.expired(now_ms, world.config.transactional_id_expiration_ms)
            or each.state in (TransactionState.PREPARE_ABORT, TransactionState.PREPARE_COMMIT)
        ]
        assert late == []

    in_world(world, play)


def test_while_many_ids_are_listed_others_have_their_turn(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        now_ms = node.parts.clock.now_ms()
        for number in range(3_000):
            # Of now: an older one may expire while they are listed.
            entry = TransactionLogEntry(number, last_update_ms=now_ms)
            node.parts.transactions._book._keep(Transaction(f"id-{number}", entry))
        request = ListTransactionsRequest(version=1, state_filters=[], producer_id_filters=[], duration_filter=-1)
        listed = asyncio.ensure_future(ask(node, request))
        turns = 0
        while not listed.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 3
        assert len((await listed).transaction_states) == 3_000

    with_node(tmp_path, scenario)


@dataclass
class Listing:
    """An answer that notes which thread encodes it."""

    transaction_states: range
    API_KEY = ListTransactionsRequest.API_KEY

    def with_header(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id

    def encode(self, *, header: bool, framed: bool) -> threading.Thread:
        assert header and framed
        return threading.current_thread()


@pytest.mark.parametrize(("entries", "beside"), [(1_000, False), (1_001, True)])
def test_a_long_list_is_encoded_beside_the_loop(entries: int, beside: bool) -> None:
    encoded_by: Any = asyncio.run(framed(Listing(range(entries)), 7))

    assert (encoded_by is not threading.current_thread()) == beside


# ---- groups and producers


def test_a_sweep_over_many_groups_of_which_none_is_due_takes_the_steps_of_one_over_two() -> None:
    def steps(count: int) -> int:
        world = GroupsWorld()
        found: list[int] = []

        async def play() -> None:
            for number in range(count):
                await world.lonely(f"group-{number}")
            world.groups.tick()
            found.append(calls_of(world.groups.tick))

        run(play)
        return found[0]

    assert steps(200) == steps(2)


def test_producers_that_are_not_idle_are_not_looked_at_one_by_one() -> None:
    def steps(count: int) -> int:
        producers = Producers(ProducerStateEntry(number, 0, last_seen_ms=1_000) for number in range(count))
        return calls_of(lambda: producers.expire(1_999, 1_000))

    assert steps(1_000) == steps(1)


def test_the_producers_that_are_idle_are_forgotten_and_those_that_wrote_since_or_are_open_are_not() -> None:
    producers = Producers(ProducerStateEntry(number, 0, last_seen_ms=number) for number in range(10))
    producers.put(ProducerStateEntry(2, 0, last_seen_ms=500))
    producers.put(ProducerStateEntry(0, 0, open_since=5, last_seen_ms=0))

    assert producers.expire(1_005, 1_000) == 4
    assert sorted(state.producer_id for state in producers) == [0, 2, 6, 7, 8, 9]
