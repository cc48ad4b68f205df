"""What options say about writing stands in one value: the plan of a batch has every field of it, and old pickles are read."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

import pytest

from connector.model import ClientSettings, WriteSettings
from connector.options import SinkOptions
from connector.slot.plan import WritePlan

# No value is its field's default.
SET: dict[str, Any] = {
    "pipeline": "orders",
    "client": ClientSettings(("nowhere:1",)),
    "topic": "out",
    "compression": "zstd",
    "compression_level": 7,
    "batch_bytes": 4_096,
    "delivery_timeout_ms": 5_000,
    "max_request_bytes": 2_048,
    "max_unpacked_bytes": 1_048_576,
    "guarantee": "at-least-once",
    "dead_letter_topic": "dead",
    "on_expired": "refuse",
}


def test_a_plan_has_every_setting_of_the_options() -> None:
    assert set(SET) == {each.name for each in fields(WriteSettings)}, "set the new field here, too"
    assert all(SET[each.name] != each.default for each in fields(WriteSettings))

    plan = WritePlan.of(SinkOptions(**SET), 7, None, two_phase=True)

    assert plan.write_settings() == SET
    assert (plan.batch_id, plan.only_slots, plan.two_phase) == (7, None, True)
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("transactional", "confirmed", "guarantee"),
    [(True, True, "exactly-once"), (False, True, "at-least-once"), (False, False, "none")],
)
def test_a_plan_of_the_first_version_is_read(transactional: bool, confirmed: bool, guarantee: str) -> None:
    """Its names differed, and it lacks what came later."""
    plan = WritePlan.__new__(WritePlan)
    plan.__setstate__(
        {
            "pipeline": "orders", "batch_id": 7, "client": SET["client"], "topic": None, "transaction_timeout_ms": 60_000,
            "compression": "none", "batch_bytes": 4_096, "delivery_timeout_ms": 5_000, "max_record_bytes": 2_048,
            "transactional": transactional, "confirmed": confirmed, "only_slots": frozenset({3}),
        }
    )  # fmt: skip
    expected = WritePlan(
        pipeline="orders", batch_id=7, client=SET["client"], transaction_timeout_ms=60_000, batch_bytes=4_096,
        delivery_timeout_ms=5_000, max_request_bytes=2_048, guarantee=guarantee, only_slots=frozenset({3}),
    )  # fmt: skip
    assert plan == expected


def test_options_that_were_a_model_of_pydantic_are_read() -> None:
    options = SinkOptions.__new__(SinkOptions)
    options.__setstate__(
        {
            "__dict__": {**SET, "offsets_group": "g", "scope": "batch", "of_a_newer_version": 1},
            "__pydantic_fields_set__": {"pipeline"},
            "__pydantic_extra__": None,
            "__pydantic_private__": None,
        }
    )
    assert options == SinkOptions(**SET, offsets_group="g", scope="batch")


def test_what_lacks_a_field_without_a_default_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="a pickled WritePlan lacks batch_id"):
        WritePlan.__new__(WritePlan).__setstate__(SET)
