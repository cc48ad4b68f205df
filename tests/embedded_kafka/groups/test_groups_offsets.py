"""Committed offsets: what shows when, what a restart finds, who may commit, what expires."""

from __future__ import annotations

import random

import pytest

from embedded_kafka.groups import FetchedOffset
from embedded_kafka.groups.coordinator import EXPIRY_CHECK_INTERVAL_MS
from embedded_kafka.groups.machine.moves import GroupState
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.groups.groups_world import T0, T1, World, offset, run

DAY_MS = 24 * 60 * 60 * 1000
PRODUCER, OTHER_PRODUCER = 1000, 2000


def test_a_committed_offset_is_answered_with_its_metadata_and_leader_epoch() -> None:
    async def story() -> None:
        world = World()
        assert await world.groups.commit_offsets("g", [offset(42, T0, "where I was")]) == {T0: Code.NONE}
        assert await world.groups.fetch_offsets("g", [T0, T1]) == {
            T0: FetchedOffset(42, 3, "where I was"),
            T1: FetchedOffset(-1, -1, ""),
        }
        assert await world.groups.fetch_offsets("g", None) == {T0: FetchedOffset(42, 3, "where I was")}
        assert await world.groups.fetch_offsets("nobody", None) == {}

    run(story)


def test_a_commit_that_the_log_refuses_is_not_shown() -> None:
    async def story() -> None:
        world = World()
        await world.groups.commit_offsets("g", [offset(1)])
        world.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        with pytest.raises(Refused) as refused:
            await world.groups.commit_offsets("g", [offset(2)])
        assert refused.value.code is Code.KAFKA_STORAGE_ERROR
        assert await world.committed() == 1
        world.restart()
        assert await world.committed() == 1

    run(story)


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone() -> None:
    async def story() -> None:
        world = World(offset_metadata_max_bytes=4)
        codes = await world.groups.commit_offsets("g", [offset(1, T0, "12345"), offset(2, T1, "1234")])
        assert codes == {T0: Code.OFFSET_METADATA_TOO_LARGE, T1: Code.NONE}
        assert await world.committed(where=T0) == -1
        assert await world.committed(where=T1) == 2

    run(story)


def test_of_a_partition_that_is_named_twice_the_last_offset_counts_also_after_a_restart() -> None:
    async def story() -> None:
        world = World()
        await world.groups.commit_offsets("g", [offset(1), offset(2)])
        assert await world.committed() == 2
        world.restart()
        assert await world.committed() == 2

    run(story)


# ---- transactions


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_in_a_transaction_show_only_when_it_commits(commit: bool) -> None:
    """Rule: seed 003 TxnOffsetCommitRequest: offsets in a transaction are in the group's view only after its commit."""

    async def story() -> None:
        world = World()
        await world.groups.commit_offsets("g", [offset(1)])
        await world.groups.txn_commit_offsets("g", [offset(5)], producer_id=PRODUCER, producer_epoch=0)
        assert await world.committed() == 1
        world.end("g", PRODUCER, commit=commit)
        assert await world.committed() == (5 if commit else 1)

    run(story)


def test_require_stable_is_told_to_wait_for_the_partitions_of_open_transactions() -> None:
    async def story() -> None:
        world = World()
        await world.groups.commit_offsets("g", [offset(1, T0), offset(1, T1)])
        await world.groups.txn_commit_offsets("g", [offset(5)], producer_id=PRODUCER, producer_epoch=0)

        assert await world.committed(where=T0, stable=True) == -Code.UNSTABLE_OFFSET_COMMIT
        assert await world.committed(where=T1, stable=True) == 1
        assert await world.committed(where=T0, stable=False) == 1
        all_of_them = await world.groups.fetch_offsets("g", None, require_stable=True)
        assert all_of_them[T0] == FetchedOffset(code=Code.UNSTABLE_OFFSET_COMMIT)

        world.end("g", PRODUCER, commit=True)
        assert await world.committed(where=T0, stable=True) == 5

    run(story)


def test_a_marker_ends_the_offsets_of_its_producer_and_partition_only() -> None:
    async def story() -> None:
        world = World()
        other = next(
            f"g{n}" for n in range(99) if world.groups.partition_for(f"g{n}") != world.groups.partition_for("g")
        )
        for group_id in ("g", other):
            await world.groups.txn_commit_offsets(group_id, [offset(5)], producer_id=PRODUCER, producer_epoch=0)
        await world.groups.txn_commit_offsets("g", [offset(6, T1)], producer_id=OTHER_PRODUCER, producer_epoch=0)

        world.end("g", PRODUCER, commit=True)

        assert await world.committed("g", T0) == 5
        assert await world.committed("g", T1) == -1
        assert await world.committed(other) == -1
        world.end(other, PRODUCER, commit=True)
        assert await world.committed(other) == 5

    run(story)


