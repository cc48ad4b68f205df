"""A decision whose marker the broker forgot, before the next decision of the same producer: one marker would end both.

Found by the model (TaskCommit-no-OwnMarker): the abort of the second decision took the first, which Spark had counted
as done. On a cluster in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_core.errors import AbortableError, ProducerFenced, TransactionTooOld
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.ledger.notes import Ended
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan
from tests.pyspark_kafka_eos.commit.fakes import (
    DRIVER,
    GROUP,
    LEDGER,
    OUTPUT,
    PIPELINE,
    SOURCE,
    World,
    decision_of,
    send,
)
from tests.pyspark_kafka_eos.commit.node_kafka import OFFSETS

WHOLE = f"{PIPELINE}:batch"


def options(scope: str = "task") -> SinkOptions:
    return SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "memory:1",
            "pipeline": PIPELINE,
            "topic": "out",
            "ledger.topic": LEDGER,
            "offsets.group": GROUP,
            "transaction.scope": scope,
        }
    )


class Batches:
    """One run of scope=task over batches of one slot with two rows."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.driver = PerTask(Run(world.cluster, options(), "query"))
        self.written = 0

    def batch(self, number: int) -> None:
        def write(_only: frozenset[int] | None = None) -> list[Seal]:
            self.driver.plan(number)
            self.written += 1
            return [self.world.slot(0)]

        lines = (f"to {number}",)
        if number == 0:
            assert self.driver.start(0, write, lines) is None
        self.driver.process(number, write, lines, {SOURCE: number})


def newest(world: World) -> tuple[int, bool]:
    view = world.ledger.look()
    assert view.newest is not None
    return view.newest.batch_id, view.open is None


def test_the_missing_marker_is_written_before_the_next_decision(world: World) -> None:
    run = Batches(world)
    forgotten = world.kafka.forget_marker(world.where, DRIVER)
    run.batch(0)
    assert forgotten.fired == 1
    assert world.ledger.look().open is not None

    run.batch(1)

    assert newest(world) == (1, True)
    assert run.written == 3
    assert len(world.shown(OUTPUT[0])) == 4
    assert len([value for value in world.shown(world.where) if b'"note"' not in value]) == 2
    assert world.kafka.committed[GROUP] == {SOURCE: 1}


def test_an_abort_of_the_next_decision_does_not_take_the_last_one(world: World) -> None:
    run = Batches(world)
    world.kafka.forget_marker(world.where, DRIVER)
    run.batch(0)
    # The next decision's transaction runs into its timeout before its end.
    late = world.kafka.fault("TxnOffsetCommit", lambda: world.kafka.advance(60_001))

    with pytest.raises(TransactionTooOld, match="held up for longer"):
        run.batch(1)

    assert late.fired == 1
    assert newest(world) == (0, True)
    assert len(world.shown(OUTPUT[0])) == 2


def test_a_marker_that_is_merely_late_is_waited_for_and_the_batch_is_written_once(world: World) -> None:
    run = Batches(world)
    world.kafka.forget_marker(world.where, DRIVER, late=True)
    world.kafka.at_pause(world.kafka.release_markers)
    run.batch(0)
    before = world.kafka.asked["InitProducerId"]

    run.batch(1)

    # The slot's own one; version 1 also bumps the driver's epoch, and that of the notes.
    assert world.kafka.asked["InitProducerId"] - before <= 3
    assert run.written == 2
    assert newest(world) == (1, True)


def test_a_run_that_was_replaced_meanwhile_does_not_write_the_marker(world: World) -> None:
    run = Batches(world)
    world.kafka.forget_marker(world.where, DRIVER)
    run.batch(0)
    world.driver()

    with pytest.raises(ProducerFenced, match="a newer run has taken over"):
        run.batch(1)

    assert len(world.shown(OUTPUT[0])) == 2


