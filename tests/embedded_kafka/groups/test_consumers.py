"""The group coordinator with members of the consumer protocol: answers, the log behind them, restarts, and groups that
pass from one protocol to the other.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from embedded_kafka.groups.machine.consumer_events import AnswerBeat, Beat, Catalogue, Depart
from embedded_kafka.groups.machine.consumer_value import ConsumerGroup, ConsumerGroupState, Shares, Subscribed
from embedded_kafka.groups.machine.moves import Group, GroupRefusal, GroupState
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.groups.groups_world import T0, World, offset, run

TOPICS = {"t": Subscribed(b"t" * 16, 2)}
U0 = TopicPartition("u", 0)
ALL: Shares = frozenset({(b"t" * 16, 0), (b"t" * 16, 1)})
SESSION_MS = 45_000


def existing(names: frozenset[str], expression: str) -> Catalogue:
    matches = {expression: frozenset({"t"})} if expression else {}
    return Catalogue({name: topic for name, topic in TOPICS.items() if name in names or matches}, matches)


async def heard(world: World, event: Beat | Depart, group_id: str = "g") -> AnswerBeat:
    return await world.groups.consumer_heartbeat(group_id, event, existing)


def joining(world: World, member_id: str = "a", **more: Any) -> Coroutine[Any, Any, AnswerBeat]:
    facts = {"rebalance_timeout_ms": 30_000, "topics": ("t",), "owned": frozenset()} | more
    return heard(world, Beat(world.clock.now_ms(), member_id, 0, "client", "/127.0.0.1", **facts))


def beat(world: World, epoch: int, member_id: str = "a", **more: Any) -> Coroutine[Any, Any, AnswerBeat]:
    return heard(world, Beat(world.clock.now_ms(), member_id, epoch, "client", "/127.0.0.1", **more))


def leaving(world: World, member_id: str = "a", epoch: int = -1) -> Coroutine[Any, Any, AnswerBeat]:
    return heard(world, Depart(world.clock.now_ms(), member_id, None, epoch))


async def refusal(asked: Coroutine[Any, Any, Any]) -> Code:
    with pytest.raises(Refused) as refused:
        await asked
    return refused.value.code


async def group_of(world: World) -> ConsumerGroup:
    group = await world.groups.describe("g")
    assert isinstance(group, ConsumerGroup)
    return group


def test_a_member_goes_on_after_a_restart_as_if_nothing_had_happened() -> None:
    async def test() -> None:
        world = World()
        assert await joining(world) == AnswerBeat("a", 2, ALL)
        await world.groups.commit_offsets("g", [offset(5)], generation=2, member_id="a")
        before = await group_of(world)

        world.restart()

        assert await group_of(world) == before
        assert await beat(world, 2) == AnswerBeat("a", 2)
        assert await world.committed() == 5

    run(test)


def test_what_cannot_be_written_has_not_happened() -> None:
    async def test() -> None:
        world = World()
        await joining(world)
        before = await group_of(world)
        world.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        assert await refusal(joining(world, "b")) is Code.KAFKA_STORAGE_ERROR
        world.clock.advance(SESSION_MS)
        world.groups.tick()
        assert await group_of(world) == before

        world.log_of("g").refusal = None
        world.groups.tick()

        assert (await group_of(world)).state is ConsumerGroupState.EMPTY

    run(test)


def test_a_session_ends_at_its_deadline_and_not_at_the_next_sweep() -> None:
    async def test() -> None:
        world = World()
        await joining(world)

        world.clock.advance(SESSION_MS)

        assert await refusal(beat(world, 2)) is Code.UNKNOWN_MEMBER_ID
        assert (await group_of(world)).state is ConsumerGroupState.EMPTY

    run(test)


def test_offsets_belong_to_members_of_this_epoch() -> None:
    async def test() -> None:
        world = World()
        await joining(world)
        groups = world.groups
        stale = groups.commit_offsets("g", [offset(1)], generation=1, member_id="a")
        old = groups.commit_offsets("g", [offset(1)], generation=2, member_id="a", knows_epochs=False)
        stranger = groups.commit_offsets("g", [offset(1)])
        in_transaction = groups.txn_commit_offsets(
            "g", [offset(1)], producer_id=7, producer_epoch=0, generation=9, member_id="a"
        )
        assert await refusal(stale) is Code.STALE_MEMBER_EPOCH
        assert await refusal(old) is Code.UNSUPPORTED_VERSION
        assert await refusal(stranger) is Code.UNKNOWN_MEMBER_ID
        assert await refusal(in_transaction) is Code.STALE_MEMBER_EPOCH
        assert await refusal(groups.fetch_offsets("g", [T0], member_id="a", member_epoch=1)) is Code.STALE_MEMBER_EPOCH
        assert await world.committed() == -1

        await groups.txn_commit_offsets("g", [offset(3)], producer_id=7, producer_epoch=0, generation=2, member_id="a")
        world.end("g", 7, commit=True)

        assert (await groups.fetch_offsets("g", [T0], member_id="a", member_epoch=2))[T0].offset == 3

    run(test)


def test_an_empty_classic_group_becomes_one_of_the_consumer_protocol_and_back_and_keeps_its_offsets() -> None:
    async def test() -> None:
        world = World(group_consumer_migration_policy="disabled")
        classic = await world.lonely()
        await world.groups.commit_offsets("g", [offset(5)], generation=classic.generation, member_id=classic.member_id)
        assert await refusal(joining(world)) is Code.GROUP_ID_NOT_FOUND
        assert await world.groups.leave("g", [(classic.member_id, None)]) == [Code.NONE]

        await joining(world)
        world.restart()
        assert (await group_of(world)).state is ConsumerGroupState.STABLE
        assert await world.committed() == 5
        assert len(await world.groups.list()) == 1
        assert (await world.join()).refusal is GroupRefusal.INCONSISTENT_GROUP_PROTOCOL

        await leaving(world)
        again = await world.lonely()
        world.restart()

        group = await world.groups.describe("g")
        assert isinstance(group, Group)
        assert group.state is GroupState.STABLE
        assert again.generation == 1
        assert await world.committed() == 5
        assert len(await world.groups.list()) == 1

    run(test)


def test_a_heartbeat_that_is_refused_leaves_the_classic_group_as_it_was() -> None:
    async def test() -> None:
        world = World()
        await world.groups.commit_offsets("g", [offset(5)])
        assert await refusal(beat(world, 3)) is Code.GROUP_ID_NOT_FOUND
        world.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        assert await refusal(joining(world)) is Code.KAFKA_STORAGE_ERROR

        assert isinstance(await world.groups.describe("g"), Group)

    run(test)


def test_an_operator_removes_members_and_a_member_of_the_classic_protocol_is_none() -> None:
    async def test() -> None:
        world = World()
        await joining(world)
        await joining(world, "s", instance_id="i")
        assert await world.groups.leave("g", [("x", None), ("", "i"), ("a", None)]) == [
            Code.UNKNOWN_MEMBER_ID, Code.NONE, Code.NONE,
        ]  # fmt: skip
        assert (await group_of(world)).state is ConsumerGroupState.EMPTY
        assert await world.groups.heartbeat("g", generation=2, member_id="a") is Code.UNKNOWN_MEMBER_ID

    run(test)


def test_a_group_with_members_is_not_deleted_and_an_empty_one_leaves_nothing() -> None:
    async def test() -> None:
        world = World()
        await joining(world)
        await world.groups.commit_offsets("g", [offset(5)], generation=2, member_id="a")
        assert await refusal(world.groups.delete_group("g")) is Code.NON_EMPTY_GROUP
        await leaving(world)

        await world.groups.delete_group("g")
        world.restart()

        assert await world.groups.list() == []
        assert await world.committed() == -1

    run(test)


def test_offsets_of_a_subscribed_topic_are_not_deleted_and_do_not_expire() -> None:
    async def test() -> None:
        world = World(offsets_retention_ms=1_000_000)
        await joining(world, topics=(), regex="t.*")
        await world.groups.commit_offsets("g", [offset(5), offset(6, U0)], generation=2, member_id="a")
        assert await world.groups.delete_offsets("g", [T0]) == {T0: Code.GROUP_SUBSCRIBED_TO_TOPIC}
        for _ in range(60):
            world.pass_time(20_000)
            await beat(world, 2)

        assert (await world.committed(), await world.committed(where=U0)) == (5, -1)
        assert (await group_of(world)).state is ConsumerGroupState.STABLE

    run(test)


def test_an_empty_group_expires_with_its_offsets() -> None:
    async def test() -> None:
        world = World(offsets_retention_ms=100_000)
        await joining(world)
        await world.groups.commit_offsets("g", [offset(5)], generation=2, member_id="a")
        await leaving(world)

        world.pass_time(700_000)

        assert await world.groups.describe("g") is None
        world.restart()
        assert await world.groups.list() == []

    run(test)


def test_a_stopped_broker_refuses_with_a_code_that_sends_the_member_on() -> None:
    async def test() -> None:
        world = World()
        await joining(world)

        await world.groups.close()

        assert await refusal(beat(world, 2)) is Code.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_every_refusal_of_the_machine_is_a_code_of_kafkas() -> None:
    assert {refusal.name for refusal in GroupRefusal} <= {code.name for code in Code}
