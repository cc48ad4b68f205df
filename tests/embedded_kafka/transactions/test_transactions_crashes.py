"""SIGKILL between any two writes: a restarted coordinator finds a prefix of what is durable, and carries out what is
decided.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from embedded_kafka.refusals import Refused
from embedded_kafka.transactions import TransactionCoordinator
from embedded_kafka.transactions.machine.events import TransactionLogEntry, TransactionState
from embedded_kafka.transactions.state_log import decode_key, decode_value
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from tests.embedded_kafka.transactions.transactions_world import (
    A,
    B,
    C,
    Data,
    Durable,
    ManualClock,
    Marker,
    StateRecord,
    World,
    settle,
)

PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


def newest(journal: list[Durable]) -> dict[str, TransactionLogEntry]:
    found: dict[str, TransactionLogEntry] = {}
    for each in journal:
        if isinstance(each, StateRecord):
            assert each.key is not None and each.value is not None
            found[str(decode_key(each.key))] = decode_value(each.value)
    return found


def history(version: int) -> World:
    """Two ids, three transactions each: commit, abort, one left open. Of each, one partition is added and never
    written.
    """
    world = World()

    async def main() -> None:
        coordinator = world.start()
        for name, partitions in (("one", (A, B, C)), ("two", (B, C))):
            identity = await coordinator.init_producer_id(name, 60_000)
            for commit in (True, False, None):
                world.clock.advance(10)
                await coordinator.add_partitions(name, identity, partitions, version=version)
                for where in partitions[:-1]:
                    world.produce(where, identity.producer_id, identity.epoch)
                if commit is not None:
                    identity = await coordinator.end(name, identity, commit=commit, version=version)
                    await settle()
        await coordinator.close()

    asyncio.run(main())
    return world


async def came_up(world: World) -> None:
    coordinator = world.start()
    await settle()
    await coordinator.close()


@pytest.mark.parametrize("version", [0, 2])
def test_after_a_crash_at_any_write_each_transaction_ends_as_decided_with_one_marker_a_partition(
    version: int,
) -> None:
    """Rule: seed 003 high availability; seed 004 How Transactions Work: what is prepared is finished on restart."""
    whole = history(version)
    cut_between_markers = 0
    for size in range(len(whole.journal) + 1):
        before = newest(whole.journal[:size])
        world = World(whole.journal[:size], ManualClock(whole.clock.now_ms() + 1_000))
        asyncio.run(came_up(world))
        after = newest(world.journal)
        for name, entry in before.items():
            if entry.state in PREPARED:
                assert after[name].state is COMPLETED[entry.state]
                assert after[name].epoch == entry.epoch
            else:
                assert after[name] == entry
        # Whatever is decided has exactly the markers that it gets without a crash, in whatever order.
        decided = [
            decode_value(each.value)
            for each in whole.journal[:size]
            if isinstance(each, StateRecord) and each.value is not None
        ]
        expected = sorted(
            (where, entry.producer_id, entry.epoch, entry.state is TransactionState.PREPARE_COMMIT)
            for entry in decided
            if entry.state in PREPARED
            for where in entry.partitions
        )
        assert sorted((m.where, m.producer_id, m.epoch, m.commit) for m in world.markers()) == expected
        written = len([each for each in whole.journal[:size] if isinstance(each, Marker)])
        cut_between_markers += 0 < len(expected) - written < 3
    assert cut_between_markers > 4


def test_a_second_crash_while_it_comes_up_changes_nothing() -> None:
    whole = history(2)
    for size in range(len(whole.journal) + 1):
        first = World(whole.journal[:size], ManualClock(whole.clock.now_ms() + 1_000))
        asyncio.run(came_up(first))
        for again in range(size, len(first.journal) + 1):
            second = World(first.journal[:again], ManualClock(whole.clock.now_ms() + 2_000))
            asyncio.run(came_up(second))
            markers = [(m.where, m.producer_id, m.epoch, m.commit) for m in second.markers()]
            assert len(markers) == len(set(markers))
            assert all(entry.state not in PREPARED for entry in newest(second.journal).values())


def test_an_open_transaction_goes_on_after_a_restart_and_the_safe_repetition_is_still_known() -> None:
    world = World()

    async def main() -> None:
        coordinator = world.start()
        first = await coordinator.init_producer_id("one", 60_000)
        second = await coordinator.init_producer_id("one", 60_000, first)
        await coordinator.close()
        coordinator = world.start()
        assert await coordinator.init_producer_id("one", 60_000, first) == second
        await coordinator.add_partitions("one", second, [A])
        await coordinator.close()
        coordinator = world.start()
        assert coordinator.describe("one").partitions == {A}
        await coordinator.end("one", second, commit=True, version=2)
        await settle()
        await coordinator.close()

    asyncio.run(main())
    assert [each.commit for each in world.markers()] == [True]


# ---- random histories


class Producer:
    """A client that keeps to the protocol, and repeats what was not answered."""

    def __init__(self, name: str, number: int, version: int, chance: random.Random) -> None:
        self.name = name
        self.version = version
        self.identity: ProducerIdentity | None = None
        self.label = ""
        self.ending: bool | None = None
        self.fenced = False
        self._number = number
        self._count = 0
        self._chance = chance

    async def act(self, world: World, coordinator: TransactionCoordinator, told: dict[str, bool]) -> None:
        try:
            await self._act(world, coordinator, told)
        except Refused as refused:
            if refused.code in (
                Code.PRODUCER_FENCED,
                Code.INVALID_PRODUCER_EPOCH,
                Code.INVALID_TXN_STATE,
                Code.INVALID_PRODUCER_ID_MAPPING,
            ):
                # Somebody else, or the timeout, was faster: begin anew. What became of the transaction was not said.
                self.identity, self.label, self.ending = None, "", None

    async def _act(self, world: World, coordinator: TransactionCoordinator, told: dict[str, bool]) -> None:
        if self.identity is None:
            self.identity = await coordinator.init_producer_id(self.name, 500)
            return
        identity = self.identity
        if self.ending is None and self._chance.random() < 0.7:
            where = self._chance.choice([A, B, C])
            if self.version == 0:
                await coordinator.add_partitions(self.name, identity, [where])
            await coordinator.ensure_partition(
                self.name, identity.producer_id, identity.epoch, [where], add=self.version == 2
            )
            self._count += not self.label
            self.label = self.label or f"{self.name}/{self._number}/{self._count}"
            world.produce(where, identity.producer_id, identity.epoch, self.label)
        elif self.label:
            if self.ending is None:
                self.ending = self._chance.random() < 0.6
            self.identity = await coordinator.end(self.name, identity, commit=self.ending, version=self.version)
            told[self.label] = self.ending
            self.label, self.ending = "", None


def outcomes(journal: list[Durable]) -> dict[str, set[bool]]:
    """What the partitions say of each transaction."""
    found: dict[str, set[bool]] = defaultdict(set)
    open_labels: dict[tuple[TopicPartition, int], set[str]] = defaultdict(set)
    for each in journal:
        if isinstance(each, Data):
            open_labels[each.where, each.producer_id].add(each.label)
        elif isinstance(each, Marker):
            for label in open_labels.pop((each.where, each.producer_id), ()):
                found[label].add(each.commit)
    assert not any(open_labels.values()), "records without a marker"
    return found


def check(journal: list[Durable], told: dict[str, bool]) -> None:
    """Every transaction has one outcome in all its partitions: the one that its producer was told, if it was."""
    for label, verdicts in outcomes(journal).items():
        assert len(verdicts) == 1, f"{label} is committed in one partition and aborted in another"
        if label in told:
            assert verdicts == {told[label]}, f"{label} was answered {told[label]}"


async def random_history(seed: int) -> tuple[World, dict[str, bool], int]:
    chance = random.Random(seed)
    world = World()
    told: dict[str, bool] = {}
    crashes = 0
    version = chance.choice([0, 2])
    producers = [Producer(f"id-{n % 3}", n, version, chance) for n in range(4)]
    coordinator = world.start()
    for _ in range(150):
        move = chance.random()
        if move < 0.02:
            crashes += 1
            await coordinator.close()
            coordinator = world.start()
        elif move < 0.10:
            world.clock.advance(chance.choice([1, 10, 300, 600]))
            coordinator.tick()
        elif move < 0.15:
            world.unreachable = set(chance.sample([A, B, C], chance.randrange(3)))
        elif move < 0.18:
            world.log_error = chance.choice([None, OSError(28, "no space left on device")])
        elif move < 0.4:
            await asyncio.sleep(0)
        else:
            await chance.choice(producers).act(world, coordinator, told)
    world.unreachable, world.log_error = set(), None
    world.clock.advance(1_000)
    for _ in range(4):
        coordinator.tick()
        await settle()
    await coordinator.close()
    return world, told, crashes


@pytest.mark.parametrize("seeds", [range(50), range(50, 100), range(100, 150)], ids=str)
def test_whatever_happens_each_transaction_has_one_outcome_and_it_is_the_answered_one(seeds: range) -> None:
    answered = crashed = undecided = 0
    for seed in seeds:
        world, told, crashes = asyncio.run(random_history(seed))
        check(world.journal, told)
        answered += len(told)
        crashed += crashes
        undecided += len(outcomes(world.journal).keys() - told.keys())
    assert answered > 150 and crashed > 50 and undecided > 50


@pytest.mark.parametrize(
    ("journal", "told", "complaint"),
    [
        ([Data(A, 1, 0, "x")], {}, "without a marker"),
        (
            [Data(A, 1, 0, "x"), Data(B, 1, 0, "x"), Marker(A, 1, 0, True, 0), Marker(B, 1, 0, False, 0)],
            {},
            "committed in one partition",
        ),
        ([Data(A, 1, 0, "x"), Marker(A, 1, 0, False, 0)], {"x": True}, "was answered True"),
    ],
)
def test_the_checker_rejects_a_broken_history(journal: list[Durable], told: dict[str, bool], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(journal, told)