def test_of_two_commits_the_later_in_the_log_counts_whichever_transaction_ended_first() -> None:
    async def story() -> None:
        world = World()
        await world.groups.txn_commit_offsets("g", [offset(5)], producer_id=PRODUCER, producer_epoch=0)
        await world.groups.commit_offsets("g", [offset(9)])
        world.end("g", PRODUCER, commit=True)
        assert await world.committed() == 9
        world.restart()
        assert await world.committed() == 9

    run(story)


def test_a_producer_that_was_fenced_commits_nothing() -> None:
    """Rule: seed 003 TxnOffsetCommitRequest: the group's coordinator checks producer id and epoch."""

    async def story() -> None:
        world = World()
        await world.groups.txn_commit_offsets("g", [offset(5)], producer_id=PRODUCER, producer_epoch=7)
        with pytest.raises(Refused) as refused:
            await world.groups.txn_commit_offsets("g", [offset(6)], producer_id=PRODUCER, producer_epoch=6)
        assert refused.value.code is Code.INVALID_PRODUCER_EPOCH
        world.end("g", PRODUCER, commit=True, epoch=7)
        assert await world.committed() == 5

    run(story)


def test_a_member_that_is_named_in_a_transaction_must_be_one_of_this_generation() -> None:
    """KIP-447: a producer whose consumer lost its partitions is fenced by the group."""

    async def story() -> None:
        world = World()
        joined = await world.lonely()
        me, generation = joined.member_id, joined.generation
        for member, stated, instance, code in [
            ("stranger", generation, None, Code.UNKNOWN_MEMBER_ID),
            (me, generation - 1, None, Code.ILLEGAL_GENERATION),
            (me, generation + 1, None, Code.ILLEGAL_GENERATION),
            (me, generation, "nobody's", Code.UNKNOWN_MEMBER_ID),
        ]:
            with pytest.raises(Refused) as refused:
                await world.groups.txn_commit_offsets(
                    "g", [offset(5)], producer_id=PRODUCER, producer_epoch=0,
                    generation=stated, member_id=member, instance_id=instance,
                )  # fmt: skip
            assert refused.value.code is code
        assert await world.committed(stable=True) == -1, "nothing of them is pending"

        for generation_stated, member in [(generation, me), (-1, "")]:
            await world.groups.txn_commit_offsets(
                "g", [offset(5)], producer_id=PRODUCER, producer_epoch=0,
                generation=generation_stated, member_id=member,
            )  # fmt: skip
        assert await world.committed(stable=True) == -Code.UNSTABLE_OFFSET_COMMIT

    run(story)


def test_a_static_member_that_was_replaced_cannot_commit_in_a_transaction() -> None:
    async def story() -> None:
        world = World()
        first = await world.join(instance_id="i")
        await world.groups.sync("g", generation=1, member_id=first.member_id, instance_id="i")
        await world.join(instance_id="i")
        with pytest.raises(Refused) as refused:
            await world.groups.txn_commit_offsets(
                "g", [offset(5)], producer_id=PRODUCER, producer_epoch=0,
                generation=1, member_id=first.member_id, instance_id="i",
            )  # fmt: skip
        assert refused.value.code is Code.FENCED_INSTANCE_ID

    run(story)


# ---- who may commit


def test_a_consumer_without_membership_commits_only_into_an_empty_group() -> None:
    async def story() -> None:
        world = World()
        joined = await world.lonely()
        with pytest.raises(Refused) as refused:
            await world.groups.commit_offsets("g", [offset(1)])
        assert refused.value.code is Code.UNKNOWN_MEMBER_ID
        await world.groups.leave("g", [(joined.member_id, None)])
        assert await world.groups.commit_offsets("g", [offset(1)]) == {T0: Code.NONE}

    run(story)


def test_a_generation_of_a_group_that_is_not_there_is_refused_and_makes_no_group() -> None:
    async def story() -> None:
        world = World()
        with pytest.raises(Refused) as refused:
            await world.groups.commit_offsets("g", [offset(1)], generation=3, member_id="m")
        assert refused.value.code is Code.GROUP_ID_NOT_FOUND
        assert await world.groups.list() == []
        assert world.logs.partitions == {}

    run(story)


# ---- restarts


def test_offsets_and_open_transactions_survive_a_restart() -> None:
    async def story() -> None:
        world = World()
        await world.groups.commit_offsets("g", [offset(1)], retention_ms=5_000)
        await world.groups.txn_commit_offsets("g", [offset(5)], producer_id=PRODUCER, producer_epoch=0)
        world.restart()
        assert await world.committed(stable=True) == -Code.UNSTABLE_OFFSET_COMMIT
        world.end("g", PRODUCER, commit=True)
        assert await world.committed(stable=True) == 5

    run(story)


