"""An operator's commands end nothing by a record of which nobody can tell whether the pipeline wrote it. In memory.

Somebody with WRITE on the shared ledger, and none on the pipeline's transactional ids, writes a decision over a batch
that was killed before its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.commit.ledger.notes import Mending, Named, note_key, to_bytes
from pyspark_kafka_eos.model import Seal, batch_transactional_id
from pyspark_kafka_eos.operations import ending as operations
from pyspark_kafka_eos.operations.ending import Done
from tests.pyspark_kafka_eos.commit import stranger
from tests.pyspark_kafka_eos.commit.fakes import GROUP, OUTPUT, PIPELINE, World, decision_of

KEY = PIPELINE.encode()
Writes = Callable[[World, bytes, bytes], None]


@pytest.fixture(
    params=[stranger.plainly, stranger.in_a_transaction_of_his_own, stranger.left_open], ids=lambda how: how.__name__
)
def forge(request: pytest.FixtureRequest) -> Writes:
    return request.param


def task_by_task(world: World) -> list[Seal]:
    return [world.slot(0), world.slot(1)]


def as_a_whole(world: World) -> list[Seal]:
    """With scope=batch all slots are of the batch's id."""
    return [replace(world.slot(0, name=batch_transactional_id(PIPELINE)), two_phase=False)]


@pytest.fixture(params=[task_by_task, as_a_whole], ids=["task", "batch"])
def killed(request: pytest.FixtureRequest, world: World) -> list[Seal]:
    """The open transactions of a first batch whose run was killed before its decision."""
    world.driver()
    sealed: list[Seal] = request.param(world)
    world.fresh_process()
    return sealed


COMMANDS: dict[str, Callable[[World], Sequence[Done]]] = {
    "commit": lambda world: operations.commit(world.cluster, world.ledger),
    "abort": lambda world: operations.abort(world.cluster, world.ledger, GROUP),
    "fence": lambda world: operations.fence(world.cluster, world.ledger, GROUP),
}


def states(world: World, sealed: Sequence[Seal]) -> list[str]:
    return [world.state(each.transactional_id) for each in sealed]


def refused_all(done: Sequence[Done], sealed: Sequence[Seal]) -> None:
    """Nothing else was done, and each open transaction's row says why."""
    assert {each.outcome for each in done} == {"refused"}
    said = {each.transactional_id: each.detail for each in done}
    assert all("no coordinator knows who wrote" in said[each.transactional_id] for each in sealed)


def identities(world: World) -> list[ProducerIdentity]:
    return [world.identity(f"{PIPELINE}:{name}") for name in ("driver", "batch", "notes")]


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_ended_by_a_decision_that_anybody_may_have_written(
    world: World, killed: list[Seal], forge: Writes, command: str
) -> None:
    forge(world, KEY, decision_of(killed, number=1).to_bytes())
    before = identities(world)

    done = COMMANDS[command](world)

    refused_all(done, killed)
    assert states(world, killed) == ["Ongoing"] * len(killed)
    assert world.shown(OUTPUT[0]) == []
    assert identities(world) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_ended_by_a_note_that_anybody_may_have_written(
    world: World, killed: list[Seal], forge: Writes, command: str
) -> None:
    seal = killed[0]
    assert seal.identity is not None
    note = Mending(seal.transactional_id, seal.identity, ())
    forge(world, note_key(KEY, note), to_bytes(note))

    done = COMMANDS[command](world)

    refused_all(done, killed)
    assert states(world, killed) == ["Ongoing"] * len(killed)


def test_beside_a_note_of_the_pipelines_own_a_forged_decision_is_none(
    world: World, killed: list[Seal], forge: Writes
) -> None:
    """A start leaves it before any task writes."""
    world.ledger.note(Named(tuple(each.producer_id for each in identities(world)[:1])))
    forge(world, KEY, decision_of(killed, number=1).to_bytes())
    world.fresh_process()

    done = COMMANDS["commit"](world)

    assert {each.outcome for each in done} == {"refused"}
    assert all("it may not be committed" in each.detail.lower() for each in done)
    assert states(world, killed) == ["Ongoing"] * len(killed)
    assert world.shown(OUTPUT[0]) == []


def test_what_is_not_decided_is_aborted_beside_a_forged_decision(
    world: World, killed: list[Seal], forge: Writes
) -> None:
    world.ledger.note(Named(tuple(each.producer_id for each in identities(world)[:1])))
    forge(world, KEY, decision_of(killed, number=1).to_bytes())
    world.fresh_process()

    COMMANDS["abort"](world)

    assert states(world, killed) != ["Ongoing"] * len(killed)
    assert world.shown(OUTPUT[0]) == []


def test_the_pipelines_own_decision_is_carried_out_beside_forged_ones(world: World, forge: Writes) -> None:
    sealed = task_by_task(world)
    world.decide(decision_of(sealed, number=1))
    late = world.slot(2)
    forge(world, KEY, decision_of([late], batch_id=1, number=2).to_bytes())
    world.fresh_process()

    done = {each.transactional_id: each.outcome for each in COMMANDS["commit"](world)}

    assert {name: done[name] for name in (f"{PIPELINE}:0", f"{PIPELINE}:1")} == {
        f"{PIPELINE}:0": "committed",
        f"{PIPELINE}:1": "committed",
    }
    assert world.state(late.transactional_id) == "Ongoing"
    assert world.shown(OUTPUT[2]) == []
