"""Markers that a broker forgot: who may write them, in which order, and what is left to whom. On a cluster in
memory.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_core.errors import DecisionBroken, OutcomeUnknown
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.ledger.notes import Ended, Mending, Settled
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.open_parts import open_parts, partitions_of, states_of
from pyspark_kafka_eos.commit.proof import Fate, find_marker
from pyspark_kafka_eos.model import Decision, Seal
from tests.pyspark_kafka_eos.commit.fakes import (
    DRIVER,
    GROUP,
    OUTPUT,
    PIPELINE,
    SOURCE,
    World,
    decision_of,
    places,
    send,
)

NAME = f"{PIPELINE}:0"
MENDING_KEY = f"{PIPELINE}/mending/{NAME}".encode()
SETTLED_KEY = f"{PIPELINE}/settled".encode()


class Killed(Exception):
    """The process ended here."""


def kill_at(point: str) -> None:
    def die() -> None:
        raise Killed(point)

    crash_points.arm(point, 1, die)


def with_a_missing_marker(world: World, *, commit: bool = True) -> Seal:
    """A slot that is ended, and hangs in the second of its two partitions."""
    seal = world.slot(0, {0: 1, 1: 1})
    forgotten = world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=commit)
    assert forgotten.fired == 1
    return seal


def hangs(world: World, seal: Seal) -> list[TopicPartition]:
    states = states_of(world.cluster, partitions_of([seal]))
    assert states is not None
    return list(open_parts([seal], states).get(seal.slot, {}))


# ---- writing what is missing


@pytest.mark.parametrize(("commit", "fate"), [(True, Fate.COMMITTED), (False, Fate.ABORTED)])
def test_a_missing_marker_is_written_the_way_the_caller_says(world: World, commit: bool, fate: Fate) -> None:
    seal = with_a_missing_marker(world, commit=commit)

    assert world.mender.await_markers([seal], commit=commit)

    assert world.fates(seal) == [fate, fate]
    assert hangs(world, seal) == []


def test_where_every_marker_is_there_nothing_is_sent(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.end(seal, commit=True)
    before = dict(world.kafka.asked)

    assert not world.mender.await_markers([seal], commit=True)

    more = {api for api, count in world.kafka.asked.items() if count > before.get(api, 0)}
    assert more == {"DescribeProducers"}


def test_a_marker_that_is_late_is_waited_for_and_nothing_is_sent(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.kafka.forget_marker(OUTPUT[1], late=True)
    world.end(seal, commit=True)
    before = world.kafka.asked["InitProducerId"]
    for _ in range(3):
        world.kafka.at_pause(lambda: None)
    world.kafka.at_pause(world.kafka.release_markers)

    assert not world.mender.await_markers([seal], commit=True)

    assert world.kafka.asked["InitProducerId"] == before
    assert world.fates(seal) == [Fate.COMMITTED, Fate.COMMITTED]


def test_a_marker_that_never_comes_from_a_coordinator_at_work_is_an_unknown_outcome(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.kafka.forget_marker(OUTPUT[1], late=True)
    world.end(seal, commit=True)

    with pytest.raises(OutcomeUnknown, match="its marker does not appear in out-1"):
        world.mender.await_markers([seal], commit=True)

    assert world.state(NAME) == "PrepareCommit"


def test_what_is_open_under_the_sealed_identity_is_not_the_menders_to_end(world: World) -> None:
    seal = world.slot(0)

    with pytest.raises(OutcomeUnknown):
        world.mender.await_markers([seal], commit=True)

    assert world.state(NAME) == "Ongoing"
    assert world.identity(NAME) == seal.identity


def test_without_the_right_to_look_the_markers_are_taken_on_trust(world: World) -> None:
    seal = with_a_missing_marker(world)
    denied = world.kafka.fault("DescribeProducers", Code.TOPIC_AUTHORIZATION_FAILED, times=9)
    before = world.kafka.asked["InitProducerId"]

    assert not world.mender.await_markers([seal], commit=True)

    assert denied.fired == 1
    assert world.kafka.asked["InitProducerId"] == before


def test_a_topic_that_is_gone_holds_nobody_up(world: World) -> None:
    seal = with_a_missing_marker(world)
    world.kafka.delete("out")

    assert not world.mender.await_markers([seal], commit=True)


def test_an_empty_slot_has_no_marker_to_wait_for(world: World) -> None:
    before = dict(world.kafka.asked)

    assert not world.mender.await_markers([Seal(NAME, 0, None, 2)], commit=True)

    assert world.kafka.asked == before


# ---- what no client can end


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("gone", ["expired", "expired and used again", "epochs used up"])
def test_a_producer_id_that_is_lost_is_named_with_the_operators_command(world: World, gone: str, commit: bool) -> None:
    """Every run stopped with "the next run looks again" before, for ever."""
    seal = with_a_missing_marker(world, commit=commit)
    if gone == "epochs used up":
        world.kafka.set_epoch(NAME, 32_766)
    else:
        world.kafka.expire(NAME)
    if gone == "expired and used again":
        world.transactions.init_producer_id(NAME, 60_000)

    for _ in range(2):
        with pytest.raises(DecisionBroken, match=r"no client can write that marker; nothing is skipped") as stopped:
            world.mender.await_markers([seal], commit=commit)
        assert "abort --topic out --partition 1 --start-offset 0`" in stopped.value.message
        assert hangs(world, seal) == [OUTPUT[1]]

    assert not [key for key in world.ledger_keys() if b"/mending/" in key]
    # The operator did so, and the proof finds the abort.
    assert seal.identity is not None
    world.kafka.abort_hanging(OUTPUT[1], seal.identity)
    assert not world.mender.await_markers([seal], commit=commit)
    assert world.fates(seal)[1] is Fate.ABORTED


# ---- the note


def test_a_mending_is_noted_before_it_holds_anything(world: World) -> None:
    seal = with_a_missing_marker(world)
    noted_before: list[bool] = []
    held = world.kafka.fault(
        "AddPartitionsToTxn",
        lambda: noted_before.append(MENDING_KEY in world.ledger_keys()),
        matches=lambda asked: asked.v3_and_below_transactional_id == NAME,
    )

    world.mender.await_markers([seal], commit=True)

    assert held.fired == 1
    assert noted_before == [True]
    noted = world.ledger.look().mendings[NAME]
    assert noted.partitions == (OUTPUT[1],)
    # Version 1 of the protocol ends a transaction under its own epoch, which is what mendings are made with.
    assert noted.identity == world.identity(NAME)


def test_an_abort_notes_nothing(world: World) -> None:
    seal = with_a_missing_marker(world, commit=False)

    assert world.mender.await_markers([seal], commit=False)

    assert world.ledger_keys() == []
    assert world.shown(OUTPUT[1]) == []


def test_a_note_that_is_not_acknowledged_keeps_the_mending_from_holding_anything(world: World) -> None:
    seal = with_a_missing_marker(world)
    kill_at("before-note-mending")
    with pytest.raises(Killed):
        world.mender.await_markers([seal], commit=True)

    assert world.state(NAME) == "Empty"
    assert hangs(world, seal) == [OUTPUT[1]]


@pytest.mark.parametrize("point", ["mend-initialized", "after-note-mending", "mend-added", "mend-ended"])
def test_a_mending_that_was_stopped_anywhere_is_completed_by_who_looks_next(world: World, point: str) -> None:
    seal = with_a_missing_marker(world)
    kill_at(point)
    with pytest.raises(Killed):
        world.mender.await_markers([seal], commit=True)
    world.fresh_process()

    world.mender.finish(world.ledger.look())
    world.mender.await_markers([seal], commit=True)

    assert world.fates(seal) == [Fate.COMMITTED, Fate.COMMITTED]


def test_whatever_is_open_under_the_noted_identity_is_committed_and_nothing_else_is(world: World) -> None:
    noted = world.slot(0, {0: 1})
    world.slot(1, {1: 1})
    # A later attempt of the slot, so that the noted epoch is one that there was.
    other = world.slot(1, {1: 1})
    assert noted.identity is not None
    assert other.identity is not None
    world.ledger.note(Mending(noted.transactional_id, noted.identity, tuple(places(noted))))
    older = ProducerIdentity(other.identity.producer_id, other.identity.epoch - 1)
    world.ledger.note(Mending(other.transactional_id, older, tuple(places(other))))

    world.mender.finish(world.ledger.look())

    assert world.state(noted.transactional_id) == "CompleteCommit"
    assert world.state(other.transactional_id) == "Ongoing"
    assert world.shown(OUTPUT[1]) == []


def test_finishing_without_notes_asks_nobody(world: World) -> None:
    view = world.ledger.look()
    before = dict(world.kafka.asked)

    world.mender.finish(view)

    assert world.kafka.asked == before


def test_a_mending_of_a_batch_that_has_ended_is_left_alone(world: World) -> None:
    decision = decision_of([])
    world.decide(decision)
    seal = world.slot(0)
    assert seal.identity is not None
    world.ledger.note(Mending(NAME, seal.identity, tuple(places(seal))))
    world.ledger.note(Ended.of_decision(decision))

    world.mender.finish(world.ledger.look())

    assert world.state(NAME) == "Ongoing"


def test_a_mending_without_a_definite_end_is_an_unknown_outcome(world: World) -> None:
    seal = with_a_missing_marker(world)
    lost = world.kafka.fault(
        "EndTxn", "drop-request", times=10_000, matches=lambda asked: asked.transactional_id == NAME
    )

    with pytest.raises(OutcomeUnknown, match="got no definite answer"):
        world.mender.await_markers([seal], commit=True)

    assert lost.fired > 1
    world.kafka.clear_faults()
    world.mender.finish(world.ledger.look())
    assert world.fates(seal) == [Fate.COMMITTED, Fate.COMMITTED]


# ---- strangers


def late_attempt(world: World, where: TopicPartition) -> Producer:
    stranger = Producer(world.cluster, NAME)
    stranger.initialize()
    stranger.begin()
    send(stranger, where, b"of a late attempt")
    stranger.flush()
    return stranger


def test_a_stranger_that_holds_a_decided_id_is_shut_out(world: World) -> None:
    seal = with_a_missing_marker(world)
    stranger = late_attempt(world, OUTPUT[2])

    assert world.mender.await_markers([seal], commit=True)

    assert world.fates(seal) == [Fate.COMMITTED, Fate.COMMITTED]
    assert world.shown(OUTPUT[2]) == []
    with pytest.raises(OutcomeUnknown, match="no definite answer"):
        stranger.commit()
    assert world.shown(OUTPUT[2]) == []


def test_a_stranger_that_wrote_where_the_marker_is_missing_leaves_a_loss_that_shows(world: World) -> None:
    seal = with_a_missing_marker(world)
    late_attempt(world, OUTPUT[1])

    assert world.mender.await_markers([seal], commit=True)

    # Its abort ended the sealed records there too. That is for the proof to find, so the answer is: look again.
    assert world.fates(seal) == [Fate.COMMITTED, Fate.ABORTED]
    assert world.shown(OUTPUT[1]) == []


def test_a_later_transaction_of_the_id_in_the_same_partition_is_not_taken_for_what_hangs(
    world: World,
) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.end(seal, commit=True)
    late_attempt(world, OUTPUT[1])

    assert not world.mender.await_markers([seal], commit=True)

    assert world.state(NAME) == "Ongoing"


def test_an_earlier_runs_mending_is_no_stranger(world: World) -> None:
    seal = with_a_missing_marker(world)
    kill_at("mend-added")
    with pytest.raises(Killed):
        world.mender.await_markers([seal], commit=True)
    world.fresh_process()
    before = world.kafka.asked["InitProducerId"]

    assert world.mender.await_markers([seal], commit=True)

    assert world.kafka.asked["InitProducerId"] == before
    assert world.fates(seal) == [Fate.COMMITTED, Fate.COMMITTED]


# ---- a decision whose own marker is missing


def decide_without_a_marker(world: World, *, commit: bool = True, seals: tuple[Seal, ...] = ()) -> None:
    forgotten = world.kafka.forget_marker(world.where, DRIVER)
    producer = world.decide(decision_of(seals), commit=False)
    if commit:
        producer.commit()
    else:
        producer.abort()
    assert forgotten.fired == 1


def test_a_decision_whose_marker_is_missing_is_noted_as_settled_before_anything_is_sent(world: World) -> None:
    decide_without_a_marker(world)
    noted_before: list[bool] = []
    sent = world.kafka.fault(
        "InitProducerId",
        lambda: noted_before.append(SETTLED_KEY in world.ledger_keys()),
        matches=lambda asked: asked.transactional_id == DRIVER,
    )

    world.mender.settle_decision(DRIVER, GROUP)

    assert sent.fired == 1
    assert noted_before == [True]
    view = world.ledger.look()
    assert (view.newest, view.open) == (decision_of([]), None)
    assert world.kafka.committed[GROUP] == {SOURCE: 5}


def test_a_decision_that_was_aborted_without_a_marker_is_aborted_and_notes_nothing(world: World) -> None:
    decide_without_a_marker(world, commit=False)

    world.mender.settle_decision(DRIVER, GROUP)

    view = world.ledger.look()
    assert (view.newest, view.open) == (None, None)
    assert world.ledger_keys() == [PIPELINE.encode()]


def test_where_the_coordinator_has_forgotten_the_driver_one_committed_slot_settles_the_decision(
    world: World,
) -> None:
    seal = world.slot(0)
    decide_without_a_marker(world, seals=(seal,))
    world.end(seal, commit=True)
    world.kafka.expire(DRIVER)

    world.mender.settle_decision(DRIVER, GROUP)

    assert world.ledger.look().newest == decision_of([seal])


def test_where_nothing_speaks_for_a_decision_it_is_aborted(world: World) -> None:
    seal = world.slot(0)
    decide_without_a_marker(world, seals=(seal,))
    world.transactions.init_producer_id(DRIVER, 60_000)

    world.mender.settle_decision(DRIVER, GROUP)

    view = world.ledger.look()
    assert (view.newest, view.open) == (None, None)
    assert world.shown(OUTPUT[0]) == []


def torn(world: World) -> tuple[Seal, Decision]:
    """Two slots, one of which is committed; and the decision of its repair, which keeps that one."""
    kept, lost = world.slot(0), world.slot(1)
    world.decide(decision_of([kept, lost]))
    world.end(kept, commit=True)
    world.end(lost, commit=False)
    again = replace(world.slot(1), digest=lost.digest)
    return again, decision_of([kept, again], repaired=1)


@pytest.mark.parametrize("marker", ["to come", "forgotten"])
def test_an_undecided_repair_is_not_taken_for_decided_by_the_slots_that_it_keeps(world: World, marker: str) -> None:
    """Their commits show the decision that named them first. Otherwise a slot is committed that no decision
    names.
    """
    again, repair = torn(world)
    before = world.ledger.look().newest
    if marker == "forgotten":
        forgotten = world.kafka.forget_marker(world.where, DRIVER)
        world.decide(repair, commit=False).abort()
        assert forgotten.fired == 1
    else:
        world.decide(repair, commit=False)

    world.mender.settle_decision(DRIVER, GROUP)

    assert SETTLED_KEY not in world.ledger_keys()
    assert world.ledger.look().newest == before
    assert world.state(again.transactional_id) == "Ongoing"


def test_a_repair_is_shown_by_a_slot_that_it_wrote_again(world: World) -> None:
    again, repair = torn(world)
    world.kafka.forget_marker(world.where, DRIVER)
    world.decide(repair)
    world.end(again, commit=True)
    world.kafka.expire(DRIVER)

    world.mender.settle_decision(DRIVER, GROUP)

    assert world.ledger.look().newest == repair


def test_a_repair_behind_a_decision_without_a_marker_is_not_shown_by_the_slots_that_it_keeps(world: World) -> None:
    kept, lost = world.slot(0), world.slot(1)
    decide_without_a_marker(world, seals=(kept, lost))
    world.end(kept, commit=True)
    world.end(lost, commit=False)
    again = replace(world.slot(1), digest=lost.digest)
    repair = decision_of([kept, again], repaired=1)
    world.decide(repair, commit=False)
    assert len(world.ledger.look().all_open) == 2

    world.mender.settle_decision(DRIVER, GROUP)

    view = world.ledger.look()
    assert view.newest == decision_of([kept, lost])
    assert world.state(again.transactional_id) == "Ongoing"


def test_an_open_decision_that_no_coordinator_can_end_any_more_is_named_with_the_operators_command(
    world: World,
) -> None:
    """The id has expired, so its producer id, under which alone a marker could be written, belongs to no id."""
    decide_without_a_marker(world, seals=(world.slot(0),))
    owner = world.identity(DRIVER)
    world.kafka.expire(DRIVER)

    with pytest.raises(DecisionBroken, match=r"the batch was not decided, none of it is visible") as stopped:
        world.mender.settle_decision(DRIVER, GROUP)

    assert "abort --topic ledger --partition 0 --start-offset 0`" in stopped.value.message
    # The operator did so.
    world.kafka.abort_hanging(world.where, owner)
    world.mender.settle_decision(DRIVER, GROUP)
    assert (world.ledger.settled().newest, world.ledger.settled().open) == (None, None)


def test_a_decision_that_was_made_needs_no_marker_that_no_client_can_write(world: World) -> None:
    seal = world.slot(0)
    decide_without_a_marker(world, seals=(seal,))
    world.end(seal, commit=True)
    world.kafka.expire(DRIVER)

    world.mender.settle_decision(DRIVER, GROUP)
    world.mender.settle_decision(DRIVER, GROUP)

    assert world.ledger.settled().newest == decision_of([seal])


@pytest.mark.parametrize("point", ["decision-settled", "mend-initialized", "mend-added"])
def test_a_settling_that_was_stopped_is_completed_also_when_the_coordinator_no_longer_knows(
    world: World, point: str
) -> None:
    decide_without_a_marker(world)
    kill_at(point)
    with pytest.raises(Killed):
        world.mender.settle_decision(DRIVER, GROUP)
    # Its time is over: what was being mended is aborted, and the decision's own record with it.
    world.kafka.advance(60_001)
    world.fresh_process()

    world.mender.finish(world.ledger.look())
    world.mender.settle_decision(DRIVER, GROUP)

    view = world.ledger.look()
    assert (view.newest, view.open) == (decision_of([]), None)
    # Readers of the ledger who know no notes see the record too, unless the timeout of the mending has aborted it.
    by_timeout = point == "mend-added"
    owner = world.kafka.log(world.where).batches[0].info.producer_id
    marker = find_marker(world.cluster, world.where, owner, 0)
    assert marker is (Outcome.ABORTED if by_timeout else Outcome.COMMITTED)


def test_a_decision_that_its_coordinator_still_holds_open_is_left_to_it(world: World) -> None:
    producer = world.decide(decision_of([]), commit=False)

    world.mender.settle_decision(DRIVER, GROUP)

    assert world.state(DRIVER) == "Ongoing"
    assert world.ledger_keys() == [PIPELINE.encode()]
    producer.commit()


def test_a_marker_that_comes_while_the_coordinator_is_asked_is_no_missing_one(world: World) -> None:
    late = world.kafka.forget_marker(world.where, late=True)
    world.decide(decision_of([]))
    asked = world.kafka.fault("DescribeTransactions", world.kafka.release_markers)
    before = world.kafka.asked["InitProducerId"]

    world.mender.settle_decision(DRIVER, GROUP)

    assert (late.fired, asked.fired) == (1, 1)
    assert world.kafka.asked["InitProducerId"] == before
    assert world.ledger_keys() == [PIPELINE.encode()]


def test_the_note_of_a_settled_decision_carries_all_of_it(world: World) -> None:
    seal = world.slot(0)
    decision = decision_of([seal], source_offsets=("a line",))
    note = Settled(3, ProducerIdentity(7, 1), decision)

    world.ledger.note(note)

    assert world.ledger.look().newest == decision


def test_transactions_of_the_mender_have_the_time_that_it_was_given(world: World) -> None:
    world.mender.write_markers(NAME, [OUTPUT[0]], commit=True)

    assert Transactions(world.cluster).describe([NAME])[NAME].timeout_ms == 60_000
