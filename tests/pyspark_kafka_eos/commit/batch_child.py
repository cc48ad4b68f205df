"""A run of scope=batch without Spark, for tests that kill it or stop it: tasks side by side in threads, then the
commit.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit.child import arrow_batches


def driver_of(settings: dict[str, Any]) -> WholeBatch:
    """The driver of a run."""
    options = SinkOptions.parse({**settings["options"], "transaction.scope": "batch"})
    return WholeBatch(Run(Cluster.shared(options.client), options, settings["query"]))


def write(driver: WholeBatch, settings: dict[str, Any], only: frozenset[int] | None = None) -> list[Seal]:
    """The job. `only`: slots of a batch that a run of scope=task decided, as `child` writes them."""
    plan = driver.plan(settings["batch"], only)
    if isinstance(plan, WritePlan):
        return [write_slot(plan, slot, arrow_batches(values)) for slot, values in enumerate(settings["rows"])]
    return write_all(plan, settings)


def write_all(plan: SharedPlan, settings: dict[str, Any]) -> list[Seal]:
    """Every task of a try, at the same time."""
    slots = range(len(settings["rows"]))
    with ThreadPoolExecutor(len(slots)) as tasks:
        return list(tasks.map(lambda slot: write_one(plan, settings, slot), slots))


def write_one(plan: SharedPlan, settings: dict[str, Any], slot: int) -> Seal:
    """One start of a task."""
    return write_shared(plan, slot, arrow_batches(settings["rows"][slot]))


def process(driver: WholeBatch, settings: dict[str, Any]) -> CommitReport:
    """One batch as the writer does it, a failed try abandoned."""

    def attempt(only: frozenset[int] | None) -> list[Seal]:
        try:
            return write(driver, settings, only)
        except BaseException as error:
            driver.abandon(settings["batch"], (), str(error))
            raise

    offsets = {TopicPartition(topic, number): at for topic, number, at in settings.get("offsets", [])}
    return driver.process(settings["batch"], attempt, lines_of(settings), offsets)


def lines_of(settings: dict[str, Any]) -> tuple[str, ...]:
    """The batch's source offsets as Spark's offset log has them."""
    return (json.dumps(settings.get("offsets", [])),)


def run_batch(settings: dict[str, Any]) -> dict[str, Any]:
    """One micro-batch, from the start of a run to its end."""
    driver = driver_of(settings)
    report = driver.start(settings["batch"], lambda slots: write(driver, settings, slots))
    if report is None:
        report = process(driver, settings)
        crash_points.reached("before-return")
    return {
        "batch": report.batch_id,
        "records": report.records,
        "resumed": report.resumed,
        "repaired": report.repaired,
        "redone": report.redone,
    }
