"""The decision's own transaction on a cluster in memory, and a driver whose id the coordinator has forgotten."""

from __future__ import annotations

import typing

import pytest

from kafka_core.errors import AuthorizationFailed, OutcomeUnknown, ProducerFenced
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.requests.producer_states import describe_producers
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.decision import (
    ask_decision,
    broken_part,
    put_decision,
    reinitialize_forgotten,
    write_decision,
)
from pyspark_kafka_eos.model import Seal
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, GROUP, OUTPUT, SOURCE, World, decision_of

FIRST = decision_of([], batch_id=0)
SECOND = decision_of([], batch_id=1)
OFFSETS = {SOURCE: 5}


def keys(world: World) -> int:
    return len(world.ledger_keys())


# ---- what is put into it, what became of it


def test_the_record_and_the_offsets_are_in_one_transaction_that_is_not_ended(world: World) -> None:
    producer = world.driver()

    write_decision(producer, world.ledger, FIRST, GROUP, OFFSETS)

    assert world.state(DRIVER) == "Ongoing"
    assert world.kafka.committed == {}
    view = world.ledger.look()
    assert view.newest is None and view.open is not None
    producer.commit()
    assert world.kafka.committed == {GROUP: OFFSETS}


def test_offsets_of_an_aborted_decision_are_never_committed(world: World) -> None:
    world.decide(FIRST, commit=False).abort()

    assert world.kafka.committed == {}


def unanswered(world: World, how: str) -> Producer:
    """A decision whose EndTxn got no answer."""
    producer = world.decide(FIRST, commit=False)
    lost = world.kafka.fault("EndTxn", how, times=99_999)
    with pytest.raises(OutcomeUnknown, match="it may or may not have taken effect"):
        producer.commit()
    assert lost.fired > 1
    world.kafka.clear_faults()
    return producer


def test_an_unanswered_decision_that_was_done_is_found_committed(world: World) -> None:
    producer = unanswered(world, "drop-answer")

    assert ask_decision(world.cluster, world.ledger, producer) is True


def test_an_unanswered_decision_that_never_arrived_is_committed_by_asking_again(world: World) -> None:
    """The same EndTxn twice is one end: nobody else can have put anything under this identity."""
    producer = unanswered(world, "drop-request")

    assert ask_decision(world.cluster, world.ledger, producer) is True
    assert world.ledger.look().newest == FIRST


def test_an_unanswered_decision_that_timed_out_is_found_aborted(world: World) -> None:
    producer = unanswered(world, "drop-request")
    world.kafka.advance(60_001)

    assert ask_decision(world.cluster, world.ledger, producer) is False


@pytest.mark.parametrize("commit", [True, False])
def test_where_the_coordinator_does_not_say_the_ledgers_log_is_the_witness(world: World, commit: bool) -> None:
    producer = unanswered(world, "drop-answer" if commit else "drop-request")
    if not commit:
        world.kafka.advance(60_001)
    denied = world.kafka.fault("EndTxn", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, times=9)

    assert ask_decision(world.cluster, world.ledger, producer) is commit
    assert denied.fired == 1


def test_where_neither_can_say_the_answer_is_none_and_names_both_reasons(world: World) -> None:
    producer = unanswered(world, "drop-request")
    world.kafka.fault("EndTxn", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, times=9)
    world.kafka.fault("Fetch", Code.TOPIC_AUTHORIZATION_FAILED, times=9)

    assert ask_decision(world.cluster, world.ledger, producer) is None

    reason = producer.session.reason
    assert "grant WRITE on the transactional id prefix" in reason
    assert "READ on topic 'ledger'" in reason


def test_a_witness_without_a_marker_is_no_witness(world: World) -> None:
    producer = unanswered(world, "drop-request")
    world.kafka.fault("EndTxn", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, times=9)

    assert ask_decision(world.cluster, world.ledger, producer) is None


# ---- whether what it decides is whole


def whole(world: World, seals: list[Seal]) -> bool:
    return broken_part(seals, describe_producers(world.cluster, OUTPUT)) is None


def test_what_is_open_as_it_was_sealed_is_whole(world: World) -> None:
    assert whole(world, [world.slot(0, {0: 3, 1: 1}), world.slot(1)])