class WholeBatches:
    """One run of scope=batch. A try writes one row into each of two partitions, and fails then where `fails` counts
    it.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.driver = WholeBatch(Run(world.cluster, options("batch"), "query"))
        self.tries = 0
        self.fails: set[int] = set()

    def start(self, number: int) -> CommitReport | None:
        return self.driver.start(number, None, (f"to {number}",))

    def write(self, number: int) -> Sequence[Seal]:
        self.tries += 1
        plan = self.driver.plan(number)
        assert isinstance(plan, SharedPlan)
        producer = Producer(self.world.cluster, WHOLE, transaction_version=plan.transaction_version)
        producer.join(plan.identity)
        producer.begin()
        for where in OUTPUT[:2]:
            send(producer, where, f"batch {number}".encode())
        producer.flush()
        if self.tries in self.fails:
            raise AbortableError("an executor was lost")
        return [producer.seal(0, records=2, size_bytes=0, digest=7)]

    def batch(self, number: int) -> None:
        self.driver.process(number, lambda _: self.write(number), (f"to {number}",), {SOURCE: number})


def shown(world: World) -> list[list[bytes]]:
    return [world.shown(where) for where in OUTPUT[:2]]


def first_batch_lacks_its_marker(world: World) -> WholeBatches:
    world.kafka.create(f"{LEDGER}-turns")
    run = WholeBatches(world)
    run.start(0)
    forgotten = world.kafka.forget_marker(world.where, WHOLE)
    run.batch(0)
    assert forgotten.fired == 1
    assert world.ledger.look().open is not None
    return run


def test_a_batch_in_one_transaction_writes_the_missing_marker_too(world: World) -> None:
    run = first_batch_lacks_its_marker(world)

    run.batch(1)

    assert run.tries == 3
    assert shown(world) == [[b"batch 0", b"batch 1"]] * 2
    assert newest(world) == (1, True)
    assert world.kafka.committed[GROUP] == {SOURCE: 1}


def test_a_try_that_is_open_behind_a_decision_without_its_marker_is_not_committed_by_the_next_run(
    world: World,
) -> None:
    """Found by the simulation, seed 7000309: the open try was taken for a mending, and its rows came twice."""
    killed = first_batch_lacks_its_marker(world)
    killed.write(1)
    assert world.state(WHOLE) == "Ongoing"
    run = WholeBatches(world)

    assert run.start(1) is None
    run.batch(1)

    assert shown(world) == [[b"batch 0", b"batch 1"]] * 2
    assert newest(world) == (1, True)
    assert world.kafka.committed[GROUP] == {SOURCE: 1}


def test_a_try_that_failed_behind_a_decision_without_its_marker_is_aborted_and_the_batch_done_again(
    world: World,
) -> None:
    run = first_batch_lacks_its_marker(world)
    run.fails = {2}

    run.batch(1)

    assert run.tries == 3
    assert shown(world) == [[b"batch 0", b"batch 1"]] * 2
    assert newest(world) == (1, True)


def test_a_decision_that_a_late_request_has_opened_again_is_kept(world: World) -> None:
    """Found by the simulation, seed 5000226: with transaction version 1 its identity is still valid, so the coordinator
    begins a transaction under it, and the abort of that one took the decision.
    """
    if world.cluster.transaction_version == 2:
        pytest.skip("version 2 ends a transaction under the next epoch")
    seal = world.slot(0)
    world.kafka.forget_marker(world.where, DRIVER)
    producer = world.decide(decision_of([seal]))
    world.end(seal, commit=True)
    world.transactions.add_partitions(DRIVER, producer.identity, [world.where])
    assert world.state(DRIVER) == "Ongoing"

    world.mender.settle_decision(DRIVER, GROUP)
    # A start: the abort of what is open takes the decision's record, and the note keeps it.
    world.driver()

    assert newest(world) == (0, True)


# ---- a decision behind one without its marker, as a process leaves it that has no right to look before it decides


def two_open(world: World, *, end: bool | None) -> tuple[Seal, Producer]:
    """Batch 0 is decided and shown, its marker forgotten; batch 1's decision stands behind it, open or ended by an
    abort whose marker is forgotten too (`end` False) or a commit (`end` True)."""
    seal = world.slot(0)
    world.kafka.forget_marker(world.where, DRIVER)
    world.decide(decision_of([seal]))
    world.end(seal, commit=True)
    producer = world.driver()
    if end is not None:
        world.kafka.forget_marker(world.where, DRIVER)
    world.decide(decision_of([world.slot(1)], batch_id=1), producer, commit=bool(end))
    if end is False:
        producer.abort()
    assert len(world.ledger.look().all_open) == 2
    return seal, producer


def test_the_next_decision_that_is_still_open_is_not_committed_by_somebody_else(world: World) -> None:
    _, producer = two_open(world, end=None)

    world.mender.settle_decision(DRIVER, GROUP)

    assert world.state(DRIVER) == "Ongoing"
    producer.abort()
    # The abort took both records; the note keeps the older decision.
    assert newest(world) == (0, True)


@pytest.mark.parametrize(("end", "batch"), [(False, 0), (True, 1)])
def test_of_two_decisions_without_markers_each_keeps_its_own_outcome(world: World, end: bool, batch: int) -> None:
    two_open(world, end=end)

    world.mender.settle_decision(DRIVER, GROUP)

    assert newest(world) == (batch, True)


def test_a_note_of_its_end_settles_a_decision_that_nothing_else_shows(world: World) -> None:
    decision = decision_of([world.slot(0)])
    world.kafka.forget_marker(world.where, DRIVER)
    world.decide(decision)
    world.ledger.note(Ended.of_decision(decision))
    # The coordinator has another epoch since, and the slot shows nothing.
    world.transactions.init_producer_id(DRIVER, 60_000)

    world.mender.settle_decision(DRIVER, GROUP)

    assert newest(world) == (0, True)


# ---- the marker of the group's offsets alone


@pytest.mark.parametrize("late", [False, True])
def test_offsets_that_lack_only_their_own_marker_are_committed_by_the_next_start(world: World, late: bool) -> None:
    world.kafka.commit_offsets(GROUP, {SOURCE: 1})
    forgotten = world.kafka.forget_marker(OFFSETS, DRIVER, late=late)
    world.decide(decision_of([]))
    assert forgotten.fired == 1
    before = world.kafka.asked["InitProducerId"]

    world.mender.settle_decision(DRIVER, GROUP)
    world.kafka.release_markers()

    assert world.kafka.committed[GROUP] == {SOURCE: 5}
    # The driver's id, and that of the note of it.
    assert world.kafka.asked["InitProducerId"] - before == (0 if late else 2)
    assert newest(world) == (0, True)


def test_offsets_of_an_aborted_decision_are_dropped(world: World) -> None:
    world.kafka.commit_offsets(GROUP, {SOURCE: 1})
    world.decide(decision_of([]))
    world.kafka.forget_marker(OFFSETS, DRIVER)
    world.decide(decision_of([], batch_id=1), commit=False).abort()

    world.mender.settle_decision(DRIVER, GROUP)

    assert world.kafka.committed[GROUP] == {SOURCE: 5}
    assert not Offsets(world.cluster).unstable(GROUP)


def test_without_the_right_to_read_the_group_nothing_is_asked_of_it(world: World) -> None:
    world.decide(decision_of([]))
    denied = world.kafka.fault("OffsetFetch", Code.GROUP_AUTHORIZATION_FAILED, times=9)

    world.mender.settle_decision(DRIVER, GROUP)

    assert denied.fired == 1