@pytest.mark.parametrize("seed", range(25))
def test_what_a_restart_finds_is_what_was_there(seed: int) -> None:
    async def story() -> None:
        chance = random.Random(seed)
        world = World(offsets_topic_partitions=3)
        groups = [f"g{n}" for n in range(5)]
        epochs: dict[int, int] = {}
        for _ in range(150):
            await something(world, chance, chance.choice(groups), epochs)
        world.pass_time(0)
        live = await everything(world)
        fired = world.logs.partitions
        assert any(batch.control_commit for log in fired.values() for batch in log.batches)

        world.restart()

        assert await everything(world) == live

    run(story)


async def something(world: World, chance: random.Random, group_id: str, epochs: dict[int, int]) -> None:
    wheres = [TopicPartition("t", n) for n in range(4)]
    offsets = [offset(chance.randrange(1000), where) for where in chance.sample(wheres, chance.randint(1, 3))]
    producer_id = chance.choice([PRODUCER, OTHER_PRODUCER])
    kind = chance.randrange(8)
    group = await world.groups.describe(group_id)
    if kind <= 1:
        if group is None or group.state is GroupState.EMPTY:
            await world.groups.commit_offsets(group_id, offsets)
    elif kind <= 3:
        await world.groups.txn_commit_offsets(group_id, offsets, producer_id=producer_id, producer_epoch=0)
    elif kind == 4:
        world.end(group_id, producer_id, commit=chance.random() < 0.6)
    elif kind == 5 and group is not None:
        if group.state is GroupState.EMPTY and chance.random() < 0.3:
            await world.groups.delete_group(group_id)
        elif group.state is GroupState.EMPTY:
            await world.groups.delete_offsets(group_id, wheres[:2])
        else:
            await world.groups.leave(group_id, [(member, None) for member in group.members])
    elif kind == 6 and (group is None or group.state is GroupState.EMPTY):
        await world.lonely(group_id)
    world.clock.advance(chance.randrange(1000))


async def everything(world: World) -> dict[str, object]:
    """Everything that a client can see of any group."""
    seen: dict[str, object] = {}
    for group in await world.groups.list():
        offsets = [
            await world.groups.fetch_offsets(group.group_id, None, require_stable=stable) for stable in (False, True)
        ]
        unstable = await world.groups.fetch_offsets(
            group.group_id, [TopicPartition("t", n) for n in range(4)], require_stable=True
        )
        members = {
            each: (member.metadata(group.protocol_name), member.assignment) for each, member in group.members.items()
        }
        # A group without a generation of its own exists by its offsets alone.
        if group.generation or any(offsets) or any(found.code for found in unstable.values()):
            seen[group.group_id] = (
                group.state,
                group.generation,
                group.protocol_type,
                group.protocol_name,
                group.leader,
                members,
                offsets,
                unstable,
            )
    return seen


# ---- removal and expiry


def test_deleting_a_group_takes_its_offsets_committed_and_pending() -> None:
    async def story() -> None:
        world = World()
        await world.groups.commit_offsets("g", [offset(1, T0)])
        await world.groups.txn_commit_offsets("g", [offset(5, T1)], producer_id=PRODUCER, producer_epoch=0)
        await world.groups.delete_group("g")
        world.end("g", PRODUCER, commit=True)
        assert await world.groups.fetch_offsets("g", None) == {}
        with pytest.raises(Refused) as refused:
            await world.groups.delete_group("g")
        assert refused.value.code is Code.GROUP_ID_NOT_FOUND
        world.restart()
        assert await world.groups.list() == []

    run(story)


def test_a_group_with_members_is_not_deleted() -> None:
    async def story() -> None:
        world = World()
        await world.lonely()
        with pytest.raises(Refused) as refused:
            await world.groups.delete_group("g")
        assert refused.value.code is Code.NON_EMPTY_GROUP
        assert [group.state for group in await world.groups.list()] == [GroupState.STABLE]

    run(story)


def test_a_deletion_that_the_log_refuses_has_not_happened() -> None:
    async def story() -> None:
        world = World()
        await world.groups.commit_offsets("g", [offset(1)])
        world.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        with pytest.raises(Refused):
            await world.groups.delete_group("g")
        assert await world.committed() == 1

    run(story)


def test_offsets_of_topics_that_a_member_consumes_are_not_deleted() -> None:
    async def story() -> None:
        world = World()
        joined = await world.lonely()
        other = TopicPartition("other", 0)
        await world.groups.commit_offsets(
            "g", [offset(1, T0), offset(2, other)], generation=1, member_id=joined.member_id
        )
        assert await world.groups.delete_offsets("g", [T0, other]) == {
            T0: Code.GROUP_SUBSCRIBED_TO_TOPIC,
            other: Code.NONE,
        }
        assert list(await world.groups.fetch_offsets("g", None)) == [T0]

    run(story)