def test_what_is_ended_in_a_partition_is_not_whole(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.end(seal, commit=False)

    assert not whole(world, [seal])


def test_records_under_a_newer_epoch_are_not_the_sealed_ones(world: World) -> None:
    seal = world.slot(0)
    world.slot(0)

    assert not whole(world, [seal])


def test_without_the_right_to_look_nothing_is_held_against_a_seal(world: World) -> None:
    assert broken_part([world.slot(0)], None) is None


# ---- forgotten by the coordinator


def forgotten_driver(world: World) -> Producer:
    """A driver that has decided batch 0 and then rested for longer than coordinators keep ids."""
    producer = world.decide(FIRST)
    if world.cluster.transaction_version < 2:
        producer.initialize()
    world.kafka.expire(DRIVER)
    return producer


def test_a_driver_that_was_forgotten_takes_its_id_anew_and_decides_once(world: World) -> None:
    producer = forgotten_driver(world)

    put_decision(producer, world.ledger, SECOND, GROUP, OFFSETS)
    producer.commit()

    assert world.ledger.look().newest == SECOND
    assert keys(world) == 2


def test_a_forgotten_driver_stops_where_a_newer_run_has_decided_since(world: World) -> None:
    producer = forgotten_driver(world)
    world.decide(decision_of([], batch_id=1, query_id="another"))
    world.kafka.expire(DRIVER)

    with pytest.raises(ProducerFenced, match="has decided batch 1 while this run was idle"):
        put_decision(producer, world.ledger, SECOND, GROUP, OFFSETS)

    # Nothing was taken and nothing was written.
    assert world.state(DRIVER) == "NotFound"
    assert keys(world) == 2


def test_a_forgotten_driver_stops_where_its_own_batch_is_decided_by_a_newer_run(world: World) -> None:
    producer = forgotten_driver(world)
    world.decide(SECOND)
    world.kafka.expire(DRIVER)

    with pytest.raises(ProducerFenced):
        put_decision(producer, world.ledger, SECOND, GROUP, OFFSETS)

    assert keys(world) == 2


def test_a_newer_run_that_decides_while_the_id_is_taken_is_noticed(world: World) -> None:
    producer = forgotten_driver(world)

    def newer_run() -> None:
        world.decide(decision_of([], batch_id=1, query_id="another"))
        world.kafka.expire(DRIVER)

    taken = world.kafka.fault("InitProducerId", newer_run)

    with pytest.raises(ProducerFenced):
        put_decision(producer, world.ledger, SECOND, GROUP, OFFSETS)

    assert taken.fired == 1
    assert world.ledger.look().newest == decision_of([], batch_id=1, query_id="another")


def test_a_newer_run_that_is_known_fences_the_one_that_rested(world: World) -> None:
    producer = forgotten_driver(world)
    world.driver()

    with pytest.raises(ProducerFenced):
        put_decision(producer, world.ledger, SECOND, GROUP, OFFSETS)

    assert keys(world) == 1


def test_an_error_that_does_not_say_forgotten_writes_nothing_a_second_time(world: World) -> None:
    producer = world.driver()
    refused = world.kafka.fault("TxnOffsetCommit", Code.GROUP_AUTHORIZATION_FAILED)

    with pytest.raises(AuthorizationFailed):
        put_decision(producer, world.ledger, FIRST, GROUP, OFFSETS)

    assert refused.fired == 1
    assert keys(world) == 1


def test_a_driver_that_is_taken_anew_between_batches_goes_on_where_the_ledger_says_nothing_new(
    world: World,
) -> None:
    producer = forgotten_driver(world)

    reinitialize_forgotten(producer, world.ledger, FIRST)

    assert world.state(DRIVER) == "Empty"


@pytest.mark.parametrize("last", [None, decision_of([], batch_id=0, repaired=1)])
def test_a_driver_is_not_taken_anew_where_the_ledger_says_what_it_does_not_know(world: World, last: typing.Any) -> None:
    producer = forgotten_driver(world)

    with pytest.raises(ProducerFenced, match="while this run was idle"):
        reinitialize_forgotten(producer, world.ledger, last)

    assert world.state(DRIVER) == "NotFound"
