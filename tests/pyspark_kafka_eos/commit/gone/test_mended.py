"""Records whose own log is gone: what the note of a mending still shows of them. On a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kafka_core.errors import DecisionBroken
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.commit.gone.absent import why_unknown
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.proof import Proof, prove, verdict_on
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.fakes import OUTPUT, PIPELINE, RUN_OPTIONS, FakeRun, World, decision_of
from tests.pyspark_kafka_eos.commit.former_coordinator import ALL
from tests.pyspark_kafka_eos.commit.node_log import NodeLog
from tests.pyspark_kafka_eos.commit.test_shell_repair import Replaying, resume

NAME = f"{PIPELINE}:0"
TIMEOUT_MS = 60_001


class Died(BaseException):
    """The process that mends is killed."""


@pytest.fixture(autouse=True)
def nothing_armed() -> Iterator[None]:
    yield
    crash_points.arm("")


def torn(world: World, name: str = NAME) -> Seal:
    """Decided and committed, and the broker has forgotten the marker of one partition."""
    seal = world.slot(0, {0: 2, 1: 2, 2: 1}, name=name, digests={0: 5, 1: 6, 2: 7})
    world.decide(decision_of([seal]))
    forgotten = world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)
    assert forgotten.fired == 1
    return seal


def die() -> None:
    raise Died


def mended(world: World, seal: Seal) -> None:
    assert world.mender.await_markers([seal], commit=True)


def died_at(world: World, seal: Seal, point: str) -> None:
    """The mending gets to that point, and what it has open by then times out."""
    crash_points.arm(point, 1, die)
    with pytest.raises(Died):
        world.mender.await_markers([seal], commit=True)
    crash_points.arm("")
    world.kafka.advance(TIMEOUT_MS)


def recreated(world: World) -> None:
    world.kafka.delete("out")
    world.kafka.create("out", len(OUTPUT))


def committed_and_removed(world: World) -> tuple[Seal, NodeLog]:
    """A slot whose commit one partition shows; retention has taken all of the other one, whose log is returned."""
    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal]))
    world.end(seal, commit=True)
    log = world.kafka.log(OUTPUT[1])
    log.lose_beginning(log.end)
    return seal, log


def removed(world: World) -> None:
    for where in OUTPUT[:3]:
        log = world.kafka.log(where)
        log.lose_beginning(log.end)


LOSSES = pytest.mark.parametrize("lose", [recreated, removed])
Lose = Callable[[World], None]


def proof_of(world: World, seal: Seal) -> Proof:
    """By a process that remembers nothing, under a coordinator that does not either."""
    world.transactions.init_producer_id(seal.transactional_id, 60_000)
    world.fresh_process()
    return prove(world.cluster, [seal], look=world.ledger.look_anew)[seal.slot]


@LOSSES
def test_what_the_timeout_of_a_mending_aborted_is_lost_although_its_log_is_gone(world: World, lose: Lose) -> None:
    seal = torn(world)
    died_at(world, seal, "mend-added")
    lose(world)

    assert proof_of(world, seal) == Proof(Outcome.ABORTED, frozenset({OUTPUT[1]}))


@LOSSES
def test_what_a_mending_committed_is_committed_although_its_log_is_gone(world: World, lose: Lose) -> None:
    seal = torn(world)
    mended(world, seal)
    lose(world)

    assert proof_of(world, seal) == Proof(Outcome.COMMITTED)


@LOSSES
@pytest.mark.parametrize("point", ["before-mend", "mend-added"])
def test_a_former_leader_of_the_ledger_that_lacks_the_note_or_its_end_is_not_the_one_that_is_asked(
    world: World, lose: Lose, point: str
) -> None:
    """Its records are committed: without the note nobody shows it, without its end a person had to decide."""
    seal = torn(world)
    crash_points.arm(point, 1, lambda: world.kafka.cut_off(world.where))
    mended(world, seal)
    crash_points.arm("")
    lose(world)
    world.kafka.brokers = list(ALL)

    assert proof_of(world, seal) == Proof(Outcome.COMMITTED)


def test_the_notes_are_looked_at_once_for_all_slots(world: World) -> None:
    """A look asks every broker, and one that is down holds it up for two seconds: 10,000 slots had one each."""
    seals = [world.slot(number) for number in range(2)]
    world.decide(decision_of(seals))
    for seal in seals:
        world.end(seal, commit=True)
        world.transactions.init_producer_id(seal.transactional_id, 60_000)
    recreated(world)
    world.fresh_process()
    looks: list[LedgerView] = []

    def look() -> LedgerView:
        looks.append(world.ledger.look_anew())
        return looks[-1]

    prove(world.cluster, seals, look=look)

    assert len(looks) == 1


@LOSSES
@pytest.mark.parametrize("name", [NAME, f"{PIPELINE}:batch"])
def test_where_nothing_shows_how_a_mending_ended_nobody_takes_the_slot_for_committed(
    world: World, lose: Lose, name: str
) -> None:
    seal = torn(world, name)
    died_at(world, seal, "after-note-mending")
    lose(world)

    proof = proof_of(world, seal)

    assert proof == Proof(Outcome.UNKNOWN, forgotten=True, doubtful=frozenset({OUTPUT[1]}))
    decision = replace(decision_of([seal]))
    assert verdict_on(decision, proof, SinkOptions.parse(RUN_OPTIONS)) is Outcome.UNKNOWN
    assert "a marker was missing in out-1" in why_unknown(world.cluster, seal, proof)
    adopted = SinkOptions.parse({**RUN_OPTIONS, "adopt.checkpoint": "true"})
    assert verdict_on(decision, proof, adopted) is Outcome.COMMITTED


def test_a_mending_of_the_transaction_before_says_nothing_of_this_one(world: World) -> None:
    before = torn(world)
    mended(world, before)
    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal], batch_id=1))
    world.end(seal, commit=False)
    recreated(world)

    proof = proof_of(world, seal)

    assert proof == Proof(Outcome.UNKNOWN, forgotten=True, gone=frozenset(OUTPUT[:2]))


def test_without_a_note_a_part_that_is_gone_beside_a_committed_one_is_named(world: World) -> None:
    seal, log = committed_and_removed(world)
    proof = proof_of(world, seal)

    assert proof == Proof(Outcome.COMMITTED, removed=frozenset({OUTPUT[1]}))
    decision = decision_of([seal])
    refusing = SinkOptions.parse({**RUN_OPTIONS, "on.expired.record": "refuse"})
    assert verdict_on(decision, proof, SinkOptions.parse(RUN_OPTIONS)) is Outcome.COMMITTED
    assert verdict_on(decision, proof, refusing) is Outcome.UNKNOWN
    adopted = SinkOptions.parse({**RUN_OPTIONS, "on.expired.record": "refuse", "adopt.checkpoint": "true"})
    assert verdict_on(decision, proof, adopted) is Outcome.COMMITTED
    said = why_unknown(world.cluster, seal, proof)
    assert f"out-1 begins at offset {log.end} and the slot's first record there had 0: retention" in said


def test_a_run_that_is_to_refuse_what_was_removed_stops_and_names_where_the_log_begins(world: World) -> None:
    seal, log = committed_and_removed(world)
    world.transactions.init_producer_id(NAME, 60_000)
    run = FakeRun(options=SinkOptions.parse({**RUN_OPTIONS, "on.expired.record": "refuse"}))

    with pytest.raises(DecisionBroken, match=f"out-1 begins at offset {log.end}"):
        resume(world, [seal], run=run)


# ---- a topic that is recreated under an open transaction


@pytest.mark.parametrize("again", [True, False], ids=["recreated", "deleted"])
def test_a_decided_slot_whose_topic_went_while_it_was_open_counts_as_aborted(world: World, again: bool) -> None:
    """Nobody has seen any of it, and the commit of what is not there would end the batch without it."""
    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal]))
    world.kafka.delete("out")
    if again:
        world.kafka.create("out", len(OUTPUT))
    world.fresh_process()

    assert prove(world.cluster, [seal], look=world.ledger.look_anew)[0] == Proof(Outcome.ABORTED, unseen=True)


def test_such_a_slot_is_aborted_and_written_into_the_new_topic(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal]))
    recreated(world)
    world.fresh_process()

    resume(world, [seal], replay=Replaying(world, [seal]))

    assert [world.shown(where) for where in OUTPUT[:2]] == [[b"slot 0 row 0"], [b"slot 0 row 0"]]


def test_what_the_broker_aborted_is_noted_before_its_slot_is_written_again_and_known_when_that_fails(
    world: World,
) -> None:
    """The tasks that write it again take the coordinator's word, and the topic's former log is gone."""
    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal]))
    recreated(world)
    world.fresh_process()

    def fails(_: frozenset[int]) -> list[Seal]:
        world.transactions.init_producer_id(NAME, 60_000)
        raise Died

    with pytest.raises(Died):
        resume(world, [seal], replay=fails)

    assert proof_of(world, seal) == Proof(Outcome.ABORTED)
    resume(world, [seal], replay=Replaying(world, [seal]))
    assert [world.shown(where) for where in OUTPUT[:2]] == [[b"slot 0 row 0"], [b"slot 0 row 0"]]
