"""What a query costs among many in one Spark driver: the queries of `python -m benchmarks.many`.

    python -m benchmarks.many_queries <bootstrap servers>       its child: the Spark driver

Owns: the driver's queries, each with a pipeline and a checkpoint of its own; what their processes hold; the proof of
their rows.
Does not know: other pipelines of the cluster, how the curve is shown.
Invariants:
- Every number of queries has a Spark driver of its own. Its first batches do not count.
- A query's rows are 0, 1, 2, ... Another client reads them from its topic: every one once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from benchmarks import slots
from benchmarks.application import live_heap_mb, session, start_numbers
from benchmarks.children import JAVA, Child, holds, processes_under, serve_application
from embedded_kafka.real import LocalKafka
from pyspark_kafka_eos.commit import reports

FORMS = ("foreachBatch", "format")
TASKS = 2
ROWS = 20

_LOOK_EVERY_S = 3.0
_WARM = 3
_WARM_ALL = 40
"""Batches of all queries together before any counts, beside three of each: the JVM compiles its code in the first
ones.
"""
_WITHIN_S = 900.0
_READ_WITHIN_S = 30.0
_TASKS_WORKER = "pyspark.worker"
"""What the Python processes of tasks run. Those of the driver, which plan and commit, run other modules."""


@dataclass(frozen=True)
class Queries:
    """One number of queries in one driver. Milliseconds; memory in MB: resident of driver and JVM, of the workers what
    each has for itself and its share of what they have in common; `jvm_heap_mb` is what a full collection leaves.
    """

    queries: int
    form: str
    batches: int
    batches_per_s: float
    trigger_ms: float
    trigger_p99_ms: float
    commit_ms: float | None
    driver_mb: float
    driver_threads: int
    driver_files: int
    jvm_mb: float
    jvm_heap_mb: float
    jvm_threads: int
    jvm_files: int
    task_workers: int
    task_workers_mb: float
    planners: int
    planners_mb: float
    python_threads: int
    python_files: int
    broker_mb: float
    broker_connections: int
    rows_proven: int


# ---- the child


class Driver:
    """The session and its queries."""

    def __init__(self, bootstrap_servers: str, jars: str) -> None:
        self._servers = bootstrap_servers
        self._spark = session(jars=jars, memory="3g", settings={"spark.sql.streaming.minBatchesToRetain": "10"})
        self._queries: list[StreamingQuery] = []

    def start(self, form: str, topics: Sequence[str], directory: str, trigger_ms: int) -> Mapping[str, Any]:
        """Start a query for each topic."""
        for topic in topics:
            options = {"kafka.bootstrap.servers": self._servers, "topic": topic, "pipeline": topic}
            started = start_numbers(
                self._spark,
                form,
                options,
                f"{directory}/{topic}",
                rows=ROWS,
                tasks=TASKS,
                trigger_ms=trigger_ms,
            )
            self._queries.append(started)
        return {}

    def check(self) -> Mapping[str, Any]:
        """How many batches each query has finished; the error of one that has failed as a failure."""
        found = []
        for query in self._queries:
            if not query.isActive:
                raise RuntimeError(f"a query failed: {query.exception()}")
            progress = query.lastProgress
            found.append(0 if progress is None else int(progress["batchId"]) + 1)
        return {"batches": found}

    def held(self) -> Mapping[str, Any]:
        """What the processes hold now."""
        gc.collect()
        heap = live_heap_mb(self._spark)
        tree = processes_under(os.getpid())
        java = next(pid for pid, fields in tree.items() if fields[-1] == JAVA)
        workers = [each for each in map(holds, set(tree) - {os.getpid(), java}) if each is not None]
        tasks = [each for each in workers if each.runs == _TASKS_WORKER]
        planners = [each for each in workers if each.runs != _TASKS_WORKER]
        driver, virtual_machine = holds(os.getpid()), holds(java)
        assert driver is not None and virtual_machine is not None
        return {
            "driver_mb": driver.resident_mb,
            "driver_threads": driver.threads,
            "driver_files": driver.files,
            "jvm_mb": virtual_machine.resident_mb,
            "jvm_heap_mb": heap,
            "jvm_threads": virtual_machine.threads,
            "jvm_files": virtual_machine.files,
            "task_workers": len(tasks),
            "task_workers_mb": sum(each.share_mb for each in tasks),
            "planners": len(planners),
            "planners_mb": sum(each.share_mb for each in planners),
            "python_threads": sum(each.threads for each in workers),
            "python_files": sum(each.files for each in workers),
        }

    def stop(self, since: Sequence[int]) -> Mapping[str, Any]:
        """Stop all queries. Of each, the batches from that one on: the milliseconds of their triggers and of their
        commits, where this process has made them; and how many it finished in all.
        """
        triggers, commits, finished = [], [], []
        for query, first in zip(self._queries, since, strict=True):
            progress = query.recentProgress
            query.stop()
            finished.append(int(progress[-1]["batchId"]) + 1)
            for each in progress:
                if int(each["batchId"]) >= first:
                    triggers.append(float(each["durationMs"]["triggerExecution"]))
                    published = reports.find(str(query.id), int(each["batchId"]))
                    if published is not None:
                        commits.append(published.report.commit_ms)
        return {"triggers": triggers, "commits": commits, "finished": finished}


# ---- the parent


def measure(broker: LocalKafka, form: str, count: int, batches: int, trigger_ms: int) -> Queries:
    """A fresh driver with so many queries, until each has made so many batches that count."""
    servers = broker.bootstrap_servers
    topics = [f"query-{number}" for number in range(count)]
    for topic in topics:
        slots.create_topic(servers, topic, TASKS)
    with (
        tempfile.TemporaryDirectory(prefix="benchmarks-checkpoints-") as directory,
        _driver(servers) as driver,
    ):
        driver.ask("start", form=form, topics=topics, directory=directory, trigger_ms=trigger_ms)
        least = max(_WARM, -(-_WARM_ALL // count))
        since, began = _until(driver, [least] * count)
        until, ended = _until(driver, [each + batches for each in since])
        held = driver.ask("held")
        connections = broker_connections(servers)
        stopped = driver.ask("stop", since=since)
    made = sum(until) - sum(since)
    triggers = sorted(stopped["triggers"])
    proven = sum(
        proved(_committed(servers, topic), finished)
        for topic, finished in zip(topics, stopped["finished"], strict=True)
    )
    return Queries(
        queries=count,
        form=form,
        batches=made,
        batches_per_s=round(made / (ended - began), 2),
        trigger_ms=round(statistics.median(triggers), 1),
        trigger_p99_ms=round(triggers[min(len(triggers) - 1, int(len(triggers) * 0.99))], 1),
        commit_ms=round(statistics.median(stopped["commits"]), 1) if stopped["commits"] else None,
        **{name: round(value, 1) for name, value in held.items()},
        broker_mb=round(slots.resident_mb(broker.pid()), 1),
        broker_connections=connections,
        rows_proven=proven,
    )


@contextlib.contextmanager
def _driver(servers: str) -> Iterator[Child]:
    with (
        tempfile.NamedTemporaryFile(prefix="benchmarks-many-", suffix=".log") as log,
        Child(sys.executable, "benchmarks.many_queries", servers, log=Path(log.name)) as child,
    ):
        yield child


def _until(driver: Child, wanted: Sequence[int]) -> tuple[list[int], float]:
    """How many batches each query has once all have those, and when that was."""
    deadline = time.monotonic() + _WITHIN_S
    while True:
        found = driver.ask("check")["batches"]
        now = time.monotonic()
        if all(have >= want for have, want in zip(found, wanted, strict=True)):
            return found, now
        if now > deadline:
            raise TimeoutError(f"after {_WITHIN_S} s the queries have {found} batches, not {wanted}")
        time.sleep(_LOOK_EVERY_S)


def broker_connections(servers: str) -> int:
    """The connections that the broker has with clients."""
    port = int(servers.rpartition(":")[2])
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return sum(1 for line in lines if int(line[1].rpartition(":")[2], 16) == port and line[3] == "01")


def _committed(servers: str, topic: str) -> list[int]:
    from tests.support.committed import committed

    settings = {"bootstrap.servers": servers, "log_level": 0}
    return [int(value) for value in committed(settings, topic, TASKS, _READ_WITHIN_S)]


def proved(rows: Sequence[int], finished: int) -> int:
    """How many rows there are, all of whole batches, every row once, and no finished batch missing; AssertionError
    else.
    """
    counted = Counter(rows)
    twice = sorted(row for row, times in counted.items() if times > 1)
    assert not twice, f"{len(twice)} rows are there more than once, the first is {twice[0]}"
    assert set(counted) == set(range(len(rows))), "rows are missing among those that were written"
    assert len(rows) % ROWS == 0, f"{len(rows)} rows are no whole batches of {ROWS}"
    assert len(rows) >= finished * ROWS, f"{len(rows)} rows of {finished} finished batches"
    return len(rows)


if __name__ == "__main__":
    serve_application(Driver, ("start", "check", "held", "stop"))
