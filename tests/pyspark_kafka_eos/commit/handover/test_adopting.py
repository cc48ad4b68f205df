"""A new checkpoint over a decided batch that the broker aborted: refused with its source offsets, or given up by its
number.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_core.errors import DecisionBroken, OptionsError
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.fakes import LEDGER, OUTPUT, PIPELINE, RUN_OPTIONS, World, decision_of
from tests.pyspark_kafka_eos.commit.start.test_first_start import run_of, write

OFFSETS = '{"source":{"0":42}}'
ADOPTING = {"adopt__checkpoint": "true"}
GIVING_UP = {**ADOPTING, "adopt__without__batch": "7"}


def decided(world: World, committed: int, *, batch_write: bool = False) -> list[Seal]:
    """Batch 7 of three slots with 2 records each; the first ones are committed, the broker aborted the others."""
    seals = [world.slot(number) for number in range(3)]
    fields = {"query_id": "batch-write"} if batch_write else {"source_offsets": (OFFSETS,)}
    world.decide(decision_of(seals, batch_id=7, **fields))
    for seal in seals:
        world.end(seal, commit=seal.slot < committed)
    return seals


def shown(world: World) -> list[int]:
    return [len(world.shown(where)) for where in OUTPUT]


def ledger_values(world: World) -> int:
    return len(world.unnamed_keys())


@pytest.mark.parametrize(
    ("committed", "said"),
    [(0, "none of them is visible yet"), (1, "the 2 committed ones are there twice then")],
)
def test_an_aborted_batch_of_the_query_before_is_refused_with_its_source_offsets_and_what_is_missing(
    world: World, committed: int, said: str
) -> None:
    decided(world, committed)
    before, values = shown(world), ledger_values(world)

    for _ in range(2):
        with pytest.raises(DecisionBroken, match="only that query can write as they were decided") as refused:
            run_of(world, "another", **ADOPTING).start(0, None, ("offsets 0",))

        missing = 6 - 2 * committed
        assert f"aborted {missing} of its 6 records" in refused.value.message and said in refused.value.message
        assert OFFSETS in refused.value.message and "set adopt.without.batch=7 beside" in refused.value.message
        assert refused.value.facts["slots"] == tuple(range(committed, 3))
        assert (refused.value.facts["missing_records"], refused.value.facts["committed_records"]) == (
            missing,
            2 * committed,
        )
    assert (shown(world), ledger_values(world)) == (before, values)


@pytest.mark.parametrize("committed", [0, 1])
def test_named_by_its_number_it_is_given_up_and_the_new_query_goes_on(
    world: World, committed: int, caplog: pytest.LogCaptureFixture
) -> None:
    decided(world, committed)
    before = shown(world)

    # A first try that fails changes nothing: the confirmation is needed until a batch is committed.
    assert run_of(world, "another", **GIVING_UP).start(0, None, ("offsets 0",)) is None
    with pytest.raises(DecisionBroken):
        run_of(world, "another", **ADOPTING).start(0, None, ("offsets 0",))
    driver = run_of(world, "another", **GIVING_UP)
    assert driver.start(0, None, ("offsets 0",)) is None
    write(world, driver, 0)

    assert f"{6 - 2 * committed} of the 6 records of batch 7 of query query are given up" in caplog.text
    newest = world.ledger.look().newest
    assert newest is not None and (newest.query_id, newest.batch_id) == ("another", 0)
    assert any(OFFSETS in warning for warning in newest.warnings)
    assert shown(world) == [before[0] + 2, *before[1:]]
    assert run_of(world, "another").start(1, None, ("offsets 1",)) is None


def test_another_batchs_number_gives_nothing_up(world: World) -> None:
    decided(world, 1)

    with pytest.raises(DecisionBroken, match=r"adopt\.without\.batch=7"):
        run_of(world, "another", **ADOPTING, adopt__without__batch="6").start(0, None, ())


def test_a_data_frames_batch_is_to_be_written_again_by_its_number(world: World) -> None:
    decided(world, 1, batch_write=True)

    with pytest.raises(DecisionBroken, match=r"write the same rows again with batch\.id=7"):
        run_of(world, "another", **ADOPTING).start(0, None, ())


def test_of_a_batch_that_is_not_aborted_nothing_is_given_up(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    world.decide(decision_of(seals, batch_id=7, source_offsets=(OFFSETS,)))
    world.end(seals[0], commit=True)

    # Slot 1 is open as it was decided: it is committed, whatever the option says.
    assert run_of(world, "another", **GIVING_UP).start(0, None, ()) is None
    assert shown(world)[:2] == [2, 2]


def test_of_a_torn_slot_only_the_aborted_partitions_are_missing(world: World) -> None:
    seal = world.slot(0, {0: 2, 1: 3}, digests={0: 3, 1: 4})
    world.decide(decision_of([seal], batch_id=7, source_offsets=(OFFSETS,)))
    world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)
    # The next marker of the producer is an abort.
    assert seal.identity is not None
    again = world.slot(0, {1: 1})
    world.end(again, commit=False)

    with pytest.raises(DecisionBroken, match="aborted 3 of its 5 records"):
        run_of(world, "another", **ADOPTING).start(0, None, ())


def test_the_number_is_refused_without_adopt_checkpoint() -> None:
    given = {**RUN_OPTIONS, "ledger.topic": LEDGER, "adopt.without.batch": "7"}
    with pytest.raises(OptionsError, match=r"adopt\.without\.batch needs adopt\.checkpoint=true"):
        SinkOptions.parse(given)
    assert replace(SinkOptions.parse({**given, "adopt.checkpoint": "true"}), pipeline=PIPELINE).adopt_without_batch == 7
