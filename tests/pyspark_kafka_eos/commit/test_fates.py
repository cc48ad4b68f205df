"""What the logs show of many transactions: the same as of each alone, in requests that do not grow with slots times
partitions.
"""

from __future__ import annotations

import logging

import pytest

from kafka_core.errors import AuthorizationFailed, BrokerUnavailable, OutcomeUnknown
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.commit.fates import Fate, fate_of, fates_of, lacking
from pyspark_kafka_eos.commit.gone.absent import warn_of_gone
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.proof import prove
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations.audit import verify
from tests.pyspark_kafka_eos.commit.fakes import OUTPUT, PIPELINE, World, decision_of

SLOTS = 6


def written(world: World, slots: int = SLOTS) -> list[Seal]:
    """Slots that have all written to every partition, one after another."""
    return [world.slot(slot, dict.fromkeys(range(len(OUTPUT)), 2)) for slot in range(slots)]


def forgotten(world: World, seals: list[Seal]) -> None:
    """No coordinator remembers them."""
    for seal in seals:
        world.kafka.expire(seal.transactional_id)


def ended(world: World, slots: int = SLOTS) -> list[Seal]:
    """Slots of which every second one is aborted and the others are committed, and no coordinator remembers any."""
    seals = written(world, slots)
    for seal in seals:
        world.end(seal, commit=seal.slot % 2 == 0)
    forgotten(world, seals)
    return seals


