"""What became of a sealed transaction, read out of a cluster in memory: coordinator first, then every partition's
log.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.open_parts import never_ended
from pyspark_kafka_eos.commit.proof import Fate, Proof, find_marker, judge, prove
from pyspark_kafka_eos.model import Seal
from tests.pyspark_kafka_eos.commit.fakes import OUTPUT, PIPELINE, World, places, send

NAME = f"{PIPELINE}:0"


def proof_of(world: World, seal: Seal, settle_ms: int = 30_000) -> Proof:
    return prove(world.cluster, [seal], settle_ms)[seal.slot]


def end_what_hangs(world: World, where: TopicPartition, *, commit: bool) -> None:
    """As a mending whose end is another than the first one's: an abort is that of its timeout."""
    identity = world.transactions.init_producer_id(NAME, 60_000)
    world.transactions.add_partitions(NAME, identity, [where])
    world.end(Seal(NAME, 0, identity, 1), commit=commit)


# ---- the coordinator's word


def test_a_transaction_that_nobody_ended_is_open(world: World) -> None:
    assert proof_of(world, world.slot(0)).verdict is Outcome.OPEN


@pytest.mark.parametrize(("commit", "verdict"), [(True, Outcome.COMMITTED), (False, Outcome.ABORTED)])
def test_an_ended_transaction_is_what_it_was_ended_as(world: World, commit: bool, verdict: Outcome) -> None:
    seal = world.slot(0)
    world.end(seal, commit=commit)

    assert proof_of(world, seal) == Proof(verdict)


def test_of_a_transaction_without_a_record_nothing_is_left_to_prove(world: World) -> None:
    """Such is a batch without rows where the batch is one transaction. Its coordinator has forgotten the id."""
    seal = replace(world.slot(0), partitions=(), records=0)
    world.end(seal, commit=True)
    world.kafka.expire(NAME)

    assert proof_of(world, seal).verdict is Outcome.GONE


def test_a_commit_whose_markers_are_on_their_way_is_a_commit(world: World) -> None:
    seal = world.slot(0)
    late = world.kafka.forget_marker(OUTPUT[0], late=True)
    world.end(seal, commit=True)

    assert world.state(NAME) == "PrepareCommit"
    assert proof_of(world, seal).verdict is Outcome.COMMITTED
    assert late.fired == 1


def test_the_word_of_a_coordinator_that_commits_needs_no_log(world: World) -> None:
    seal = world.slot(0)
    world.end(seal, commit=True)
    before = world.kafka.asked["Fetch"]

    assert proof_of(world, seal).verdict is Outcome.COMMITTED
    assert world.kafka.asked["Fetch"] == before


def test_the_end_of_a_later_transaction_of_the_id_is_not_taken_for_this_ones(world: World) -> None:
    seal = world.slot(0)
    world.end(seal, commit=True)
    world.end(world.slot(0), commit=False)

    assert world.state(NAME) == "CompleteAbort"
    assert proof_of(world, seal).verdict is Outcome.COMMITTED


def test_the_commit_of_a_later_transaction_of_the_id_is_not_taken_for_this_ones(world: World) -> None:
    seal = world.slot(0)
    world.end(seal, commit=False)
    world.end(world.slot(0), commit=True)

    assert world.state(NAME) == "CompleteCommit"
    assert proof_of(world, seal).verdict is Outcome.ABORTED


