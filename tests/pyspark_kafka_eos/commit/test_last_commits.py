"""What a mending left as an id's identity is carried on, so that no healthy pipeline is taken for one whose ledger lost
decisions.

Each history ends with a restart of which neighbours have moved every note out of sight. On a cluster in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from embedded_kafka.faults.fault import Fault
from kafka_core import runtime
from kafka_core.errors import PipelineConflict
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.appending import append_record
from pyspark_kafka_eos.commit.ledger import reader
from pyspark_kafka_eos.commit.ledger.notes import Ended, to_bytes
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.markers import Mender
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations import decision_checks
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, LEDGER, OUTPUT, PIPELINE, SOURCE, NodeCluster, World
from tests.pyspark_kafka_eos.commit.ways import WAYS, InOneProcess, Slots, Way, lines, options, play, seals_of

BOTH = {0: 1, 1: 1}
"""A slot's records in two partitions, so that a marker may be missing in one of them."""

WINDOW = 4
"""Offsets of the ledger that a start reads at first, so that few neighbours move a note out of sight."""


@pytest.fixture(autouse=True)
def one_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process finds the cluster in memory, and keeps nothing of another test."""
    monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_: world.cluster))
    monkeypatch.setattr(reader, "_WINDOW", WINDOW)
    runtime.forget(runtime.process_id())
    yield
    runtime.forget(runtime.process_id())


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, world: World) -> Way:
    return WAYS[request.param](world)


def neighbours(world: World) -> None:
    """Records of another pipeline in the same partition of the ledger: more than a start reads at first."""
    value = to_bytes(Ended("theirs", 1, 1, 0))
    for _ in range(2 * WINDOW):
        append_record(world.cluster, world.where, b"neighbour/ended", value, what="a note", grant="")


def forget(world: World, slot: int) -> Fault:
    return world.kafka.forget_marker(OUTPUT[1], f"{PIPELINE}:{slot}")


def moved(world: World, slot: int) -> bool:
    """Whether the id stands where no seal has left it."""
    newest = world.ledger.look().newest
    assert newest is not None
    sealed = {seal.transactional_id: seal.end_identity for seal in newest.seals}
    name = f"{PIPELINE}:{slot}"
    return world.state(name) == "CompleteCommit" and world.identity(name) != sealed.get(name)


def starts_again(world: World, way: Way, batch_id: int) -> None:
    """The next run goes on, as the doctor says that it will."""
    way.restart()
    (said, *_) = decision_checks.newest_decision(world.cluster, options())
    assert said.status == "ok", said
    way.batch(batch_id, {0: {0: 1}})


def test_a_slot_that_was_mended_and_has_no_rows_since_refuses_no_start(world: World, way: Way) -> None:
    forgotten = forget(world, 2)
    way.batch(0, {0: BOTH, 1: BOTH, 2: BOTH})
    assert forgotten.fired == 1
    assert moved(world, 2)
    way.batch(1, {0: {0: 1}})
    neighbours(world)
    way.batch(2, {0: {0: 1}})

    starts_again(world, way, 3)

    # And once more, when the run that started knows it from the decision alone.
    neighbours(world)
    starts_again(world, way, 4)


def test_a_mending_before_a_restart_is_in_every_decision_behind_it(world: World, way: Way) -> None:
    forgotten = forget(world, 2)
    way.batch(0, {2: BOTH})
    assert forgotten.fired == 1
    way.restart()
    for batch_id in (1, 2):
        way.batch(batch_id, {0: {0: 1}})
        neighbours(world)

    starts_again(world, way, 3)

    newest = world.ledger.look().newest
    assert newest is not None
    assert newest.ends[f"{PIPELINE}:2"] == world.identity(f"{PIPELINE}:2")


def test_a_slot_that_commits_again_is_named_as_it_was_sealed(world: World, way: Way) -> None:
    forgotten = forget(world, 2)
    way.batch(0, {2: BOTH})
    assert forgotten.fired == 1
    way.batch(1, {2: {2: 1}})
    neighbours(world)
    way.batch(2, {0: {0: 1}})

    starts_again(world, way, 3)


def test_a_slot_that_was_mended_beside_one_that_was_repaired_is_named_as_it_was_left(world: World) -> None:
    """The repair writes the decision anew, behind the note of the mending, with the mended slot's seal as it was."""
    driver = PerTask(Run(world.cluster, options(), "query"))
    assert driver.start(0, None, lines(0)) is None
    forgotten = world.kafka.forget_marker(OUTPUT[1], f"{PIPELINE}:2")
    first = seals_of(world, {0: {0: 1}, 2: BOTH})
    # A late attempt of the task takes the id over, which aborts what is decided.
    aborts = world.kafka.fault(
        "EndTxn",
        lambda: world.kafka.take_over(f"{PIPELINE}:0"),
        matches=lambda asked: asked.transactional_id == f"{PIPELINE}:0",
    )

    driver.run.start_clock()
    driver.process(0, replays(world, first, {0: {0: 1}}), lines(0), {SOURCE: 1})

    assert (aborts.fired, forgotten.fired) == (1, 1)
    assert driver.run.newest is not None and driver.run.newest.repaired == 1
    assert moved(world, 2)
    newest = world.ledger.look().newest
    assert newest is not None
    assert newest.ends == {f"{PIPELINE}:{slot}": world.identity(f"{PIPELINE}:{slot}") for slot in (0, 2)}
    neighbours(world)
    starts_again(world, InOneProcess(world), 1)


