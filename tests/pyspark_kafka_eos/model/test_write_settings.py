"""What options say about writing stands in one value: the plan of a batch has every field of it."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

from pyspark_kafka_eos.model import ClientSettings, WriteSettings
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import WritePlan

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

    plan = WritePlan.for_batch(SinkOptions(**SET), 7, None, two_phase=True)

    assert plan.write_settings() == SET
    assert (plan.batch_id, plan.only_slots, plan.two_phase) == (7, None, True)
    assert pickle.loads(pickle.dumps(plan)) == plan
