"""A run begins a batch behind one that is decided and not ended: a function of `foreachBatch` returned, or the commit
log was moved on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kafka_core.errors import DecisionBroken
from pyspark_kafka_eos.commit.drivers import pipeline_driver
from pyspark_kafka_eos.commit.handover import begin
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan
from tests.pyspark_kafka_eos.commit.fakes import LEDGER, OUTPUT, RUN_OPTIONS, World, decision_of
from tests.pyspark_kafka_eos.commit.start.test_first_start import run_of, write

OFFSETS = '{"source":{"0":42}}'
GIVING_UP = {"adopt.checkpoint": "true", "adopt.without.batch": "7"}
STARTED = Counter(
    Metadata=6,
    ListOffsets=6,
    FindCoordinator=3,
    DescribeConfigs=2,
    ListTransactions=2,
    DescribeTransactions=3,
    InitProducerId=2,
    Fetch=1,
    OffsetFetch=1,
    DescribeProducers=1,
)
"""What a start asks where nothing is left of the batch before."""

SCOPES = pytest.mark.parametrize("scope", ["task", "batch"])


def decided(world: World, ended: int = 0) -> list[Seal]:
    """Batch 7 of three slots with 2 records each; the first ones are committed, the others are open."""
    seals = [world.slot(number) for number in range(3)]
    world.decide(decision_of(seals, batch_id=7, source_offsets=(OFFSETS,)))
    for seal in seals[:ended]:
        world.end(seal, commit=True)
    return seals


def options_of(scope: str, **more: str) -> SinkOptions:
    given = {**RUN_OPTIONS, "ledger.topic": LEDGER, "transaction.scope": scope, **more}
    return SinkOptions.parse(given)


def driver_of(world: World, scope: str, **more: str) -> PerTask | WholeBatch:
    """A new process's run of the query that decided batch 7."""
    world.fresh_process()
    return pipeline_driver(world.cluster, options_of(scope, **more), "query")


def shown(world: World) -> list[int]:
    return [len(world.shown(where)) for where in OUTPUT]


@SCOPES
@pytest.mark.parametrize("ended", [0, 1])
@pytest.mark.parametrize("batch", [8, 12])
def test_what_is_decided_is_committed_before_a_later_batch_begins(
    world: World, scope: str, ended: int, batch: int
) -> None:
    decided(world, ended)

    assert driver_of(world, scope).start(batch, None, (f"offsets {batch}",)) is None

    assert shown(world) == [2, 2, 2, 0]


@SCOPES
def test_the_same_where_the_later_batch_begins_in_another_process_than_it_ends(world: World, scope: str) -> None:
    decided(world)
    world.fresh_process()

    plan, handover = begin(world.cluster, options_of(scope), "query", 8, ("offsets 8",))

    assert shown(world) == [2, 2, 2, 0]
    writing = plan.writing if isinstance(plan, SharedPlan) else plan
    assert (handover.repair, writing.only_slots) == (None, None)


def test_the_later_batch_is_written_behind_it(world: World) -> None:
    decided(world)
    driver = run_of(world)
    assert driver.start(8, None, ("offsets 8",)) is None

    write(world, driver, 8)

    assert shown(world) == [4, 2, 2, 0]
    newest = world.ledger.look().newest
    assert newest is not None and newest.batch_id == 8


def test_a_marker_that_the_broker_left_out_of_it_is_written(world: World) -> None:
    seals = [world.slot(number) for number in range(2)]
    world.decide(decision_of(seals, batch_id=7, source_offsets=(OFFSETS,)))
    world.kafka.forget_marker(OUTPUT[1])
    for seal in seals:
        world.end(seal, commit=True)
    assert shown(world)[:2] == [2, 0]

    assert run_of(world).start(8, None, ("offsets 8",)) is None

    assert shown(world)[:2] == [2, 2]


@SCOPES
@pytest.mark.parametrize("committed", [0, 1])
def test_what_the_broker_aborted_of_it_is_refused_by_the_batchs_number_and_offsets(
    world: World, scope: str, committed: int
) -> None:
    seals = decided(world, committed)
    for seal in seals[committed:]:
        world.end(seal, commit=False)
    before, values = shown(world), len(world.unnamed_keys())

    for _ in range(2):
        with pytest.raises(DecisionBroken) as refused:
            driver_of(world, scope).start(8, None, ("offsets 8",))

        said, missing = refused.value.message, 6 - 2 * committed
        assert f"the broker aborted {missing} of its 6 records" in said
        assert "this query begins batch 8" in said and OFFSETS in said
        assert "delete offsets/8 and commits/7 and all later ones" in said
        assert "adopt.without.batch=7 beside adopt.checkpoint=true" in said
        facts = refused.value.facts
        assert (facts["batch"], facts["this_batch"], facts["missing_records"]) == (7, 8, missing)
    assert (shown(world), len(world.unnamed_keys())) == (before, values)


@SCOPES
def test_the_same_is_refused_where_the_batch_begins_in_another_process_than_it_ends(world: World, scope: str) -> None:
    for seal in decided(world):
        world.end(seal, commit=False)
    world.fresh_process()

    with pytest.raises(DecisionBroken, match="this query begins batch 8"):
        begin(world.cluster, options_of(scope), "query", 8, ("offsets 8",))

    assert shown(world) == [0, 0, 0, 0]


@SCOPES
def test_by_its_number_it_is_given_up_and_the_query_goes_on(
    world: World, scope: str, caplog: pytest.LogCaptureFixture
) -> None:
    for seal in decided(world):
        world.end(seal, commit=False)
    assert driver_of(world, scope, **GIVING_UP).start(8, None, ("offsets 8",)) is None
    driver = run_of(world, **{name.replace(".", "__"): value for name, value in GIVING_UP.items()})
    assert driver.start(8, None, ("offsets 8",)) is None

    write(world, driver, 8)

    assert "6 of the 6 records of batch 7 of query query are given up" in caplog.text
    assert shown(world) == [2, 0, 0, 0]
    newest = world.ledger.look().newest
    assert newest is not None and any(OFFSETS in warning for warning in newest.warnings)
    assert run_of(world).start(9, None, ("offsets 9",)) is None


def test_where_batch_7_begins_again_it_is_written_again(world: World) -> None:
    seals = decided(world)
    for seal in seals:
        world.end(seal, commit=False)
    with pytest.raises(DecisionBroken):
        run_of(world).start(8, None, ("offsets 8",))
    driver = run_of(world)

    def replay(_slots: frozenset[int]) -> list[Seal]:
        again = [world.slot(number) for number in range(3)]
        return [replace(each, digest=seal.digest) for each, seal in zip(again, seals, strict=True)]

    report = driver.start(7, replay, (OFFSETS,))

    assert report is not None and shown(world) == [2, 2, 2, 0]


def test_a_batch_whose_end_is_noted_costs_nothing_more(world: World) -> None:
    driver = run_of(world)
    driver.start(7, None, ())
    write(world, driver, 7)
    later = run_of(world)

    assert later.start(8, None, ("offsets 8",)) is None

    asked = Counter(api for call in world.cluster.network.together for api in call)
    assert asked == STARTED
