"""Members of groups through the coordinator: waiting, storing before answering, restarts, the end."""

from __future__ import annotations

import asyncio

import pytest

from embedded_kafka.groups import memberships
from embedded_kafka.groups.machine.moves import Group, GroupRefusal, GroupState, Member
from embedded_kafka.groups.subscriptions import subscribed_topics
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.groups.groups_world import RANGE, T0, World, offset, run, soon


def test_two_members_share_a_generation_and_each_gets_its_part() -> None:
    async def story() -> None:
        world = World()
        first = await world.lonely()
        (joining,) = await soon(world.join())
        assert not joining.done()
        beat = await world.groups.heartbeat("g", generation=1, member_id=first.member_id)
        assert beat is Code.REBALANCE_IN_PROGRESS

        leader = await world.join(member_id=first.member_id)
        follower = await joining
        assert (leader.generation, follower.generation) == (2, 2)
        assert [member for member, _, _ in leader.members] == [leader.member_id, follower.member_id]

        (waiting,) = await soon(world.groups.sync("g", generation=2, member_id=follower.member_id))
        assert not waiting.done()
        await world.groups.sync(
            "g", generation=2, member_id=leader.member_id,
            assignments=[(leader.member_id, b"L"), (follower.member_id, b"F")],
        )  # fmt: skip
        assert (await waiting).assignment == b"F"

    run(story)


def test_a_stable_group_survives_a_restart_and_its_members_go_on() -> None:
    async def story() -> None:
        world = World()
        joined = await world.lonely()
        world.restart()
        me = joined.member_id
        assert await world.groups.heartbeat("g", generation=1, member_id=me) is Code.NONE
        synced = await world.groups.sync("g", generation=1, member_id=me)
        assert synced.assignment == b"all of it"
        await world.groups.commit_offsets("g", [offset(3)], generation=1, member_id=me)
        world.pass_time(10_000)
        group = await world.groups.describe("g")
        assert group is not None and group.state is GroupState.EMPTY

    run(story)


def test_an_assignment_that_the_log_refuses_is_given_to_nobody() -> None:
    async def story() -> None:
        world = World()
        joined = await world.join()
        world.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        synced = await world.groups.sync(
            "g", generation=1, member_id=joined.member_id, assignments=[(joined.member_id, b"x")]
        )
        assert (synced.refusal, synced.assignment) == (GroupRefusal.NOT_COORDINATOR, b"")
        group = await world.groups.describe("g")
        assert group is not None and group.state is GroupState.PREPARING_REBALANCE

        world.log_of("g").refusal = None
        again = await world.join(member_id=joined.member_id)
        synced = await world.groups.sync("g", generation=again.generation, member_id=again.member_id)
        assert synced.refusal is None

    run(story)


def test_a_returning_static_member_that_the_log_refuses_is_not_back() -> None:
    async def story() -> None:
        world = World()
        first = await world.join(instance_id="i")
        await world.groups.sync("g", generation=1, member_id=first.member_id, instance_id="i")
        world.log_of("g").refusal = Code.MESSAGE_TOO_LARGE
        refused = await world.join(instance_id="i")
        assert refused.refusal is GroupRefusal.UNKNOWN_SERVER_ERROR
        beat = await world.groups.heartbeat("g", generation=1, member_id=first.member_id, instance_id="i")
        assert beat is Code.NONE, "the old id is still the valid one"

        world.log_of("g").refusal = None
        back = await world.join(instance_id="i")
        world.restart()
        beat = await world.groups.heartbeat("g", generation=1, member_id=back.member_id, instance_id="i")
        assert beat is Code.NONE

    run(story)


def test_an_emptied_group_is_empty_even_where_that_could_not_be_written() -> None:
    async def story() -> None:
        world = World()
        joined = await world.lonely()
        world.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        assert await world.groups.leave("g", [(joined.member_id, None)]) == [Code.NONE]
        group = await world.groups.describe("g")
        assert group is not None and (group.state, group.generation) == (GroupState.EMPTY, 2)

    run(story)


def test_members_whose_connection_is_gone_time_out_and_hold_up_nobody_for_longer() -> None:
    async def story() -> None:
        world = World()
        await world.lonely()
        (gone,) = await soon(world.join(rebalance_timeout_ms=20_000))
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        world.pass_time(60_000)
        world.pass_time(60_000)
        world.pass_time(300_000)
        group = await world.groups.describe("g")
        assert group is not None and group.state is GroupState.EMPTY

    run(story)


