"""The way on that a refused older checkpoint names, where the newer one is lost."""

from __future__ import annotations

import pytest

from kafka_core.errors import PipelineConflict
from tests.changes.cell import _quiet
from tests.changes.changes import _older
from tests.changes.small_spark import FOREACH, FORMAT
from tests.changes.world import PIPELINE, World, world

pytestmark = pytest.mark.kafka


def to_the_end(here: World) -> None:
    query = here.start()
    while query.batch():
        pass


def batches(here: World, count: int) -> None:
    for _ in range(count):
        here.feed()
        query = here.start()
        assert query.batch()


def refused(here: World, adopts: dict[str, str], why: str) -> str:
    """What the start says, which names the way on."""
    here.sink_options = dict(adopts)
    with pytest.raises(PipelineConflict, match=why) as error:
        to_the_end(here)
    said = error.value.message
    assert "a new, empty checkpoint" in said and "adopt.checkpoint=true once" in said
    assert f"startingOffsets=group with kafka.group.id={PIPELINE}" in said
    return said


def from_a_new_one(here: World) -> None:
    here.checkpoint.begin()
    here.source_options = {"startingOffsets": "group", "kafka.group.id": PIPELINE}
    to_the_end(here)


@pytest.mark.parametrize(("way", "scope"), [(FORMAT, "task"), (FOREACH, "batch")])
def test_with_an_empty_checkpoint_that_begins_at_the_groups_offsets_each_row_is_there_once(
    way: str, scope: str
) -> None:
    with _quiet(), world(way, scope, 2) as here:
        batches(here, 3)
        _older(here)
        _older(here)
        here.feed()

        for adopts in ({}, {"adopt.checkpoint": "true"}):
            said = refused(here, adopts, "older than the output")
            assert "begins batch 1, but batch 2 of this query is committed" in said
            # Where it reads elsewhere, the offsets have to be set by hand.
            assert "ended at source offsets {" in said and '"src"' in said

        from_a_new_one(here)

        here.sink_options, here.source_options = {}, {}
        here.feed()
        to_the_end(here)
        assert here.verdict(whole=True) == []


@pytest.mark.parametrize(("way", "scope"), [(FORMAT, "task"), (FOREACH, "batch")])
def test_the_same_way_is_named_where_the_copys_next_batch_is_wider_than_the_decided_one(way: str, scope: str) -> None:
    with _quiet(), world(way, scope, 2) as here:
        batches(here, 2)
        _older(here)
        here.feed()

        for adopts in ({}, {"adopt.checkpoint": "true"}):
            said = refused(here, adopts, "for other source offsets")
            assert "Restore the checkpoint that the batch was committed with" in said

        from_a_new_one(here)
        assert here.verdict(whole=True) == []
