"""Transactional ids: the same for every run of a pipeline, different for everything that writes at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.model import batch_transactional_id
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import WritePlan

ROOT = Path(__file__).parents[3]
SLOTS = 12

ELSEWHERE = """
import json, sys
from pyspark_kafka_eos.slot.plan import WritePlan
from pyspark_kafka_eos.options import SinkOptions
options = SinkOptions.parse(json.loads(sys.argv[1]))
plan = WritePlan.for_batch(options, 8, None)
print(json.dumps([plan.driver_id, *(plan.transactional_id(slot) for slot in range(12))]))
"""


def given(pipeline: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "nowhere:1", "pipeline": pipeline, "topic": "out"}


def ids(plan: WritePlan) -> list[str]:
    """The driver's and every slot's."""
    return [plan.driver_id, *(plan.transactional_id(slot) for slot in range(SLOTS))]


def test_every_run_and_every_batch_of_a_pipeline_has_the_same_ids() -> None:
    """Rule: seed 003 (TransactionId): the same across restarts, so that the new instance fences the old one."""
    options = SinkOptions.parse(given("orders"))
    first = ids(WritePlan.for_batch(options, 7, None))
    later = ids(WritePlan.for_batch(options, 8, frozenset((1,)), driver=ProducerIdentity(5, 6)))
    command = [sys.executable, "-c", ELSEWHERE, json.dumps(given("orders"))]
    elsewhere = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)

    assert first == ["orders:driver", *(f"orders:{slot}" for slot in range(SLOTS))]
    assert later == first
    assert json.loads(elsewhere.stdout) == first


def test_whoever_writes_at_the_same_time_has_another_id() -> None:
    """Rule: seed 003 (TransactionId) and seed 004 (Transactional IDs and Fencing): instances that run side by side must
    not fence one another.
    """
    plans = [WritePlan.for_batch(SinkOptions.parse(given(name)), 7, None) for name in ("orders", "returns")]
    everybody = [each for plan in plans for each in (*ids(plan), batch_transactional_id(plan.pipeline))]

    assert len(set(everybody)) == len(everybody) == 2 * (SLOTS + 2)
