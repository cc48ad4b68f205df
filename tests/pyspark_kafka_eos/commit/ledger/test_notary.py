"""A note stays once `write_note` has returned, whatever becomes of its marker."""

from __future__ import annotations

import pytest

from kafka_core.errors import BrokerUnavailable
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.writing.appending import one_record
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.ledger.notary import Notary
from pyspark_kafka_eos.model.ids import notes_transactional_id
from pyspark_kafka_eos.records import Packed, pack
from tests.pyspark_kafka_eos.commit.fakes import PIPELINE, World, send

NOTES = notes_transactional_id(PIPELINE)
KEY = PIPELINE.encode() + b"/began"


def noted(value: bytes) -> Packed:
    return pack(one_record(KEY, value), transactional=True, compression="none", max_batch_bytes=None)


def die_within_a_note(world: World) -> None:
    """Another process takes the id, and its transaction is aborted."""
    other = Producer(world.cluster, NOTES, transaction_timeout_ms=60_000)
    other.initialize()
    other.begin()
    send(other, world.where, b"of the dead", KEY)
    other.flush()
    other.abort()


def test_a_note_without_its_marker_is_written_again_so_no_abort_takes_it(world: World) -> None:
    forgotten = world.kafka.forget_marker(world.where, NOTES)

    Notary(world.cluster, PIPELINE).write_note(world.where, noted(b"began"), "a note")

    assert forgotten.fired == 1
    die_within_a_note(world)
    assert world.shown(world.where) == [b"began", b"began"]


def test_a_note_that_nobody_needs_is_written_once(world: World) -> None:
    world.kafka.forget_marker(world.where, NOTES)

    Notary(world.cluster, PIPELINE).write_note(world.where, noted(b"ended"), "a note", needed=False)

    assert world.shown(world.where) == []


def test_a_marker_that_is_merely_late_is_waited_for(world: World) -> None:
    world.kafka.forget_marker(world.where, NOTES, late=True)
    world.kafka.at_pause(world.kafka.release_markers)

    Notary(world.cluster, PIPELINE).write_note(world.where, noted(b"began"), "a note")

    assert world.shown(world.where) == [b"began"]


def test_a_note_that_never_gets_a_marker_may_not_be_there(world: World) -> None:
    for _ in range(5):
        world.kafka.forget_marker(world.where, NOTES)

    with pytest.raises(BrokerUnavailable, match="its commit has no marker in ledger-0"):
        Notary(world.cluster, PIPELINE).write_note(world.where, noted(b"began"), "a note")


def test_without_the_right_to_look_the_word_of_the_coordinator_counts(world: World) -> None:
    world.kafka.forget_marker(world.where, NOTES)
    world.kafka.fault("DescribeProducers", Code.TOPIC_AUTHORIZATION_FAILED, times=2)

    Notary(world.cluster, PIPELINE).write_note(world.where, noted(b"began"), "a note")

    assert world.shown(world.where) == []