def test_an_id_that_the_coordinator_has_forgotten_is_proven_by_the_log(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.end(seal, commit=True)
    world.kafka.expire(NAME)

    assert world.state(NAME) == "NotFound"
    assert proof_of(world, seal) == Proof(Outcome.COMMITTED)


def test_an_abort_under_the_sealed_identity_is_the_transactions_own(world: World) -> None:
    """With version 1 an abort leaves the identity as it is; the log that says it too may be gone."""
    seal = world.slot(0)
    world.end(seal, commit=False)
    world.kafka.delete("out")
    world.kafka.create("out", len(OUTPUT))

    assert proof_of(world, seal) == Proof(Outcome.ABORTED)


def test_a_timeout_proves_the_abort(world: World) -> None:
    seal = world.slot(0)
    world.kafka.advance(60_001)

    assert proof_of(world, seal) == Proof(Outcome.ABORTED)


def test_an_abort_whose_marker_is_on_its_way_is_waited_for(world: World) -> None:
    seal = world.slot(0)
    world.kafka.forget_marker(OUTPUT[0], late=True)
    world.kafka.advance(60_001)
    assert world.state(NAME) == "PrepareAbort"
    world.kafka.at_pause(world.kafka.release_markers)

    assert proof_of(world, seal) == Proof(Outcome.ABORTED)


def test_a_marker_that_does_not_come_in_time_leaves_the_outcome_unknown(world: World) -> None:
    seal = world.slot(0)
    world.kafka.forget_marker(OUTPUT[0], late=True)
    world.kafka.advance(60_001)

    assert proof_of(world, seal, settle_ms=200) == Proof(Outcome.UNKNOWN)


# ---- the partitions' word


def test_a_transaction_committed_in_one_partition_and_aborted_in_another_is_never_called_committed(
    world: World,
) -> None:
    seal = world.slot(0, {0: 2, 1: 2, 2: 1})
    forgotten = world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)
    end_what_hangs(world, OUTPUT[1], commit=False)

    assert forgotten.fired == 1
    assert world.fates(seal) == [Fate.COMMITTED, Fate.ABORTED, Fate.COMMITTED]
    assert proof_of(world, seal) == Proof(Outcome.ABORTED, frozenset({OUTPUT[1]}))


def test_a_transaction_that_is_committed_everywhere_by_two_ends_is_committed(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)
    end_what_hangs(world, OUTPUT[1], commit=True)

    assert proof_of(world, seal) == Proof(Outcome.COMMITTED)