def replays(world: World, first: Sequence[Seal], again: Slots) -> Callable[[Any], Sequence[Seal]]:
    """A write whose replay writes these slots only."""
    tries = iter([list(first), None])

    def write(_slots: frozenset[int] | None) -> Sequence[Seal]:
        seals = next(tries)
        if seals is not None:
            return seals
        return seals_of(world, again)

    return write


def test_a_mending_by_hand_that_the_running_query_does_not_know_of_refuses_no_start(world: World) -> None:
    """`transactions commit` writes the missing marker while the run goes on: its note is in front of a decision that
    says nothing of it. The whole ledger is read for such a note before anybody is accused.
    """
    way = InOneProcess(world)
    way.batch(0, {0: BOTH, 2: BOTH})
    newest = world.ledger.look().newest
    assert newest is not None
    name = f"{PIPELINE}:2"
    # The operator's process initialises the id, notes that, and ends an empty transaction.
    cluster = NodeCluster(world.kafka)
    assert Mender(cluster, Ledger(cluster, LEDGER, PIPELINE), 60_000).write_markers(name, [OUTPUT[1]], commit=True)
    assert moved(world, 2)
    neighbours(world)
    way.batch(1, {0: {0: 1}})
    after = world.ledger.look().newest
    assert after is not None and after.ends[name] != world.identity(name)
    neighbours(world)

    starts_again(world, way, 2)

    # From then on the decisions name it.
    again = world.ledger.look().newest
    assert again is not None and again.ends[name] == world.identity(name)


def test_a_commit_that_no_note_and_no_decision_names_is_refused_as_before(world: World) -> None:
    way = InOneProcess(world)
    forgotten = forget(world, 2)
    way.batch(0, {0: BOTH, 2: BOTH})
    assert forgotten.fired == 1
    neighbours(world)
    end = world.kafka.log(world.where).end
    way.batch(1, {2: {2: 1}})
    world.kafka.log(world.where).lose_tail(end)
    way.restart()

    with pytest.raises(PipelineConflict, match="the ledger has lost a later decision") as lost:
        way.batch(1, {0: {0: 1}})

    assert lost.value.facts["transactional_ids"] == (f"{PIPELINE}:2",)
    assert world.kafka.log(world.where).end == end


def test_an_adopted_pipeline_starts_without_the_option_from_then_on(world: World) -> None:
    way = InOneProcess(world)
    way.batch(0, {0: BOTH, 2: BOTH})
    world.end(world.slot(2), commit=True)
    way.restart()
    driver = PerTask(Run(world.cluster, options(adopt__checkpoint="true"), "query"))
    assert driver.start(1, None, lines(1)) is None
    play(world, driver, 1, {0: {0: 1}})

    starts_again(world, way, 2)


def test_what_an_older_run_decides_while_the_next_one_looks_is_settled_before_the_fence(world: World) -> None:
    """The broker forgets its marker, and what shows the outcome is gone once the next run has the driver's id."""
    other = PerTask(Run(world.cluster, options(), "query"))
    assert other.start(0, None, lines(0)) is None
    later = PerTask(Run(NodeCluster(world.kafka), options(), "query"))
    forgotten: list[Fault] = []

    def decides() -> None:
        forgotten.append(world.kafka.forget_marker(world.where, DRIVER))
        play(world, other, 0, {0: {0: 1}})

    between = world.kafka.fault("ListTransactions", decides)

    report = later.start(0, None, lines(0))

    assert (between.fired, forgotten[0].fired) == (1, 1)
    assert report is not None and report.resumed
    assert len(world.shown(OUTPUT[0])) == 1
