"""One grammar of transactional ids: made in one place, parsed in one place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_eos.commit.dataframe_write import UNNAMED
from pyspark_kafka_eos.model import (
    PipelineId,
    batch_transactional_id,
    driver_transactional_id,
    parse_transactional_id,
    slot_transactional_id,
)
from pyspark_kafka_eos.model.ids import prefix_of

PIPELINES = st.from_regex(r"\A[A-Za-z0-9._-]{1,200}\Z")


@given(PIPELINES, st.integers(0, 100_000))
def test_every_id_that_is_made_parses_to_what_it_was_made_of(pipeline: str, slot: int) -> None:
    parsed = parse_transactional_id(slot_transactional_id(pipeline, slot))
    assert parsed == PipelineId(pipeline, str(slot))
    assert parsed.slot == slot
    for made, last in ((driver_transactional_id, "driver"), (batch_transactional_id, "batch")):
        named = parse_transactional_id(made(pipeline))
        assert named == PipelineId(pipeline, last)
        assert named.slot is None


@given(PIPELINES, PIPELINES, st.integers(0, 100_000))
def test_a_right_on_one_pipeline_opens_no_other_one(pipeline: str, other: str, slot: int) -> None:
    """`orders` and `orders.eu`, `orders.0` and `orders`: the ACL is on a prefix."""
    prefix = prefix_of(pipeline)
    for name in (other, f"{pipeline}.{other}", f"{pipeline}-{other}", f"{pipeline}.0", f"{UNNAMED}{other}"):
        ids = (slot_transactional_id(name, slot), driver_transactional_id(name), batch_transactional_id(name))
        assert [each.startswith(prefix) for each in ids] == [name == pipeline] * 3
        assert [each.startswith(UNNAMED) for each in ids] == [name.startswith(UNNAMED)] * 3


@pytest.mark.parametrize(
    "stranger", ["", "orders", "orders:", ":7", "orders:seven", "orders:-1", "orders:7 ", "orders.7"]
)
def test_an_id_that_no_pipeline_uses_is_nobodys(stranger: str) -> None:
    assert parse_transactional_id(stranger) is None