def test_who_waits_when_the_broker_stops_is_sent_to_look_for_the_coordinator() -> None:
    async def story() -> None:
        world = World()
        await world.lonely("joining")
        (joining,) = await soon(world.join("joining"))
        leader = await world.lonely("syncing")
        (follower,) = await soon(world.join("syncing"))
        await world.join("syncing", leader.member_id)
        (syncing,) = await soon(world.groups.sync("syncing", generation=2, member_id=(await follower).member_id))
        assert not joining.done() and not syncing.done()

        await world.groups.close()

        assert (await joining).refusal is GroupRefusal.NOT_COORDINATOR
        assert (await syncing).refusal is GroupRefusal.NOT_COORDINATOR
        with pytest.raises(Refused) as refused:
            await world.groups.fetch_offsets("joining", [T0])
        assert refused.value.code is Code.COORDINATOR_NOT_AVAILABLE

    run(story)


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_outside_the_limits_is_refused(session_ms: int) -> None:
    async def story() -> None:
        world = World()
        with pytest.raises(Refused) as refused:
            await world.join(session_timeout_ms=session_ms)
        assert refused.value.code is Code.INVALID_SESSION_TIMEOUT
        assert await world.groups.list() == []

    run(story)


@pytest.mark.parametrize("group_id", ["", "g" * 32_768])
def test_an_impossible_group_id_is_refused(group_id: str) -> None:
    async def story() -> None:
        with pytest.raises(Refused) as refused:
            await World().join(group_id)
        assert refused.value.code is Code.INVALID_GROUP_ID

    run(story)


def test_a_member_of_a_group_that_is_not_there_is_unknown() -> None:
    async def story() -> None:
        world = World()
        for attempt in (
            world.join(member_id="m"),
            world.groups.sync("g", generation=1, member_id="m"),
            world.groups.heartbeat("g", generation=1, member_id="m"),
        ):
            with pytest.raises(Refused) as refused:
                await attempt
            assert refused.value.code is Code.UNKNOWN_MEMBER_ID
        assert await world.groups.leave("g", [("m", None), ("", "i")]) == [Code.UNKNOWN_MEMBER_ID] * 2
        assert await world.groups.list() == []

    run(story)


def test_there_is_a_limit_on_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memberships, "GROUPS_AT_MOST", 2)

    async def story() -> None:
        world = World()
        for group_id in ("a", "b"):
            await world.groups.commit_offsets(group_id, [offset(1)])
        for refused_one in (world.groups.commit_offsets("c", [offset(1)]), world.join("c")):
            with pytest.raises(Refused) as refused:
                await refused_one
            assert refused.value.code is Code.POLICY_VIOLATION
        await world.groups.commit_offsets("a", [offset(2)])
        assert await world.committed("c") == -1

    run(story)


def test_topics_are_read_from_the_consumers_own_metadata_and_from_nothing_else() -> None:
    def group(metadata: bytes, kind: str = "consumer") -> Group:
        member = Member("a", None, "c", "/h", 1, 1, (("range", metadata),))
        return Group("g", state=GroupState.STABLE, protocol_type=kind, protocol_name="range", members={"a": member})

    assert subscribed_topics(group(RANGE[0][1])) == {"t"}
    assert subscribed_topics(group(b"")) is None
    assert subscribed_topics(group(b"\0\0\x7f\xff\xff\xff\0\1t")) is None
    assert subscribed_topics(group(b"\0\0\0\0\0\1\0\5t")) is None
    assert subscribed_topics(group(RANGE[0][1], "connect")) is None
    assert subscribed_topics(Group("g", protocol_type="consumer")) == frozenset()


def test_a_session_ends_at_its_deadline_for_whoever_asks_before_the_next_sweep() -> None:
    """Kafka's timer fires to the millisecond; seen with librdkafka's suite, which deletes the group right behind the
    session's end.
    """

    async def story() -> None:
        world = World()
        await world.lonely()
        world.clock.advance(9_999)
        group = await world.groups.describe("g")
        assert group is not None and group.state is GroupState.STABLE
        world.clock.advance(1)
        group = await world.groups.describe("g")
        assert group is not None and group.state is GroupState.EMPTY
        await world.groups.delete_group("g")
        assert await world.groups.describe("g") is None

    run(story)
