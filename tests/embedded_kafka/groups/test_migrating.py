"""Groups with members of both protocols, and groups that become of the other one while they have members: nobody loses
a partition or an offset by it, also behind a restart, and what cannot be written has not happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from embedded_kafka.groups.machine.consumer_events import AnswerBeat, Beat, Catalogue, Depart
from embedded_kafka.groups.machine.consumer_value import ConsumerGroup, ConsumerGroupState, Subscribed
from embedded_kafka.groups.machine.embedded_protocol import (
    NotConsumers,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from embedded_kafka.groups.machine.moves import AnswerJoin, Group, GroupRefusal, GroupState
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.groups.groups_world import World, offset, run, soon
from tests.embedded_kafka.groups.machine.consumer_tools import subscription

PARTITIONS = 4
TOPIC = Subscribed(b"t" * 16, PARTITIONS)
CLASSIC_SESSION_MS, REBALANCE_MS, SESSION_MS = 10_000, 60_000, 45_000


def existing(names: frozenset[str], _expression: str) -> Catalogue:
    return Catalogue({"t": TOPIC} if "t" in names else {})


def heard(world: World, event: Beat | Depart) -> Coroutine[Any, Any, AnswerBeat]:
    return world.groups.consumer_heartbeat("g", event, existing)


def joining(world: World, member_id: str = "a", **more: Any) -> Coroutine[Any, Any, AnswerBeat]:
    facts = {"rebalance_timeout_ms": REBALANCE_MS, "topics": ("t",), "owned": frozenset()} | more
    return heard(world, Beat(world.clock.now_ms(), member_id, 0, "client", "/127.0.0.1", **facts))


def beat(world: World, epoch: int, *owned: int, member_id: str = "a") -> Coroutine[Any, Any, AnswerBeat]:
    shares = frozenset((TOPIC.topic_id, partition) for partition in owned)
    return heard(world, Beat(world.clock.now_ms(), member_id, epoch, "client", "/127.0.0.1", owned=shares))


def leaving(world: World, member_id: str = "a") -> Coroutine[Any, Any, AnswerBeat]:
    return heard(world, Depart(world.clock.now_ms(), member_id, None, -1))


def entering(world: World, member_id: str = "", *owned: int, **more: Any) -> Coroutine[Any, Any, AnswerJoin]:
    """JoinGroup of a member of the classic protocol that says what it owns."""
    metadata = subscription("t", owned={"t": owned} if owned else {})
    facts: dict[str, Any] = {"protocols": [("range", metadata)], "existing": existing, **more}
    return world.join("g", member_id, **facts)


async def told(world: World, joined: AnswerJoin) -> tuple[int, ...]:
    """The partitions that SyncGroup brings."""
    synced = await world.groups.sync("g", generation=joined.generation, member_id=joined.member_id)
    assert synced.refusal is None
    return dict(read_assignment(synced.assignment)).get("t", ())


async def stable_classic(world: World) -> AnswerJoin:
    """A classic group of one member that has all partitions."""
    joined = await entering(world)
    whole = write_assignment([("t", range(PARTITIONS))], 1)
    await world.groups.sync(
        "g", generation=joined.generation, member_id=joined.member_id, assignments=[(joined.member_id, whole)]
    )
    return joined


async def mixed(world: World) -> AnswerJoin:
    """A consumer group of "a" and a member of the classic protocol; both have half."""
    await joining(world)
    joined = await entering(world)
    kept = (await beat(world, 2, *range(PARTITIONS))).assigned or frozenset()
    await beat(world, 2, *(partition for _, partition in kept))
    again = await entering(world, joined.member_id)
    assert len(await told(world, again)) == PARTITIONS // 2
    return again


async def consumers(world: World) -> ConsumerGroup:
    group = await world.groups.describe("g")
    assert isinstance(group, ConsumerGroup)
    return group


async def classic(world: World) -> Group:
    group = await world.groups.describe("g")
    assert isinstance(group, Group)
    return group


def test_a_classic_group_with_members_becomes_one_of_the_consumer_protocol_and_its_members_keep_what_they_have() -> (
    None
):
    async def test() -> None:
        world = World()
        joined = await stable_classic(world)
        await world.groups.commit_offsets("g", [offset(5)], generation=1, member_id=joined.member_id)

        assert await joining(world) == AnswerBeat("a", 2, frozenset())
        before = await consumers(world)
        world.restart()

        group = await consumers(world)
        assert group.members[joined.member_id].assigned == {(TOPIC.topic_id, each) for each in range(PARTITIONS)}
        assert group.targets == before.targets
        assert await world.committed() == 5
        assert len(await world.groups.list()) == 1
        heartbeat = world.groups.heartbeat("g", generation=1, member_id=joined.member_id)
        assert await heartbeat is Code.REBALANCE_IN_PROGRESS

    run(test)


def test_members_that_wait_for_a_classic_generation_are_told_to_join_again() -> None:
    async def test() -> None:
        world = World()
        joined = await stable_classic(world)
        (waiting,) = await soon(entering(world))
        assert (await classic(world)).state is GroupState.PREPARING_REBALANCE

        await joining(world)

        assert (await waiting).refusal is GroupRefusal.REBALANCE_IN_PROGRESS
        assert joined.member_id in (await consumers(world)).members

    run(test)


def test_the_last_consumer_member_leaves_a_classic_group_behind_also_in_the_log() -> None:
    async def test() -> None:
        world = World()
        joined = await mixed(world)
        await world.groups.commit_offsets(
            "g", [offset(5)], generation=joined.generation, member_id=joined.member_id, knows_epochs=False
        )

        await leaving(world)
        group = await classic(world)
        world.restart()

        loaded = await classic(world)
        assert (group.state, group.generation) == (GroupState.PREPARING_REBALANCE, joined.generation)
        (member,) = loaded.members.values()
        assert len(dict(read_assignment(member.assignment))["t"]) == PARTITIONS // 2
        assert await world.committed() == 5
        assert len(await world.groups.list()) == 1
        again = await entering(world, joined.member_id)
        assert (again.generation, again.leader) == (joined.generation + 1, joined.member_id)

    run(test)


@pytest.mark.parametrize("how", ["its session ends", "an operator removes it"])
def test_a_consumer_member_that_is_removed_leaves_a_classic_group_behind(how: str) -> None:
    async def test() -> None:
        world = World()
        joined = await mixed(world)
        if how == "its session ends":
            for _ in range(SESSION_MS // 5_000):
                world.pass_time(5_000)
                await world.groups.heartbeat("g", generation=joined.generation, member_id=joined.member_id)
        else:
            assert await world.groups.leave("g", [("a", None), ("x", None)]) == [Code.NONE, Code.UNKNOWN_MEMBER_ID]

        assert (await classic(world)).state is GroupState.PREPARING_REBALANCE

    run(test)


def test_a_member_of_the_classic_protocol_has_its_own_session() -> None:
    async def test() -> None:
        world = World()
        joined = await mixed(world)

        world.pass_time(CLASSIC_SESSION_MS)

        assert list((await consumers(world)).members) == ["a"]
        gone = world.groups.heartbeat("g", generation=joined.generation, member_id=joined.member_id)
        assert await gone is Code.UNKNOWN_MEMBER_ID

    run(test)


@pytest.mark.parametrize("what", ["join", "sync"])
def test_a_member_of_the_classic_protocol_that_does_not_come_in_time_is_removed(what: str) -> None:
    async def test() -> None:
        world = World()
        joined = await mixed(world)
        if what == "join":
            await joining(world, "b")
        else:
            joined = await entering(world, joined.member_id)
        expected = Code.REBALANCE_IN_PROGRESS if what == "join" else Code.NONE
        epoch = 3
        for _ in range(REBALANCE_MS // 5_000 + 1):
            code = await world.groups.heartbeat("g", generation=joined.generation, member_id=joined.member_id)
            if code is Code.UNKNOWN_MEMBER_ID:
                break
            assert code is expected
            epoch = (await beat(world, epoch)).epoch
            world.pass_time(5_000)

        assert joined.member_id not in (await consumers(world)).members

    run(test)


def test_a_change_of_protocol_that_cannot_be_written_has_not_happened() -> None:
    async def test() -> None:
        world = World()
        joined = await stable_classic(world)
        (waiting,) = await soon(entering(world))
        world.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        with pytest.raises(Refused):
            await joining(world)
        assert joined.member_id in (await classic(world)).members
        assert not waiting.done()
        world.log_of("g").refusal = None
        await joining(world)
        await waiting
        before = await consumers(world)
        await entering(world, joined.member_id, *range(PARTITIONS))

        world.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        with pytest.raises(Refused):
            await leaving(world)

        assert (await consumers(world)).members.keys() == before.members.keys()

    run(test)


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [("bidirectional", True, True), ("upgrade", True, False), ("downgrade", False, True), ("disabled", False, False)],
)
def test_the_policy_says_which_way_a_group_with_members_may_go(policy: str, up: bool, down: bool) -> None:
    async def test() -> None:
        world = World(group_consumer_migration_policy=policy)
        await stable_classic(world)
        if up:
            await joining(world)
        else:
            with pytest.raises(Refused) as refused:
                await joining(world)
            assert refused.value.code is Code.GROUP_ID_NOT_FOUND
        assert isinstance(await world.groups.describe("g"), ConsumerGroup) is up

        world = World(group_consumer_migration_policy=policy)
        await joining(world)
        joined = await entering(world)
        assert joined.refusal is (None if up or down else GroupRefusal.INCONSISTENT_GROUP_PROTOCOL)
        await leaving(world)
        assert isinstance(await world.groups.describe("g"), Group) is down

    run(test)


def test_the_last_members_of_the_classic_protocol_get_what_is_free_where_the_group_may_not_become_a_classic_one() -> (
    None
):
    async def test() -> None:
        world = World(group_consumer_migration_policy="upgrade")
        joined = await mixed(world)
        await leaving(world)
        assert (await consumers(world)).state is ConsumerGroupState.ASSIGNING
        heartbeat = world.groups.heartbeat("g", generation=joined.generation, member_id=joined.member_id)
        assert await heartbeat is Code.REBALANCE_IN_PROGRESS

        assert len(await told(world, await entering(world, joined.member_id, 0, 1))) == PARTITIONS

    run(test)


def test_a_static_member_comes_back_with_the_other_protocol_and_keeps_its_partitions() -> None:
    async def test() -> None:
        world = World()
        assert len((await joining(world, instance_id="i")).assigned or ()) == PARTITIONS

        joined = await entering(world, instance_id="i")

        assert (await classic(world)).state is GroupState.STABLE
        assert len(await told(world, joined)) == PARTITIONS
        answer = await joining(world, "b", instance_id="i")
        assert len(answer.assigned or ()) == PARTITIONS
        assert list((await consumers(world)).members) == ["b"]

    run(test)


class _Player:
    """One member that follows its protocol, one step at a time."""

    def __init__(self, world: World, name: str, is_classic: bool) -> None:
        self.world, self.name, self.is_classic = world, name, is_classic
        self.member_id, self.epoch, self.joined = "", 0, False
        self.owned: frozenset[int] = frozenset()

    async def step(self) -> None:
        try:
            await (self._classic_step() if self.is_classic else self._step())
        except Refused:
            self.joined, self.owned, self.member_id = False, frozenset(), ""

    async def leave(self) -> None:
        if self.joined:
            if self.is_classic:
                await self.world.groups.leave("g", [(self.member_id, None)])
            else:
                with contextlib.suppress(Refused):
                    await leaving(self.world, self.name)
        self.joined, self.owned, self.member_id = False, frozenset(), ""

    async def _step(self) -> None:
        if not self.joined:
            answer = await joining(self.world, self.name)
        else:
            answer = await beat(self.world, self.epoch, *self.owned, member_id=self.name)
        self.joined, self.epoch, self.member_id = True, answer.epoch, self.name
        if answer.assigned is not None:
            self.owned = frozenset(partition for _, partition in answer.assigned)

    async def _classic_step(self) -> None:
        if self.joined:
            code = await self.world.groups.heartbeat("g", generation=self.epoch, member_id=self.member_id)
            if code is Code.NONE:
                return
            if code is not Code.REBALANCE_IN_PROGRESS:
                self.joined, self.owned, self.member_id = False, frozenset(), ""
        joining_now = asyncio.ensure_future(entering(self.world, self.member_id, *sorted(self.owned)))
        for _ in range(3):
            await asyncio.sleep(0)
        if not joining_now.done():
            # The other members of a classic group have to come first.
            self.world.pass_time(REBALANCE_MS)
        answer = await joining_now
        if answer.refusal is not None:
            self.joined, self.owned, self.member_id = False, frozenset(), ""
            return
        self.joined, self.epoch, self.member_id = True, answer.generation, answer.member_id
        mine = [
            (each, write_assignment([("t", range(at, PARTITIONS, len(answer.members)))], 1))
            for at, (each, _, _) in enumerate(answer.members)
        ]
        syncing = self.world.groups.sync("g", generation=self.epoch, member_id=self.member_id, assignments=mine)
        synced = await syncing
        if synced.refusal is None:
            self.owned = frozenset(dict(read_assignment(synced.assignment)).get("t", ()))


@pytest.mark.parametrize("seed", range(60))
def test_in_no_history_of_both_protocols_do_two_members_use_a_partition_and_in_the_end_all_are_used(seed: int) -> None:
    """One member of the classic protocol at most, so that no other has to come while it waits."""

    async def test() -> None:
        world, chance = World(), random.Random(seed)
        players = [_Player(world, "a", False), _Player(world, "b", False), _Player(world, "c", True)]
        for _ in range(120):
            player = chance.choice(players)
            what = chance.choices(["step", "leave", "restart", "time"], [20, 2, 1, 1])[0]
            if what == "step":
                await player.step()
            elif what == "leave":
                await player.leave()
            elif what == "restart":
                world.restart()
            else:
                world.pass_time(chance.choice([1_000, CLASSIC_SESSION_MS, SESSION_MS]))
            group = await world.groups.describe("g")
            if isinstance(group, ConsumerGroup):
                used = Counter(
                    share for player in players if player.member_id in group.members and player.joined
                    for share in (group.members[player.member_id].assigned | group.members[player.member_id].revoking)
                )  # fmt: skip
                assert all(count == 1 for count in used.values())
        # Those who went without a word are gone after a session.
        for _ in range(SESSION_MS // 1_000 + 15):
            world.pass_time(1_000)
            for player in players:
                await player.step()
        owned = Counter(partition for player in players for partition in player.owned)
        assert owned == Counter(range(PARTITIONS))

    run(test)


@pytest.mark.parametrize("cut", range(1, len(subscription("topic")) - 4))
def test_a_cut_subscription_is_refused(cut: int) -> None:
    assert read_subscription(subscription("topic")) == Subscription(("topic",))
    with pytest.raises(NotConsumers):
        read_subscription(subscription("topic")[:cut])


def test_an_assignment_is_read_as_it_was_written_and_none_is_no_partition() -> None:
    named = (("t", (0, 2)), ("u", ()))
    assert read_assignment(write_assignment(named, 3)) == named
    assert read_assignment(b"") == ()
    with pytest.raises(NotConsumers):
        read_assignment(b"all of it")
