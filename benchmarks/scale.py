"""What a batch of many tasks costs the driver: begin, commit, ledger record, memory. On one broker, without Spark.

    .venv/bin/python -m benchmarks.scale [--slots 4,100,1000,10000] [--partitions 1] [--foreign 0] [--write]
    .venv/bin/python -m benchmarks.scale --slots 1 --partitions 10,100,1000,10000 --write

Owns: batches of N slots that are written by worker processes and committed by this one; the slope over N, or over the
partitions.
Does not know: Spark, whose tasks these slots are, and which adds its own cost for each.
Invariants:
- Every N has a pipeline of its own. Its first batch makes the ids and does not count.
- A slot writes one record to each of its partitions, so nothing but the number of slots and places matters.
- What the driver measures has no worker's time in it: the slots are sealed before the commit begins.
- The driver's process does nothing but begin and commit: another one verifies, which reads every record and loads what
  that needs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from benchmarks.children import ROOT
from benchmarks.slots import (
    QUERY,
    WORKERS,
    create_topic,
    options_of,
    resident_mb,
    restart,
    slope,
    source_offsets,
    write_slots,
)
from embedded_kafka.real import NEWEST_KAFKA, LocalKafka
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations.audit import Verdict, verify
from pyspark_kafka_eos.options import SinkOptions

RESULTS = {
    "slots": ROOT / "benchmarks" / "many-tasks.json",
    "places": ROOT / "benchmarks" / "many-partitions.json",
}
"""Over what the curve goes -> its points."""

_IDS_AT_ONCE = 500
_MOST_ABORTED = 5_000
"""Partitions of a topic. An abort opens one more file for each partition on the broker, and with 10,000 it ends at the
20,000 files that a process may have here.
"""


@dataclass(frozen=True)
class Point:
    """One N. `places`: partitions that a slot has written to, summed over the slots. Milliseconds; bytes of the
    decision as JSON; MB of memory that the driver's process holds behind it. `restart_ms`: a new run begins;
    `found_open_ms`: it finds all slots of a batch open, whose driver died before the decision.
    """

    slots: int
    places: int
    batches: int
    first_begin_ms: float
    begin_ms: float
    written_s: float
    commit_ms: float
    visible_ms: float
    decision_bytes: int
    restart_ms: float
    found_open_ms: float | None
    verify_ms: float
    driver_mb: float
    broker_mb: float


def _make_ids(servers: str, names: Sequence[str]) -> None:
    """In a worker process: ids of another application. They are known to the coordinator and hold nothing."""
    cluster = Cluster.shared(SinkOptions.parse(options_of(servers, "strangers", "out")).client)
    for name in names:
        Producer(cluster, name).initialize()


def _verified(given: dict[str, str], batch: int) -> tuple[float, int]:
    """In a worker process: milliseconds until each place of the batch was read and found as it was decided; the
    decision's bytes.
    """
    options = SinkOptions.parse(given)
    cluster = Cluster.shared(options.client)
    newest = Ledger(cluster, options.ledger_topic, options.pipeline).newest(settle=True)
    assert newest is not None and newest.batch_id == batch
    began = time.perf_counter()
    found = verify(cluster, newest)
    assert all(each.verdict is Verdict.MATCHES for each in found), found[:3]
    return (time.perf_counter() - began) * 1000, len(newest.to_bytes())


class Bench:
    """The broker, the workers, one pipeline after another."""

    def __init__(self, broker: LocalKafka, workers: Executor) -> None:
        self._broker = broker
        self._servers = broker.bootstrap_servers
        self._workers = workers

    def strangers(self, count: int) -> float:
        """Make that many transactional ids of others; returns the seconds."""
        names = [f"stranger-{number}" for number in range(count)]
        chunks = [names[at : at + _IDS_AT_ONCE] for at in range(0, count, _IDS_AT_ONCE)]
        began = time.perf_counter()
        list(self._workers.map(partial(_make_ids, self._servers), chunks))
        return time.perf_counter() - began

    def measure(self, slots: int, partitions: int, batches: int) -> Point:
        """One pipeline of that many slots."""
        name = f"scale-{slots}-{partitions}"
        create_topic(self._servers, name, partitions)
        given = options_of(self._servers, name, name)
        options = SinkOptions.parse(given)
        cluster = Cluster.shared(options.client)
        begins, written, reports = [], [], []
        for batch in range(batches + 1):
            lines = source_offsets(batch)
            began = time.perf_counter()
            plan, handover = ho.begin(cluster, options, QUERY, batch, lines)
            begins.append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            seals = self._slots(plan, slots, partitions)
            written.append(time.perf_counter() - began)
            offsets = {TopicPartition(name, 0): batch + 1}
            reports.append(ho.finish(cluster, options, handover, seals, lines, offsets, tasks=slots))
        driver_mb = resident_mb("self")
        restart_ms = self._workers.submit(restart, given, batches + 1).result()
        verify_ms, decision_bytes = self._workers.submit(_verified, given, batches).result()
        found_open_ms = None
        if partitions <= _MOST_ABORTED:
            plan, _ = ho.begin(cluster, options, QUERY, batches + 1, source_offsets(batches + 1))
            self._slots(plan, slots, partitions)
            found_open_ms = round(self._workers.submit(restart, given, batches + 1).result(), 1)
        return Point(
            slots,
            slots * partitions,
            batches,
            round(begins[0], 1),
            round(statistics.median(begins[1:]), 1),
            round(statistics.median(written[1:]), 1),
            round(statistics.median(each.commit_ms for each in reports[1:]), 1),
            round(statistics.median(each.visible_ms for each in reports[1:]), 1),
            decision_bytes,
            round(restart_ms, 1),
            found_open_ms,
            round(verify_ms, 1),
            round(driver_mb, 1),
            round(resident_mb(self._broker.pid()), 1),
        )

    def _slots(self, plan: Any, slots: int, partitions: int) -> list[Seal]:
        step = max(1, slots // (4 * WORKERS))
        chunks = [range(at, min(slots, at + step)) for at in range(0, slots, step)]
        made = self._workers.map(write_slots, [plan] * len(chunks), chunks, [partitions] * len(chunks))
        return [seal for chunk in made for seal in chunk]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=_numbers, default=[4, 100, 1_000, 10_000])
    parser.add_argument("--partitions", type=_numbers, default=[1], help="of the output; each slot writes to all (1)")
    parser.add_argument("--batches", type=int, default=5, help="that count, after one that does not (5)")
    parser.add_argument("--foreign", type=int, default=0, help="transactional ids of other applications (0)")
    parser.add_argument("--kafka", default=NEWEST_KAFKA)
    parser.add_argument("--write", action="store_true", help="also write the points into benchmarks/")
    arguments = parser.parse_args()
    over = "places" if len(arguments.partitions) > 1 else "slots"
    names = [each.name for each in fields(Point)]
    context = multiprocessing.get_context("forkserver")
    points: list[Point] = []
    with (
        LocalKafka(arguments.kafka) as broker,
        ProcessPoolExecutor(WORKERS, mp_context=context) as workers,
    ):
        bench = Bench(broker, workers)
        if arguments.foreign:
            took = bench.strangers(arguments.foreign)
            print(f"{arguments.foreign:,} foreign ids in {took:.0f} s", flush=True)
        print(" ".join(f"{name:>14}" for name in names), flush=True)
        for slots, partitions in itertools.product(arguments.slots, arguments.partitions):
            point = bench.measure(slots, partitions, arguments.batches)
            print(
                " ".join(f"{'' if value is None else value:>14}" for value in asdict(point).values()),
                flush=True,
            )
            points.append(point)
    for name in (
        "begin_ms",
        "commit_ms",
        "visible_ms",
        "decision_bytes",
        "restart_ms",
        "found_open_ms",
        "verify_ms",
        "driver_mb",
    ):
        each = slope(points, over, name)
        if each is not None:
            print(f"each further one of the {over} adds to {name}: {each:.4f}")
    if arguments.write:
        found = {
            "kafka": arguments.kafka,
            "python": platform.python_version(),
            "foreign": arguments.foreign,
            "points": [asdict(each) for each in points],
        }
        RESULTS[over].write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
