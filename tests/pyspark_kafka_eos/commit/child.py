"""A pipeline's run without Spark, for tests that kill it: the slots in threads' stead one after another, then the
commit.

Children are forked from a server that has imported everything, so that a test costs no imports. Settings: options,
query, batch, rows (slot -> list of values), offsets. The values of a slot are written as they are, so a replay writes
the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit import ends_arrived
from tests.support.forks import forks


def run(settings: dict[str, Any]) -> dict[str, Any]:
    """One micro-batch, from the start of a run to the last end."""
    options = SinkOptions.parse(settings["options"])
    cluster = Cluster.shared(options.client)
    driver = PerTask(Run(cluster, options, settings["query"]))
    batch_id = settings["batch"]

    def write(only: frozenset[int] | None = None) -> list[Seal]:
        plan = driver.plan(batch_id, only)
        return [write_slot(plan, slot, arrow_batches(values)) for slot, values in enumerate(settings["rows"])]

    report = driver.start(batch_id, write)
    if report is None:
        seals = write()
        offsets = {TopicPartition(topic, number): at for topic, number, at in settings.get("offsets", [])}
        lines = (json.dumps(settings.get("offsets", [])),)
        report = driver.commit(batch_id, seals, lines, offsets, write)
        crash_points.reached("before-return")
    return {
        "batch": report.batch_id,
        "records": report.records,
        "resumed": report.resumed,
        "repaired": report.repaired,
    }


def arrow_batches(values: list[str], pause_s: float = 0.0) -> Iterator[pa.RecordBatch]:
    """Several Arrow batches, so that there is a middle; `pause_s` before each."""
    step = max(1, len(values) // 4)
    for at in range(0, len(values), step):
        time.sleep(pause_s)
        yield pa.RecordBatch.from_pydict({"value": pa.array(values[at : at + step], pa.string())})


RunBatch = Callable[[dict[str, Any]], dict[str, Any]]
"""One micro-batch by its settings; a module's function, because it passes to a child."""


def run_armed(settings: dict[str, Any], crash_point: str, answer: Connection, run_batch: RunBatch = run) -> None:
    """In a child: arm the point, run, and send the report, or the error as text."""
    ends_arrived.arm(crash_point, settings["options"])
    try:
        answer.send(run_batch(settings))
    except Exception as error:  # noqa: BLE001 -- whatever it is, the test sees it
        answer.send({"error": f"{type(error).__name__}: {error}"})


@dataclass(frozen=True)
class Finished:
    """How a child ended: its exit code (-9 where it was killed) and what it sent."""

    exitcode: int
    report: dict[str, Any]


def run_child(settings: dict[str, Any], crash_point: str = "", run_batch: RunBatch | None = None) -> Finished:
    """Run a micro-batch in a child process of its own and wait for its end."""
    context = forks()
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=run_armed, args=(settings, crash_point, theirs, run_batch or run))
    child.start()
    theirs.close()
    try:
        report = ours.recv() if ours.poll(120) else {"error": "no answer within 120 s"}
    except EOFError:
        report = {}
    child.join(10)
    if child.is_alive():
        child.kill()
        child.join()
    assert child.exitcode is not None
    return Finished(child.exitcode, report)