def test_offsets_of_members_that_are_no_consumers_are_deleted_only_when_they_are_gone() -> None:
    async def story() -> None:
        world = World()
        await world.join(protocol_type="connect", protocols=[("sessioned", b"")])
        with pytest.raises(Refused) as refused:
            await world.groups.delete_offsets("g", [T0])
        assert refused.value.code is Code.NON_EMPTY_GROUP

    run(story)


def test_offsets_of_deleted_partitions_are_gone_also_after_a_restart() -> None:
    async def story() -> None:
        world = World()
        await world.groups.commit_offsets("g", [offset(1, T0), offset(2, T1)])
        world.groups.on_partitions_deleted([T0])
        world.restart()
        assert list(await world.groups.fetch_offsets("g", None)) == [T1]

    run(story)


def test_offsets_without_membership_expire_after_their_commit() -> None:
    async def story() -> None:
        world = World(offsets_retention_ms=DAY_MS)
        await world.groups.commit_offsets("g", [offset(1)])
        world.pass_time(DAY_MS - 1)
        assert await world.committed() == 1
        world.pass_time(EXPIRY_CHECK_INTERVAL_MS)
        assert await world.committed() == -1
        assert await world.groups.list() == []
        world.restart()
        assert await world.committed() == -1

    run(story)


def test_offsets_of_a_group_with_members_expire_only_from_when_it_became_empty() -> None:
    async def story() -> None:
        world = World(offsets_retention_ms=DAY_MS, group_max_session_timeout_ms=99 * DAY_MS)
        joined = await world.join(session_timeout_ms=9 * DAY_MS)
        me = joined.member_id
        await world.groups.sync("g", generation=1, member_id=me)
        await world.groups.commit_offsets("g", [offset(1)], generation=1, member_id=me)
        world.pass_time(3 * DAY_MS)
        assert await world.committed() == 1

        await world.groups.leave("g", [(me, None)])
        world.pass_time(DAY_MS - 1)
        assert await world.committed() == 1
        world.pass_time(EXPIRY_CHECK_INTERVAL_MS)
        assert await world.committed() == -1
        world.restart()
        assert await world.groups.list() == [], "the group went with its last offset"

    run(story)


def test_a_partition_with_an_open_transaction_does_not_expire() -> None:
    async def story() -> None:
        world = World(offsets_retention_ms=DAY_MS)
        await world.groups.commit_offsets("g", [offset(1)])
        await world.groups.txn_commit_offsets("g", [offset(5)], producer_id=PRODUCER, producer_epoch=0)
        world.pass_time(2 * DAY_MS)
        world.end("g", PRODUCER, commit=False)
        assert await world.committed() == 1
        world.pass_time(EXPIRY_CHECK_INTERVAL_MS)
        assert await world.committed() == -1

    run(story)


def test_an_old_clients_own_retention_is_kept() -> None:
    async def story() -> None:
        world = World(offsets_retention_ms=DAY_MS)
        await world.groups.commit_offsets("g", [offset(1)], retention_ms=5 * DAY_MS)
        world.restart()
        world.pass_time(4 * DAY_MS)
        assert await world.committed() == 1
        world.pass_time(DAY_MS)
        assert await world.committed() == -1

    run(story)


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 2**40])
def test_a_retention_beyond_the_end_of_time_keeps_the_offset(retention_ms: int) -> None:
    async def story() -> None:
        world = World(offsets_retention_ms=DAY_MS)
        await world.groups.commit_offsets("g", [offset(1)], retention_ms=retention_ms)
        world.restart()
        world.pass_time(1000 * DAY_MS)
        assert await world.committed() == 1

    run(story)


def test_an_expiry_that_the_log_refuses_is_tried_again() -> None:
    async def story() -> None:
        world = World(offsets_retention_ms=DAY_MS)
        await world.groups.commit_offsets("g", [offset(1)])
        world.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        world.pass_time(2 * DAY_MS)
        assert await world.committed() == 1
        world.log_of("g").refusal = None
        world.pass_time(EXPIRY_CHECK_INTERVAL_MS)
        assert await world.committed() == -1

    run(story)


def test_a_group_without_offsets_is_forgotten_but_not_while_a_member_id_is_reserved_in_it() -> None:
    async def story() -> None:
        world = World()
        world.clock.advance(EXPIRY_CHECK_INTERVAL_MS - 5_000)
        told = await world.join(require_known_member_id=True)
        world.pass_time(5_000)
        assert len(await world.groups.list()) == 1
        assert (await world.join(member_id=told.member_id)).refusal is None
        await world.groups.leave("g", [(told.member_id, None)])
        world.pass_time(EXPIRY_CHECK_INTERVAL_MS)
        assert await world.groups.list() == []

    run(story)