def test_many_slots_are_proven_by_one_reading_of_each_partition(world: World) -> None:
    seals = ended(world)
    world.kafka.asked.clear()

    proofs = prove(world.cluster, seals)

    verdicts = [Outcome.COMMITTED, Outcome.ABORTED] * (SLOTS // 2)
    assert [proofs[slot].verdict for slot in range(SLOTS)] == verdicts
    # One for the topic, whatever the number of its partitions; one for each partition, whatever the number of slots.
    assert (world.kafka.asked["Metadata"], world.kafka.asked["Fetch"]) == (1, len(OUTPUT))


def test_whether_records_are_gone_is_asked_for_all_partitions_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    seals = ended(world)
    world.kafka.log(OUTPUT[1]).lose_tail(0)
    world.kafka.asked.clear()

    with caplog.at_level(logging.WARNING):
        warn_of_gone(world.cluster, seals)

    assert (world.kafka.asked["Metadata"], world.kafka.asked["ListOffsets"]) == (1, 2)
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == SLOTS and all(str(OUTPUT[1]) in each for each in warned)


def test_a_batch_is_verified_by_one_question_for_all_partitions_and_one_reading_of_each(world: World) -> None:
    seals = written(world)
    for seal in seals:
        world.end(seal, commit=True)
    world.kafka.asked.clear()

    findings = verify(world.cluster, decision_of(seals))

    assert [each.found_records for each in findings] == [2 * len(OUTPUT)] * SLOTS
    asked = world.kafka.asked
    # Metadata: whether the topics are there, and their leaders by every broker.
    assert (asked["Metadata"], asked["DescribeConfigs"], asked["ListOffsets"]) == (2, 0, 2)
    assert asked["Fetch"] == len(OUTPUT)


def test_each_of_many_fates_is_that_of_the_slot_alone(world: World) -> None:
    """One partition has all that can become of a transaction, under a log whose beginning and end were lost."""
    first = world.slot(0, {0: 3})
    world.end(first, commit=True)
    seals = [first, *(world.slot(slot, {0: 2}) for slot in range(1, 5))]
    world.end(seals[1], commit=True)
    world.end(seals[2], commit=False)
    removed = world.slot(5, {0: 1})
    world.end(removed, commit=True)
    end = world.kafka.log(OUTPUT[0]).end
    cut = world.slot(6, {0: 4})
    seals += [removed, cut]
    log = world.kafka.log(OUTPUT[0])
    log.lose_tail(end)
    # Another producer's record stands where the first of those that were cut off was.
    world.end(world.slot(7, {0: 1}), commit=True)
    behind = world.slot(8, {0: 2})
    seals.append(behind)
    log.lose_tail(log.end - 2)
    log.lose_beginning(1)

    alone = {seal.slot: fates_of(world.cluster, [seal])[seal.slot] for seal in seals}

    assert fates_of(world.cluster, seals) == alone
    assert [fate for fates in alone.values() for fate in fates.values()] == [
        Fate.REMOVED, Fate.COMMITTED, Fate.ABORTED, Fate.NO_MARKER, Fate.NO_MARKER, Fate.COMMITTED, Fate.LOST, Fate.LOST,
    ]  # fmt: skip


def test_a_log_that_begins_behind_the_first_and_before_the_others_tells_all_but_the_first(
    world: World,
) -> None:
    seals = [world.slot(slot, {0: 2}) for slot in range(3)]
    for seal in seals:
        world.end(seal, commit=True)
    world.kafka.log(OUTPUT[0]).lose_beginning(2)

    found = fates_of(world.cluster, seals)

    assert [found[slot][OUTPUT[0]] for slot in range(3)] == [Fate.REMOVED, Fate.COMMITTED, Fate.COMMITTED]


def test_an_offset_that_nobody_knows_is_looked_for_nowhere(world: World) -> None:
    world.slot(0, {0: 1})
    world.kafka.asked.clear()

    assert fate_of(world.cluster, OUTPUT[0], 1, -1) is Fate.UNKNOWN
    assert not world.kafka.asked


def test_what_many_slots_left_open_is_aborted_all_at_once(world: World) -> None:
    seals = written(world)
    names = [seal.transactional_id for seal in seals]
    world.cluster.network.together.clear()

    found = world.transactions.fence(names, 60_000)

    assert set(found) == set(names)
    assert world.cluster.network.together.count(["InitProducerId"] * SLOTS) >= 1
    assert all(name in {f"{PIPELINE}:{slot}" for slot in range(SLOTS)} for name in found)
    forgotten(world, seals)
    assert [prove(world.cluster, seals)[slot].verdict for slot in range(SLOTS)] == [Outcome.ABORTED] * SLOTS


def test_an_id_whose_coordinator_moved_is_fenced_at_the_new_one(world: World) -> None:
    names = [seal.transactional_id for seal in written(world)]
    moved = world.kafka.fault("InitProducerId", Code.NOT_COORDINATOR, times=2)
    world.kafka.asked.clear()

    assert set(world.transactions.fence(names, 60_000)) == set(names)
    assert moved.fired == 2
    # Both are looked up again in one request.
    assert world.kafka.asked["FindCoordinator"] == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationFailed),
        (Code.CONCURRENT_TRANSACTIONS, OutcomeUnknown),
    ],
)
def test_an_id_that_is_not_fenced_is_named(world: World, code: Code, error: type[Exception]) -> None:
    names = [seal.transactional_id for seal in written(world)]
    world.kafka.fault("InitProducerId", code, times=1_000_000)

    with pytest.raises(error, match=rf"InitProducerId for '{PIPELINE}:0'"):
        world.transactions.fence(names, 60_000)


@pytest.mark.parametrize("how", ["its fate", "what it lacks"])
def test_nothing_is_concluded_of_a_topic_that_is_recreated_after_it_was_found_there(world: World, how: str) -> None:
    (seal,) = (world.slot(0, {0: 2}),)
    world.end(seal, commit=True)
    where = OUTPUT[0]

    def recreated() -> None:
        world.kafka.delete("out")
        world.kafka.create("out", len(OUTPUT))

    world.kafka.fault("Fetch", recreated)

    with pytest.raises(BrokerUnavailable, match="UNKNOWN_TOPIC_ID"):
        fates_of(world.cluster, [seal]) if how == "its fate" else lacking(world.cluster, seal, [where])

    assert fates_of(world.cluster, [seal]) == {0: {where: Fate.GONE}}
