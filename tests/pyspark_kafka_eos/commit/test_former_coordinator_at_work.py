"""A run at work, a task and an operator's command whose client knows a former coordinator: what it tells stops nobody.

It was cut off from the controller, and answers as things were then. Each `is_asked_by` is the moment from which the
client asks it, as one does that found it before.
"""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kafka.transactions.machine.events import TransactionState
from kafka_core.errors import PipelineConflict
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.open_parts import states_of
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.commit.whole_batch.merging import is_as_sealed
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations.leftovers import find_leftovers, find_strangers
from pyspark_kafka_eos.slot import writer
from tests.pyspark_kafka_eos.commit.fakes import (
    DRIVER,
    OUTPUT,
    PIPELINE,
    World,
    decision_of,
    send,
)
from tests.pyspark_kafka_eos.commit.former_coordinator import (
    ALL,
    OPTIONS,
    FormerCoordinator,
    after_batch_0,
    committed,
    started,
)

SLOT = f"{PIPELINE}:0"


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "broker_settings", lambda *_, **__: {})


# ---- a run at work


@pytest.mark.parametrize("knew", ["the batch before", "nothing"])
def test_a_batch_is_decided_at_its_first_try_whatever_it_tells_of_the_slots(world: World, knew: str) -> None:
    former = after_batch_0(world, knew)
    run = started(world, 1)

    def write(_only: Any) -> list[Seal]:
        run.plan(1)
        seals = [world.slot(0, {0: 2})]
        former.is_asked_by(world.cluster)
        return seals

    assert run.process(1, write, (), {}).redone == 0

    assert former.told
    assert len(world.shown(OUTPUT[0])) == 4


def test_a_batch_in_one_transaction_is_as_it_was_sealed(world: World) -> None:
    batch = WholeBatch(Run(world.cluster, OPTIONS, "query"))
    former = FormerCoordinator(world)
    seal = world.slot(0, {0: 2}, name=batch.batch_id)
    former.is_asked_by(world.cluster)

    assert is_as_sealed(seal, batch.view_of(seal))

    assert former.told


@pytest.mark.parametrize("knew", ["the run before", "nothing"])
def test_a_run_goes_on_to_own_its_pipeline(world: World, knew: str) -> None:
    former = after_batch_0(world, knew)
    run = started(world, 1).run
    mine = run.producer.identity
    former.is_asked_by(world.cluster)

    run.require_ownership()

    assert former.told
    assert run.producer.identity == mine, "nothing was initialised"


def test_a_newer_run_that_took_over_is_no_timeout(world: World) -> None:
    """The abort with which it began is the last thing that the former coordinator knows."""
    older = started(world, 0).run
    older.producer.begin()
    send(older.producer, world.where, b"open")
    former: list[FormerCoordinator] = []
    moved = world.kafka.fault("InitProducerId", lambda: former.append(FormerCoordinator(world)))
    world.kafka.take_over(DRIVER)
    Producer(world.cluster, DRIVER).initialize()
    assert moved.fired == 1
    former[0].is_asked_by(world.cluster)

    assert not older.fenced_by_timeout()


# ---- what was begun


def test_a_mending_that_was_begun_is_finished(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal]))
    world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)
    former = FormerCoordinator(world)

    def die() -> None:
        raise KeyboardInterrupt

    crash_points.arm("mend-added", 1, die)
    with pytest.raises(KeyboardInterrupt):
        world.mender.write_markers(SLOT, {OUTPUT[1]}, commit=True)
    former.is_asked_by(world.cluster)

    world.mender.finish(world.ledger.look())

    assert world.kafka.ids()[SLOT].state is TransactionState.COMPLETE_COMMIT


def test_a_marker_that_is_late_is_not_missing_where_it_shows_the_commit_before(world: World) -> None:
    committed(world, 0)
    former = FormerCoordinator(world)
    world.kafka.forget_marker(world.where, late=True)
    driver = world.decide(decision_of([world.slot(0)], batch_id=1))
    former.is_asked_by(world.cluster)
    states = states_of(world.cluster, [world.where])
    world.kafka.at_pause(world.kafka.release_markers)

    assert not world.mender.misses_marker(DRIVER, driver.identity.producer_id, states)

    assert former.told


def test_a_marker_that_a_former_leader_of_the_ledger_lacks_is_not_missing(world: World) -> None:
    driver = world.decide(decision_of([world.slot(0)]), commit=False)
    world.kafka.cut_off(world.where)
    driver.commit()
    world.fresh_process()
    world.kafka.brokers = list(ALL)
    states = states_of(world.cluster, [world.where])
    assert states is not None and states[world.where][driver.identity.producer_id].open_from >= 0

    assert not world.mender.misses_marker(DRIVER, driver.identity.producer_id, states)


def test_a_first_start_is_none_where_it_alone_does_not_know_the_drivers_id(world: World) -> None:
    former = FormerCoordinator(world)
    world.driver()
    world.fresh_process()
    former.is_asked_by(world.cluster)

    with pytest.raises(PipelineConflict, match="a coordinator knows its transactional id 'pipe:driver'"):
        started(world, 2)


def test_decisions_under_a_new_producer_id_are_the_pipelines_own(world: World) -> None:
    """An id that rested is forgotten, and gets another producer id."""
    committed(world, 0)
    world.kafka.expire(DRIVER)
    world.driver()
    former = FormerCoordinator(world)
    world.kafka.expire(DRIVER)
    committed(world, 1)
    world.fresh_process()
    former.is_asked_by(world.cluster)

    view = world.ledger.look()

    assert former.told
    assert view.newest is not None and view.newest.batch_id == 1
    assert view.known


# ---- a task


def test_a_task_writes_though_it_shows_an_older_producer_id_of_the_driver(world: World) -> None:
    world.driver()
    former = FormerCoordinator(world)
    world.kafka.expire(DRIVER)
    run = started(world, 0)
    plan = run.plan(0)
    former.is_asked_by(world.cluster)

    assert plan.driver is not None
    writer._require_undecided(world.cluster, plan, plan.driver)

    assert former.told


# ---- an operator's command


def test_what_is_listed_is_as_it_is(world: World) -> None:
    committed(world, 0)
    former = FormerCoordinator(world)
    seal = world.slot(0, {0: 2})
    former.is_asked_by(world.cluster)

    found = {each.transactional_id: each for each in find_leftovers(world.cluster, PIPELINE)}
    former.is_asked_by(world.cluster)
    holding = {each.transactional_id: each for each in find_strangers(world.cluster, "out", ())}

    for each in (found[SLOT], holding[SLOT]):
        assert (each.state, each.identity) == ("Ongoing", seal.identity)