def test_no_marker_in_any_partition_and_everything_there_is_unknown_and_was_never_ended(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    for where in places(seal):
        world.kafka.forget_marker(where)
    world.end(seal, commit=True)
    world.transactions.init_producer_id(NAME, 60_000)

    assert world.fates(seal) == [Fate.NO_MARKER, Fate.NO_MARKER]
    assert proof_of(world, seal) == Proof(Outcome.UNKNOWN)
    assert never_ended(world.cluster, seal)


def test_what_was_ended_in_one_partition_was_ended(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)

    assert not never_ended(world.cluster, seal)


def test_records_that_compaction_removed_leave_their_marker_as_the_witness(world: World) -> None:
    seal = world.slot(0, {0: 1})
    world.end(seal, commit=True)
    world.kafka.expire(NAME)
    world.kafka.log(OUTPUT[0]).compact(0)

    assert proof_of(world, seal).verdict is Outcome.COMMITTED


def test_what_retention_has_removed_is_unknown(world: World) -> None:
    seal = world.slot(0, {0: 2})
    world.end(seal, commit=True)
    world.kafka.expire(NAME)
    log = world.kafka.log(OUTPUT[0])
    log.lose_beginning(log.end)

    assert world.fates(seal) == [Fate.REMOVED]
    assert proof_of(world, seal) == Proof(Outcome.UNKNOWN, forgotten=True, removed=frozenset({OUTPUT[0]}))


def test_what_retention_has_removed_in_part_is_unknown_and_not_gone(world: World) -> None:
    """Called gone, its batch would count as finished: what is left of it would hold readers for ever."""
    seal = world.slot(0, {0: 3})
    for where in places(seal):
        world.kafka.forget_marker(where)
    world.end(seal, commit=True)
    world.kafka.expire(NAME)
    log = world.kafka.log(OUTPUT[0])
    log.lose_beginning(1)

    assert log.last_stable_offset < log.end
    assert proof_of(world, seal) == Proof(Outcome.UNKNOWN, forgotten=True, removed=frozenset({OUTPUT[0]}))


def test_what_an_election_cut_off_the_log_counts_as_aborted(world: World) -> None:
    seal = world.slot(0, {0: 2})
    world.end(seal, commit=True)
    world.kafka.expire(NAME)
    world.kafka.log(OUTPUT[0]).lose_tail(0)

    assert world.fates(seal) == [Fate.LOST]
    assert proof_of(world, seal) == Proof(Outcome.ABORTED)


def test_where_other_records_stand_instead_the_sealed_ones_are_lost(world: World) -> None:
    seal = world.slot(0, {0: 2})
    world.end(seal, commit=True)
    world.kafka.expire(NAME)
    world.kafka.log(OUTPUT[0]).lose_tail(0)
    world.end(world.slot(1, {0: 5}), commit=True)

    assert world.fates(seal) == [Fate.LOST]


def test_of_a_topic_that_was_deleted_or_recreated_smaller_nobody_knows_what_readers_had(world: World) -> None:
    """Its records may have been visible, or aborted by a timeout: with the log and the coordinator's memory the proof
    is gone.
    """
    seal = world.slot(0, {0: 1, 1: 1})
    world.end(seal, commit=True)
    world.kafka.expire(NAME)
    world.kafka.delete("out")
    assert proof_of(world, seal) == Proof(Outcome.UNKNOWN, forgotten=True, gone=frozenset(OUTPUT[:2]))

    world.kafka.create("out", 1)
    assert world.fates(seal) == [Fate.GONE, Fate.GONE]


def test_other_producers_markers_say_nothing_of_this_one(world: World) -> None:
    seal = world.slot(0, {0: 1})
    world.end(world.slot(1, {0: 1}), commit=True)
    world.end(world.slot(2, {0: 1}), commit=False)

    assert world.fates(seal) == [Fate.NO_MARKER]


def test_the_first_marker_counts_and_not_that_of_a_later_transaction(world: World) -> None:
    seal = world.slot(0, {0: 1})
    world.end(seal, commit=False)
    world.end(world.slot(0, {0: 1}), commit=True)
    assert seal.identity is not None

    assert find_marker(world.cluster, OUTPUT[0], seal.identity.producer_id, 0) is Outcome.ABORTED


def test_a_partition_acknowledged_without_an_offset_proves_nothing(world: World) -> None:
    seal = world.slot(0, {0: 1})
    world.end(seal, commit=True)
    (part,) = seal.partitions
    assert seal.identity is not None

    assert world.fates(replace(seal, partitions=(replace(part, first_offset=-1),))) == [Fate.UNKNOWN]
    assert find_marker(world.cluster, OUTPUT[0], seal.identity.producer_id, -1) is Outcome.UNKNOWN


def test_a_leader_that_is_not_there_for_a_moment_is_asked_again(world: World) -> None:
    seal = world.slot(0, {0: 1})
    world.end(seal, commit=True)
    world.kafka.expire(NAME)
    moved = world.kafka.fault("Fetch", Code.NOT_LEADER_OR_FOLLOWER, times=2)

    assert proof_of(world, seal).verdict is Outcome.COMMITTED
    assert moved.fired == 2


def test_several_seals_are_proven_each_by_itself(world: World) -> None:
    seals = [world.slot(slot) for slot in range(3)]
    world.end(seals[0], commit=True)
    world.end(seals[2], commit=False)

    proofs = prove(world.cluster, seals)

    verdicts = [proofs[slot].verdict for slot in range(3)]
    assert verdicts == [Outcome.COMMITTED, Outcome.OPEN, Outcome.ABORTED]


def test_a_late_attempt_that_only_took_the_id_has_ended_nothing_of_the_commit(world: World) -> None:
    seal = world.slot(0, {0: 1})
    world.end(seal, commit=True)
    stranger = Producer(world.cluster, NAME)
    stranger.initialize()
    stranger.begin()
    send(stranger, OUTPUT[0], b"late")
    stranger.flush()

    assert proof_of(world, seal).verdict is Outcome.COMMITTED


# ---- every combination


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_the_fates_come_to_never_calls_a_lost_part_committed(count: int) -> None:
    for found in itertools.product(Fate, repeat=count):
        fates = dict(zip(OUTPUT, found, strict=False))
        proof = judge(fates)
        lost = {where for where, fate in fates.items() if fate in (Fate.ABORTED, Fate.LOST)}
        # What was lost beside records of which nobody can say any more how they ended may have been committed.
        unclear = {Fate.UNKNOWN, Fate.REMOVED} & set(found) and not {Fate.ABORTED, Fate.COMMITTED} & set(found)
        unsaid = {
            name: frozenset(where for where, fate in fates.items() if fate is Fate[name.upper()])
            for name in ("gone", "removed", "doubtful")
        }
        if Fate.DOUBTFUL in found:
            assert proof == Proof(Outcome.UNKNOWN, forgotten=Fate.NO_MARKER not in found, **unsaid)
        elif lost and not unclear:
            assert proof.verdict is Outcome.ABORTED
            assert proof.lost == (lost if Fate.COMMITTED in found else set())
        elif Fate.COMMITTED in found:
            assert proof == Proof(Outcome.COMMITTED, **unsaid)
        else:
            assert proof == Proof(Outcome.UNKNOWN, forgotten=Fate.NO_MARKER not in found, **unsaid)
