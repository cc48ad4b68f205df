"""A log is read to where it ended when it was asked for, also where the leader that answers behind that does not know
yet how far the log is acknowledged: its Fetch returns nothing from there on, without an error (KIP-207).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.fates import Fate
from pyspark_kafka_eos.commit.ledger.arrived import require_arrived
from pyspark_kafka_eos.commit.ledger.notes import Mending
from pyspark_kafka_eos.commit.ledger.survey import survey
from pyspark_kafka_eos.commit.noted_fates import _ended
from pyspark_kafka_eos.operations.audit import verify
from pyspark_kafka_eos.operations.history import newest_first
from tests.pyspark_kafka_eos.commit.fakes import LEDGER, OUTPUT, PIPELINE, World, decision_of, send
from tests.pyspark_kafka_eos.commit.ledger.test_ledger_parts import ROOM_BYTES, large

MENDED = Mending(f"{PIPELINE}:0", ProducerIdentity(7, 8), OUTPUT[:1])


def lag(world: World, where: TopicPartition, *, skip: int = 0, end: int = 0) -> None:
    """A new leader answers the Fetch behind the next `skip` ones. It knows its followers' end once it has been asked
    twice where the log ends.
    """
    log = world.kafka.log(where)

    def begin() -> None:
        log.lags = end
        world.kafka.fault("ListOffsets", lambda: setattr(log, "lags", None), skip=1)

    world.kafka.fault("Fetch", begin, skip=skip)


def decided(world: World) -> None:
    seal = world.slot(0, {0: 2})
    world.decide(decision_of([seal]))
    world.end(seal, commit=True)
    world.ledger.note(MENDED)
    world.fresh_process()


def newest(world: World) -> object:
    view = world.ledger.look()
    return view.newest, view.mendings


def mended(world: World) -> object:
    return world.ledger.mended()


def surveyed(world: World) -> object:
    return survey(world.cluster, LEDGER, PIPELINE, "another")


def history(world: World) -> object:
    return [[(each.offset, each.status) for each in page] for page in newest_first(world.cluster, LEDGER, PIPELINE)]


def fate(world: World) -> object:
    writer = world.identity(f"{PIPELINE}:notes").producer_id
    found = _ended(world.cluster, world.where, 2, Mending(f"{PIPELINE}:notes", ProducerIdentity(writer, 0), ()))
    assert found is Fate.COMMITTED
    return found


@pytest.mark.parametrize("end", range(4))
@pytest.mark.parametrize("ask", [newest, mended, surveyed, history, fate], ids=lambda ask: ask.__name__)
def test_what_the_ledger_has_is_found_at_a_leader_that_is_behind(
    world: World, ask: Callable[[World], object], end: int
) -> None:
    decided(world)
    expected = ask(world)
    world.fresh_process()
    lag(world, world.where, end=end)

    assert ask(world) == expected
    assert world.kafka.log(world.where).lags is None, "it was asked while it was behind"


def test_the_parts_of_a_decision_are_found_at_a_leader_that_is_behind(world: World) -> None:
    world.kafka.configure(LEDGER, {"max.message.bytes": str(ROOM_BYTES)})
    world.ledger.prepare()
    world.decide(large())
    world.fresh_process()
    # The first Fetch has the record that stands for the decision.
    lag(world, world.where, skip=1)

    found = world.ledger.look().newest

    assert found is not None and len(found.seals) == 40
    assert world.kafka.log(world.where).lags is None


def test_what_has_arrived_is_seen_at_a_leader_that_is_behind(world: World) -> None:
    world.kafka.forget_marker(OUTPUT[0])
    world.end(world.slot(0, {0: 1}), commit=True)
    producer = Producer(world.cluster, f"{PIPELINE}:0")
    producer.initialize()
    producer.begin()
    send(producer, OUTPUT[0], b"behind a transaction without a marker")
    producer.flush()
    lag(world, OUTPUT[0])

    require_arrived(producer, OUTPUT[0].topic)

    assert world.kafka.log(OUTPUT[0]).lags is None


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("commit", [True, False])
def test_verify_counts_the_records_of_a_leader_that_is_behind(world: World, skip: int, commit: bool) -> None:
    seal = world.slot(0, {0: 2})
    decision = decision_of([seal])
    world.decide(decision)
    if commit:
        world.end(seal, commit=True)
    expected = verify(world.cluster, decision)
    lag(world, OUTPUT[0], skip=skip)

    assert verify(world.cluster, decision) == expected
    assert world.kafka.log(OUTPUT[0]).lags is None


def test_what_an_election_took_is_not_waited_for(world: World) -> None:
    decided(world)
    log = world.kafka.log(world.where)
    end = log.end
    log.lose_tail(2)

    read = read_raw(world.cluster, world.where, 2, until=end, timeout_ms=1_000)

    assert not read.records
    assert read.high_watermark == 2
