"""What a former coordinator tells of ids and groups is not the newest, nor what a former leader of the ledger has.

One broker of three is cut off from the controller. It goes on to name itself, and to answer as things were then.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from kafka_core.errors import OutcomeUnknown
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.requests.ends import EndRequest
from pyspark_kafka_eos.client.writing.session import SessionState
from pyspark_kafka_eos.commit.decision import put_decision
from pyspark_kafka_eos.commit.handover import going_on, phases
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.proof import prove
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations import decision_checks, ending, standing
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.spark.source.committed_start import committed_start
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, GROUP, OUTPUT, PIPELINE, SOURCE, World, decision_of
from tests.pyspark_kafka_eos.commit.former_coordinator import (
    ALL,
    OPTIONS,
    SERVERS,
    FormerCoordinator,
    committed,
    former_leader_of_the_ledger,
    started,
)
from tests.pyspark_kafka_eos.commit.node_kafka import OFFSETS, Fault


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "broker_settings", lambda *_, **__: {})


def process(world: World, run: PerTask, batch_id: int) -> Any:
    def write(_only: Any) -> list[Seal]:
        run.plan(batch_id)
        return [world.slot(0, {0: 2})]

    return run.process(batch_id, write, (), {})


def test_an_earlier_commit_that_a_former_coordinator_shows_is_no_decision_that_the_ledger_has_lost(
    world: World,
) -> None:
    committed(world, 0)
    former = FormerCoordinator(world)
    committed(world, 1)
    world.fresh_process()

    started(world, 2)

    assert former.told


def test_a_batch_that_is_decided_while_the_successor_is_asked_is_none_either(world: World) -> None:
    """Its commits are no later than the ledger, but than what was read of it."""
    committed(world, 0)
    former = FormerCoordinator(world)
    committed(world, 1)
    world.fresh_process()
    older = copy(world)
    older.fresh_process()
    decided = world.kafka.fault(
        "DescribeTransactions",
        lambda: committed(older, 2) and None,
        skip=1,
        matches=lambda request: former.told > 0 and f"{PIPELINE}:0" in request.transactional_ids,
    )

    started(world, 3)

    assert decided.fired == 1


def test_the_doctor_says_so_too(world: World) -> None:
    committed(world, 0)
    FormerCoordinator(world)
    committed(world, 1)
    world.fresh_process()

    checks = decision_checks.newest_decision(world.cluster, OPTIONS)

    assert [each.status for each in checks if each.status == "fail"] == []


def test_a_decision_that_is_open_is_not_called_made_by_the_commit_before_it(world: World) -> None:
    """Version 2 ends a transaction under the next epoch, under which the next one begins."""
    seal = world.slot(0)
    driver = world.decide(decision_of([seal], batch_id=0))
    world.end(seal, commit=True)
    FormerCoordinator(world)
    seals = [world.slot(0)]
    if driver.session.state is not SessionState.READY:
        driver.initialize()
    world.decide(decision_of(seals, batch_id=1), driver, commit=False)

    world.fresh_process()
    made = standing.newest_decided(world.cluster, world.ledger)
    assert made is not None and made.batch_id == 0

    world.fresh_process()
    world.mender.settle_decision(DRIVER, GROUP)
    newest = world.ledger.look().newest
    assert newest is not None and newest.batch_id == 0


def test_offsets_that_lack_their_marker_are_not_aborted_by_what_a_former_coordinator_knew(world: World) -> None:
    """It shows how the transaction before the decision ended."""
    world.kafka.commit_offsets(GROUP, {SOURCE: 1})
    driver = world.driver()
    driver.begin()
    driver.send_offsets(GROUP, {SOURCE: 3})
    driver.abort()
    FormerCoordinator(world)
    forgotten = world.kafka.forget_marker(OFFSETS)
    committed(world, 0)
    world.fresh_process()

    world.mender.settle_decision(DRIVER, GROUP)

    assert forgotten.fired == 1
    assert world.kafka.committed[GROUP] == {SOURCE: 5}


def test_a_transaction_that_is_open_is_not_proven_committed_by_the_commit_before_it(world: World) -> None:
    committed(world, 0)
    FormerCoordinator(world)
    seal = world.slot(0)
    world.fresh_process()

    assert prove(world.cluster, [seal])[0].verdict is Outcome.OPEN


def test_a_late_marker_is_waited_for_where_a_former_coordinator_does_not_know_the_transaction(world: World) -> None:
    """It was called one that no client can write: a decision that is broken, for a person to repair."""
    former = FormerCoordinator(world)
    seal = world.slot(0)
    world.decide(decision_of([seal]))
    late = world.kafka.forget_marker(OUTPUT[0], late=True)
    world.end(seal, commit=True)
    world.fresh_process()
    world.kafka.at_pause(lambda: None)
    world.kafka.at_pause(lambda: None)
    world.kafka.at_pause(world.kafka.release_markers)

    assert not world.mender.await_markers([seal], commit=True)

    assert former.told
    assert late.fired


def test_a_marker_that_a_former_leader_does_not_have_is_not_missing(world: World) -> None:
    """It was written again, and waited for at the same broker for 30 s: OutcomeUnknown."""
    seal = world.slot(0)
    world.decide(decision_of([seal]))
    world.kafka.cut_off(OUTPUT[0])
    world.end(seal, commit=True)
    world.kafka.brokers = list(ALL)
    world.fresh_process()

    assert not world.mender.await_markers([seal], commit=True)


@pytest.mark.parametrize("group", ["moved on", "new"])
def test_a_query_begins_where_its_group_is_not_where_a_former_coordinator_had_it(world: World, group: str) -> None:
    world.kafka.commit_offsets("moved on", {SOURCE: 5})
    former = FormerCoordinator(world)
    world.kafka.commit_offsets(group, {SOURCE: 900})
    world.fresh_process()
    options = SourceOptions.parse(
        {
            **SERVERS,
            "subscribe": "source",
            "startingOffsets": "group",
            "kafka.group.id": group,
            "kafka.auto.offset.reset": "latest",
        }
    )

    assert committed_start(Offsets(world.cluster), options, [SOURCE]).offsets == {SOURCE: 900}
    assert not former.told


@pytest.fixture
def deciding(world: World) -> Fault:
    """An older run has batch 1 sealed. The next start's fence comes behind its decision, and between that start's first
    look and its fence the ledger's leader was replaced without noticing.
    """
    older = started(world, 0)
    assert process(world, older, 0) is not None
    older.plan(1)
    seal = world.slot(0, {0: 2})
    run = older.run
    world.fresh_process()
    world.kafka.brokers = list(ALL)

    def decide() -> None:
        former_leader_of_the_ledger(world)
        put_decision(run.producer, run.ledger, run.decision(1, [seal], ()), GROUP, {})
        run.producer.commit()
        assert seal.identity is not None
        end = EndRequest(seal.transactional_id, seal.identity, True, seal.transaction_version)
        assert run.transactions.end_many([end])[0].definite

    return world.kafka.fault("InitProducerId", decide, matches=lambda request: request.transactional_id == DRIVER)


def test_a_batch_that_an_older_run_decides_until_the_fence_is_seen_behind_it(world: World, deciding: Fault) -> None:
    newer = PerTask(Run(world.cluster, OPTIONS, "query"))

    assert newer.start(1) is not None, "the batch is decided, so it is ended"

    assert deciding.fired == 1
    assert len(world.shown(OUTPUT[0])) == 4


def test_an_operators_command_sees_it_behind_its_fence(world: World, deciding: Fault) -> None:
    newest, _ = ending.take_over(world.cluster, world.ledger, GROUP)

    assert deciding.fired == 1
    assert newest is not None and newest.batch_id == 1


@pytest.fixture
def process_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process of the batch is another one, on the world's cluster."""
    monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_, **__: world.cluster))
    monkeypatch.setattr(going_on, "remembered", lambda *_: None, raising=False)


