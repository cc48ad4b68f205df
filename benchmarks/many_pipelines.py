"""What a pipeline costs among many on one cluster and one ledger: the pipelines of `python -m benchmarks.many`, without
Spark.

Owns: the other pipelines, and the one that is measured among them.
Does not know: how slots are written (`slots`), how the curve is shown.
Invariants:
- Every point measures a pipeline of its own, in processes that hold no other pipeline. Its first batches do not count.
- The other pipelines decide batches as every pipeline does, with slots that were written. They share topics of 200
  slots each, so that nothing but the ledger and the coordinators has all of them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks import slots
from embedded_kafka.real import LocalKafka
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations.audit import Verdict, verify
from pyspark_kafka_eos.operations.checks import examine
from pyspark_kafka_eos.options import SinkOptions

SLOTS = 4
PARTITIONS = 4

_SHARE_A_TOPIC = 50
_WARM = 3
_QUIET = 15
"""Batches that count while the others rest. Half of it lets one pause of the garbage collector show in the median."""
_OPERATIONS = 5
_RESTARTS = 3


@dataclass(frozen=True)
class Pipelines:
    """One number of other pipelines. Milliseconds, medians; `begin_ms` and `commit_ms` while the others rest,
    `after_all` where each of them has decided a batch since this one's last; MB of resident memory.
    """

    pipelines: int
    first_ms: float
    begin_ms: float
    commit_ms: float
    visible_ms: float
    after_all_begin_ms: float
    after_all_commit_ms: float
    restart_ms: float
    newest_ms: float
    doctor_ms: float
    verify_ms: float
    driver_mb: float
    broker_mb: float
    ledger_kb: float


def decide(servers: str, numbers: Sequence[int], batch: int) -> None:
    """In a worker process: that batch of other pipelines, one after another, from its beginning to its end."""
    for number in numbers:
        given = slots.options_of(servers, f"other-{number}", _shared_topic(number))
        plan, handover, _ = begin(given, batch)
        finish(given, handover, slots.write_slots(plan, range(SLOTS), 1), batch)


def begin(given: dict[str, str], batch: int) -> tuple[Any, ho.Handover, float]:
    """In a process of its own: the plan of a batch, what its end needs, and the milliseconds it took."""
    options = SinkOptions.parse(given)
    cluster = Cluster.shared(options.client)
    began = time.perf_counter()
    plan, handover = ho.begin(cluster, options, slots.QUERY, batch, slots.source_offsets(batch))
    return plan, handover, (time.perf_counter() - began) * 1000


def finish(given: dict[str, str], handover: ho.Handover, seals: Sequence[Seal], batch: int) -> CommitReport:
    """In the same process: decide and end the batch."""
    options = SinkOptions.parse(given)
    cluster = Cluster.shared(options.client)
    # Of a topic that exists: a commit waits for one that does not.
    offsets = {TopicPartition(given["topic"], 0): batch + 1}
    lines = slots.source_offsets(batch)
    return ho.finish(cluster, options, handover, seals, lines, offsets, tasks=len(seals))


def operate(given: dict[str, str]) -> dict[str, float]:
    """In a process of its own: medians of what an operator's commands ask, each as often, after once that does not
    count.
    """
    options = SinkOptions.parse(given)
    cluster = Cluster.shared(options.client)
    taken: dict[str, list[float]] = {"newest_ms": [], "doctor_ms": [], "verify_ms": []}
    for _ in range(_OPERATIONS + 1):
        began = time.perf_counter()
        newest = Ledger(cluster, options.ledger_topic, options.pipeline).newest(settle=True)
        read = time.perf_counter()
        checks = examine(options)
        examined = time.perf_counter()
        assert newest is not None
        found = verify(cluster, newest)
        verified = time.perf_counter()
        assert not [each for each in checks if each.status in ("fail", "unknown")], checks
        assert all(each.verdict is Verdict.MATCHES for each in found), found
        moments = (began, read, examined, verified)
        for name, from_, to in zip(taken, moments, moments[1:], strict=False):
            taken[name].append((to - from_) * 1000)
    return {name: statistics.median(each[1:]) for name, each in taken.items()}


def _memory() -> float:
    return slots.resident_mb("self")


def _shared_topic(number: int) -> str:
    return f"others-{number // _SHARE_A_TOPIC}"


class Others:
    """The other pipelines. Each is always in the same worker process, as in a query's driver."""

    def __init__(self, servers: str, workers: Sequence[ProcessPoolExecutor]) -> None:
        self._servers = servers
        self._workers = workers
        self._batches: list[int] = []

    def grow(self, count: int) -> None:
        """So many pipelines, each with a batch."""
        for number in range(len(self._batches), count):
            if number % _SHARE_A_TOPIC == 0:
                slots.create_topic(self._servers, _shared_topic(number), PARTITIONS)
            self._batches.append(-1)
        self._decide([number for number, batch in enumerate(self._batches) if batch < 0])

    def decide(self) -> None:
        """One more batch of each."""
        self._decide(range(len(self._batches)))

    def _decide(self, numbers: Sequence[int]) -> None:
        waiting = []
        for batch in sorted({self._batches[number] for number in numbers}):
            these = [number for number in numbers if self._batches[number] == batch]
            for at, worker in enumerate(self._workers):
                mine = [number for number in these if number % len(self._workers) == at]
                waiting.append(worker.submit(decide, self._servers, mine, batch + 1))
            for number in these:
                self._batches[number] += 1
        for each in waiting:
            each.result()


