"""Finishing what an earlier run decided, and writing again what the broker aborted of it. On a cluster in memory."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafka_core.errors import BrokerUnavailable, DecisionBroken, NondeterministicPlan, RetriableError
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.machine import per_task as cm
from pyspark_kafka_eos.commit.proof import Fate
from pyspark_kafka_eos.commit.shell import CommitShell
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.slot.plan import ALL_OTHERS
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, OUTPUT, FakeRun, World, decision_of, send
from tests.pyspark_kafka_eos.commit.test_shell import newest, states

# ---- finishing what an earlier run decided


def resume(world: World, seals: Sequence[Seal], **shell: typing.Any) -> CommitShell:
    carried_out = world.shell(decision_of(seals), **shell)
    carried_out.run(cm.resume(tuple(seals)))
    return carried_out


def test_what_is_decided_and_open_is_committed_by_the_next_run(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    world.decide(decision_of(seals))
    world.end(seals[0], commit=True)

    resume(world, seals)

    assert states(world) == ["CompleteCommit"] * 2


def test_a_decided_slot_that_shows_no_marker_anywhere_is_committed(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal]))
    for where in OUTPUT[:2]:
        world.kafka.forget_marker(where)
    world.end(seal, commit=True)
    # An identity of nobody's: the coordinator says nothing any more.
    world.transactions.init_producer_id("pipe:0", 60_000)

    resume(world, [seal])

    assert world.fates(seal) == [Fate.COMMITTED, Fate.COMMITTED]


def test_a_decided_slot_that_nobody_can_know_of_stops_the_query_and_names_it(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    world.decide(decision_of(seals))
    world.end(seals[0], commit=True)
    world.end(seals[1], commit=False)
    world.kafka.expire("pipe:1")
    world.kafka.log(OUTPUT[1]).lose_beginning(world.kafka.log(OUTPUT[1]).end)

    with pytest.raises(DecisionBroken, match="the outcome of decided slots is unknown") as broken:
        resume(world, seals)

    assert "slot 1: pipe:1" in broken.value.message
    assert "out-1 from offset 0" in broken.value.message
    assert broken.value.facts["slots"] == (1,)


def test_a_batch_in_one_transaction_is_committed_with_its_decision_whatever_the_log_still_shows(
    world: World,
) -> None:
    whole = world.slot(0, name="pipe:batch")
    world.end(whole, commit=True)
    world.kafka.expire("pipe:batch")
    world.kafka.log(OUTPUT[0]).lose_beginning(world.kafka.log(OUTPUT[0]).end)

    shell = resume(world, [whole])

    assert shell.decision.in_one_transaction


# ---- writing again what the broker aborted


class Replaying:
    """Writes the slots that it is told again, as they were or otherwise; the others only measure."""

    def __init__(self, world: World, decided: Sequence[Seal], **changes: typing.Any) -> None:
        self.world, self.decided, self.changes = world, decided, changes
        self.asked: list[frozenset[int]] = []

    def __call__(self, slots: frozenset[int]) -> Sequence[Seal]:
        self.asked.append(slots)
        return [self._again(seal, slots) for seal in self.decided]

    def _again(self, seal: Seal, slots: frozenset[int]) -> Seal:
        if seal.slot not in slots and ALL_OTHERS not in slots:
            return replace(seal, identity=None, partitions=())
        here = {part.partition: part.records for part in seal.partitions}
        return replace(self.world.slot(seal.slot, here), **self.changes)


def lost_and_kept(world: World) -> list[Seal]:
    """A decided batch of which slot 0 is committed and slot 1 aborted."""
    seals = [world.slot(0), world.slot(1)]
    world.decide(decision_of(seals))
    world.end(seals[0], commit=True)
    world.end(seals[1], commit=False)
    return seals


def test_a_lost_slot_is_written_again_recorded_and_only_then_ended(world: World) -> None:
    seals = lost_and_kept(world)
    replay = Replaying(world, seals)
    recorded: list[int] = []
    world.kafka.fault(
        "EndTxn",
        lambda: recorded.append(world.ledger.look().newest.repaired),  # type: ignore[union-attr]
        matches=lambda each: each.transactional_id == "pipe:1" and each.committed,
    )

    shell = resume(world, seals, replay=replay)

    assert replay.asked == [frozenset({1})]
    assert recorded == [1]
    assert (shell.decision.repaired, newest(world)) == (1, shell.decision)
    assert [len(world.shown(where)) for where in OUTPUT[:2]] == [2, 2]


def test_what_an_abort_left_without_its_marker_does_not_show_with_what_is_written_again(world: World) -> None:
    seals = [world.slot(0), world.slot(1, {1: 1, 2: 1})]
    world.decide(decision_of(seals))
    world.end(seals[0], commit=True)
    forgotten = world.kafka.forget_marker(OUTPUT[2])
    world.end(seals[1], commit=False)

    resume(world, seals, replay=Replaying(world, seals))

    assert forgotten.fired == 1
    assert [len(world.shown(where)) for where in OUTPUT[:3]] == [2, 1, 1]


def test_a_late_attempts_rows_that_the_repair_would_show_too_end_the_repair_and_the_next_run_does_it(
    world: World,
) -> None:
    """Found by TLC: docs/design/model, TaskCommit without CheckRepair."""
    seals = lost_and_kept(world)
    replay = Replaying(world, seals)

    def beside_a_late_attempt(slots: frozenset[int]) -> Sequence[Seal]:
        # An attempt of the decided batch comes late and writes. The task that repairs aborts it, and the broker forgets
        # the marker.
        world.slot(1)
        world.kafka.forget_marker(OUTPUT[1])
        return replay(slots)

    with pytest.raises(RetriableError, match="the repair is aborted, and the next run does it again") as ended:
        resume(world, seals, replay=beside_a_late_attempt)

    assert ended.value.facts["partition"] == str(OUTPUT[1])
    assert world.shown(OUTPUT[1]) == []
    assert newest(world) == decision_of(seals)

    resume(world, seals, replay=replay)

    assert [len(world.shown(where)) for where in OUTPUT[:2]] == [2, 2]


def test_where_nothing_of_the_batch_is_committed_every_slot_may_write(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    world.decide(decision_of(seals))
    world.kafka.advance(60_001)
    replay = Replaying(world, seals)

    resume(world, seals, replay=replay)

    assert replay.asked == [frozenset({0, 1, ALL_OTHERS})]
    assert [len(world.shown(where)) for where in OUTPUT[:2]] == [2, 2]


def test_without_a_replay_the_batch_is_broken_for_now_and_nothing_is_skipped(world: World) -> None:
    seals = lost_and_kept(world)

    with pytest.raises(DecisionBroken, match=r"slots \[1\] were aborted, and this run cannot replay"):
        resume(world, seals)

    assert newest(world) == decision_of(seals)
    assert world.shown(OUTPUT[1]) == []


def test_a_replay_that_is_not_what_was_decided_is_dropped_and_stops_the_query(world: World) -> None:
    seals = lost_and_kept(world)

    with pytest.raises(NondeterministicPlan, match="slot 1 of a decided batch was aborted") as other:
        resume(world, seals, replay=Replaying(world, seals, digest=99))

    assert other.value.facts["replayed_digest"] == f"{99:016x}"
    assert world.state("pipe:1") == "CompleteAbort"
    assert newest(world) == decision_of(seals)


def test_a_replay_that_fails_passes_its_error_on_and_what_it_wrote_is_cleaned_up(world: World) -> None:
    seals = lost_and_kept(world)
    run = FakeRun(cleaning_fails=BrokerUnavailable("nobody there"))

    def fails(slots: frozenset[int]) -> Sequence[Seal]:
        raise KeyError("the user's code")

    with pytest.raises(KeyError, match="the user's code"):
        resume(world, seals, replay=fails, run=run)

    assert run.cleaned == 1


def test_a_repair_that_is_not_recorded_is_dropped_and_the_ledger_still_names_the_lost(world: World) -> None:
    seals = lost_and_kept(world)
    producer = world.driver()
    full = world.kafka.fault(
        "Produce",
        Code.MESSAGE_TOO_LARGE,
        matches=lambda each: each.transactional_id == DRIVER,
    )

    with pytest.raises(DecisionBroken, match="is not finished"):
        resume(world, seals, producer=producer, replay=Replaying(world, seals))

    assert full.fired == 1
    assert world.state("pipe:1") == "CompleteAbort"
    assert newest(world) == decision_of(seals)


# ---- a part of a slot


def torn(world: World) -> Seal:
    """A decided slot that is committed in partition 0 and aborted in partition 1."""
    seal = world.slot(0, {0: 2, 1: 1}, digests={0: 3, 1: 4})
    world.decide(decision_of([seal]))
    world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)
    stranger = Producer(world.cluster, "pipe:0")
    stranger.initialize()
    stranger.begin()
    send(stranger, OUTPUT[1], b"late")
    stranger.flush()
    stranger.abort()
    assert world.fates(seal) == [Fate.COMMITTED, Fate.ABORTED]
    return seal


def narrowed(world: World, seal: Seal, digests: tuple[int, int] = (3, 4)) -> Seal:
    """What a replay gives that may send to partition 1 alone."""
    again = world.slot(0, {1: 1}, digests={1: digests[1]})
    measured = replace(seal.partitions[0], digest=digests[0], first_offset=-1)
    return replace(again, records=seal.records, digest=seal.digest, measured=(measured,))


def test_of_a_torn_slot_only_the_lost_partitions_are_written_again(world: World) -> None:
    seal = torn(world)
    run = FakeRun()

    shell = resume(world, [seal], run=run, replay=lambda slots: [narrowed(world, seal)])

    assert run.narrowed == [{0: frozenset({OUTPUT[1]})}]
    assert [len(world.shown(where)) for where in OUTPUT[:2]] == [2, 1]
    (again,) = shell.decision.seals
    assert [(each.identity, each.part) for each in again.kept] == [(seal.identity, seal.partitions[0])]
    assert again.measured == ()
    assert newest(world) == shell.decision


def test_a_replay_that_puts_other_rows_into_a_partition_of_a_torn_slot_is_dropped(world: World) -> None:
    seal = torn(world)

    with pytest.raises(DecisionBroken, match="puts other rows into out-0, out-1 than were decided"):
        resume(world, [seal], replay=lambda slots: [narrowed(world, seal, digests=(4, 3))])

    assert world.state("pipe:0") == "CompleteAbort"
    assert world.shown(OUTPUT[1]) == []
    assert newest(world) == decision_of([seal])