def another_process(world: World) -> None:
    world.fresh_process()
    going_on._memory().runs.clear()


@pytest.mark.usefixtures("process_memory")
def test_what_is_decided_is_not_given_up_where_the_ledgers_former_leader_is_asked_first(world: World) -> None:
    def written(batch_id: int) -> tuple[Any, list[Seal]]:
        another_process(world)
        _, handed = phases.begin(world.cluster, OPTIONS, "query", batch_id, ())
        seals = [world.slot(number, {0: 1}) for number in range(2)]
        another_process(world)
        return handed, seals

    handed, seals = written(0)
    phases.finish(world.cluster, OPTIONS, handed, seals, (), {})
    handed, seals = written(1)
    world.kafka.cut_off(world.where)
    world.fresh_process()
    lost = world.kafka.fault(
        "EndTxn", "drop-request", times=10**6, matches=lambda request: request.transactional_id == f"{PIPELINE}:1"
    )
    with pytest.raises(OutcomeUnknown):
        phases.finish(world.cluster, OPTIONS, handed, seals, (), {})
    assert lost.fired
    lost.times = lost.fired
    another_process(world)
    world.kafka.brokers = list(ALL)
    world.fresh_process()

    assert not phases.give_up(OPTIONS, handed, seals, "the commit failed")

    assert world.state(f"{PIPELINE}:1") == "Ongoing"