class PipelineBench:
    """The broker, the other pipelines, one measured pipeline after another."""

    def __init__(self, broker: LocalKafka, workers: Sequence[ProcessPoolExecutor], rounds: int) -> None:
        self._broker = broker
        self._servers = broker.bootstrap_servers
        self._workers = workers
        self._rounds = rounds
        self._others = Others(self._servers, workers)
        self._warm = self._options("warm")
        with _process() as driver:
            self._batch(driver, self._warm, 0)

    def measure(self, count: int) -> Pipelines:
        """One more pipeline beside so many."""
        self._others.grow(count)
        given = self._options(f"among-{count}")
        with _process() as driver:
            first_ms, _ = self._batch(driver, given, 0)
            batch = 0
            for _ in range(_WARM):
                batch += 1
                self._batch(driver, given, batch)
            quiet, after_all = [], []
            for _ in range(_QUIET):
                batch += 1
                quiet.append(self._batch(driver, given, batch))
            for _ in range(self._rounds):
                self._others.decide()
                batch += 1
                after_all.append(self._batch(driver, given, batch))
            driver_mb = driver.submit(_memory).result()
        with _process() as operator:
            operated = operator.submit(operate, given).result()
        restarts = []
        for _ in range(_RESTARTS):
            with _process() as another:
                # The process has loaded its code and is connected; only the run is new.
                another.submit(slots.restart, self._warm, 1).result()
                restarts.append(another.submit(slots.restart, given, batch + 1).result())
        found = {
            "first_ms": first_ms,
            "begin_ms": statistics.median(begun for begun, _ in quiet),
            "commit_ms": statistics.median(report.commit_ms for _, report in quiet),
            "visible_ms": statistics.median(report.visible_ms for _, report in quiet),
            "after_all_begin_ms": statistics.median(begun for begun, _ in after_all),
            "after_all_commit_ms": statistics.median(report.commit_ms for _, report in after_all),
            "restart_ms": statistics.median(restarts),
            **operated,
            "driver_mb": driver_mb,
            "broker_mb": slots.resident_mb(self._broker.pid()),
            "ledger_kb": self._ledger_bytes(given) / 1024,
        }
        return Pipelines(pipelines=count, **{name: round(value, 1) for name, value in found.items()})

    def _options(self, name: str) -> dict[str, str]:
        slots.create_topic(self._servers, name, PARTITIONS)
        return slots.options_of(self._servers, name, name)

    def _batch(self, driver: ProcessPoolExecutor, given: dict[str, str], batch: int) -> tuple[float, CommitReport]:
        """One batch, written by the workers: how long its beginning took, and what its end did."""
        plan, handover, taken_ms = driver.submit(begin, given, batch).result()
        chunks = [range(at, SLOTS, len(self._workers)) for at in range(len(self._workers))]
        written = [
            worker.submit(slots.write_slots, plan, chunk, 1)
            for worker, chunk in zip(self._workers, chunks, strict=True)
        ]
        seals = [seal for each in written for seal in each.result()]
        return taken_ms, driver.submit(finish, given, handover, seals, batch).result()

    def _ledger_bytes(self, given: dict[str, str]) -> int:
        """Of all its partitions, without their indexes."""
        ledger = SinkOptions.parse(given).ledger_topic
        logs = (self._broker.data_dir / "broker-0").glob(f"{ledger}-[0-9]*/*.log")
        return sum(each.stat().st_size for each in logs)


@contextlib.contextmanager
def _process() -> Iterator[ProcessPoolExecutor]:
    """A process that nothing has run in."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as process:
        yield process


def measure(broker: LocalKafka, counts: Sequence[int], rounds: int) -> Iterator[Pipelines]:
    """A point for each number of other pipelines. `rounds`: how often each of them decides a batch before one that
    counts.
    """
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_process()) for _ in range(slots.WORKERS)]
        bench = PipelineBench(broker, workers, rounds)
        for count in counts:
            yield bench.measure(count)
