"""The crash matrix: every named point x {driver, task, broker} x every rung of the ladder x {at once, late}.

    python -m tests.chaos matrix        part of `make chaos`, which writes the table into docs/design

Owns: which cells there are, running them, many at a time, and judging each.
Does not know: how a job runs (`job`), what is seen of it (`watch`), what is right (`checker`).
Invariants: a cell passes only where its fault proved that it fired and the checker finds nothing; "late" means that the
transactions that were open timed out before anything went on, and on 2PC, that they did not although the time was over.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from embedded_kafka.real import NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA, LocalKafka
from kafka_core.errors import TransactionTooOld
from pyspark_kafka_eos import crash_points
from tests.chaos import watch
from tests.chaos.checker import Kind, check
from tests.chaos.history import EntryKind, Fault
from tests.chaos.job import Ended, Job, Run, Strike, start
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit import ends_arrived

SLOTS, ROWS, BATCHES = 3, 120, 2
_AT_ONCE_MS = 60_000
_LATE_MS = 15_000
"""Sixteen jobs come to their points beside each other; with 6 s, on two cores with other work, they came too late."""
_MARGIN_MS = 1_000
_AFTER_S = 2.0
"""How long after a timeout the broker is given: it looks for old transactions twice a second (below)."""

_AT_A_TIME = 4
_FIRST_TRIES = 5
_MOST_RUNS = 4
"""Runs until a job has ended well: the one with the fault, and restarts as a cluster manager would make them."""

LOOKS_OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}

_numbers = count(1)


@dataclass(frozen=True, eq=False)
class Rung:
    """A step of the ladder and the broker that offers it."""

    name: str
    version: str
    config: Mapping[str, str]
    times_out: bool = True

    def broker(self) -> LocalKafka:
        """That broker, not started."""
        return LocalKafka(self.version, config={**LOOKS_OFTEN, **self.config}, fast_start=True)


TWO_PHASE = {"transaction.two.phase.commit.enable": "true", "unstable.api.versions.enable": "true"}
RUNGS = (
    Rung(f"TV1 ({NEWEST_ZOOKEEPER_KAFKA})", NEWEST_ZOOKEEPER_KAFKA, {}),
    Rung(f"TV2 ({NEWEST_KAFKA})", NEWEST_KAFKA, {}),
    Rung(f"2PC ({NEWEST_KAFKA})", NEWEST_KAFKA, TWO_PHASE, times_out=False),
)


@dataclass(frozen=True)
class Cell:
    """One fault: who is killed, where, and whether things go on at once or after the transactions' time is over."""

    point: str
    count: int
    victim: str
    late: bool

    @property
    def name(self) -> str:
        """As reports name it."""
        nth = f":{self.count}" if self.count > 1 else ""
        return f"{self.victim} at {self.point}{nth}, {'late' if self.late else 'at once'}"


POINTS = (
    *((point, 1) for point in crash_points.POINTS),
    *((ends_arrived.ENDS_ARRIVED, slots) for slots in range(1, SLOTS)),
)
"""Each with the how manyth time, or how many ends."""


def cells(late: Iterable[bool] = (False, True)) -> Iterator[Cell]:
    """All of them. At the driver's points the tasks have ended, so there no task can be killed."""
    for moment in late:
        for point, nth in POINTS:
            for victim in ("driver", "task", "broker"):
                if victim != "task" or point in crash_points.TASK_POINTS:
                    yield Cell(point, nth, victim, moment)


@dataclass
class Result:
    """What became of a cell. `problems` is empty where it passed."""

    rung: str
    cell: Cell
    job: Job
    runs: list[Ended] = field(default_factory=list)
    fired: bool = False
    entries: Counter[EntryKind] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def mended(self) -> dict[str, int]:
        """What the runs had to do: resumed, repaired, redone."""
        reports = [report for ended in self.runs for report in ended.reports]
        return {name: sum(report[name] for report in reports) for name in ("resumed", "repaired", "redone")}


def job_for(broker: LocalKafka, source: str, *, timeout_ms: int, batches: int = BATCHES) -> Job:
    """A job with a topic, a pipeline and a checkpoint of its own."""
    topic = topics_of(broker)()
    number = next(_numbers)
    rows = tuple(
        tuple(tuple(f"{number}.{batch}.{slot}.{row} " + "x" * 200 for row in range(ROWS)) for slot in range(SLOTS))
        for batch in range(batches)
    )
    return Job(
        options={
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "pipeline": f"pipe-{topic}",
            "topic": topic,
            "kafka.batch.size": "4096",
            "kafka.transaction.timeout.ms": str(timeout_ms),
            "transaction.margin.ms": str(_MARGIN_MS),
        },
        checkpoint=Path(tempfile.mkdtemp(prefix=f"chaos-{os.getpid()}-")),
        batches=rows,
        offsets=tuple(((source, 0, 10 * (batch + 1)), (source, 2, 7 * (batch + 1))) for batch in range(batches)),
    )


def _strike(cell: Cell) -> Strike:
    slot = 1 if cell.point in crash_points.TASK_POINTS else None
    victim = {"broker": "wait", "task": "self", "driver": "self" if slot is None else "driver"}[cell.victim]
    return Strike(cell.point, cell.count, slot, victim)  # type: ignore[arg-type]


class Stage:
    """One rung's broker and the cells that are played on it."""

    def __init__(self, rung: Rung, broker: LocalKafka, wanted: Sequence[Cell]) -> None:
        self.rung = rung
        self.broker = broker
        self.source = topics_of(broker)()
        self.results = [self._prepare(cell) for cell in wanted]

    def _prepare(self, cell: Cell) -> Result:
        job = job_for(self.broker, self.source, timeout_ms=_LATE_MS if cell.late else _AT_ONCE_MS)
        pause = _LATE_MS / 1000 + _AFTER_S if cell.late and cell.victim == "task" else 0.0
        return Result(self.rung.name, cell, replace(job, strike=_strike(cell), pause_before_retry_s=pause))

    def play(self) -> list[Result]:
        """Play every cell and judge it."""
        for late in (False, True):
            self._kill_processes([each for each in self.results if each.cell.late == late])
            self._kill_broker(
                [each for each in self.results if each.cell.late == late and each.cell.victim == "broker"],
                late,
            )
        for result in self.results:
            self._check_faults(result)
        judge(self.broker, self.results)
        return self.results

    def _kill_processes(self, results: Sequence[Result]) -> None:
        drivers = [each for each in results if each.cell.victim == "driver"]
        tasks = [each for each in results if each.cell.victim == "task"]
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            list(pool.map(_first_run, [*drivers, *tasks]))
        if drivers and drivers[0].cell.late:
            self._let_time_pass(drivers)
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            list(pool.map(_run_until_done, [*drivers, *tasks]))

    def _let_time_pass(self, results: Sequence[Result]) -> None:
        """Until the slots' transactions have timed out; on 2PC, until they would have, and they are open still."""
        before = self._open_slots(results)
        time.sleep(_LATE_MS / 1000 + _AFTER_S)
        after = self._open_slots(results)
        for result in results:
            name = result.job.options["pipeline"]
            if self.rung.times_out and after[name]:
                result.problems.append(f"{after[name]} transactions had not timed out")
            if not self.rung.times_out and after[name] != before[name]:
                result.problems.append(f"{before[name]} transactions were open, {after[name]} outlived the timeout")

    def _open_slots(self, results: Sequence[Result]) -> dict[str, int]:
        open_now = watch.open_transactions(self.broker)
        return {
            pipeline: sum(name.startswith(f"{pipeline}:") and not name.endswith(":driver") for name in open_now)
            for pipeline in (each.job.options["pipeline"] for each in results)
        }

    def _kill_broker(self, results: Sequence[Result], late: bool) -> None:
        """All jobs wait at their points, then the broker dies, once for all of them."""
        if not results:
            return
        runs: list[tuple[Result, Run]] = [(each, start(each.job)) for each in results]
        for result, run in runs:
            result.fired = run.at_the_point()
        self.broker.kill()
        for _, run in runs:
            run.release()
        if late:
            time.sleep(_LATE_MS / 1000 + _AFTER_S)
        self.broker.restart()
        for result, run in runs:
            result.runs.append(run.finish())
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            list(pool.map(_run_until_done, results))

    def _check_faults(self, result: Result) -> None:
        killed = any(ended.exitcode == -9 for ended in result.runs)
        if result.cell.victim == "driver":
            result.fired = killed
        elif result.cell.victim == "task":
            result.fired = (result.job.files / "reached").exists()
        mended = result.mended
        if not self.rung.times_out and mended["repaired"] + mended["redone"]:
            result.problems.append(f"without a timeout nothing may be lost, but: {mended}")


def _first_run(result: Result) -> None:
    for _ in range(_FIRST_TRIES):
        ended = start(result.job).finish()
        # On a machine that is slow for a moment the batch is too late for its decision, and never comes to the point.
        if not ended.error.startswith(TransactionTooOld.__name__):
            break
    result.runs.append(ended)


def _run_until_done(result: Result) -> None:
    while True:
        last = result.runs[-1]
        if last.exitcode == 0 and not last.error:
            return
        if len(result.runs) == _MOST_RUNS:
            result.problems.append(f"not done after {_MOST_RUNS} runs: {last.exitcode} {last.error}")
            return
        result.runs.append(start(replace(result.job, strike=None, pause_before_retry_s=0.0)).finish())


def judge(broker: LocalKafka, results: Sequence[Result]) -> None:
    """Put down what is wrong with each job, once all have ended. Kafka's tools look at the whole broker at once."""
    witnesses = watch.Witnesses.of(broker, [each.job for each in results])
    for result in results:
        fault = Fault(result.cell.victim, result.cell.name, result.fired)
        history = witnesses.history(result.job, faults=[fault])
        result.entries = Counter(entry.kind for entry in history.log)
        result.problems += [str(anomaly) for anomaly in check(history)]


def play(rung: Rung, wanted: Sequence[Cell]) -> list[Result]:
    """The cells on a fresh broker of the rung. Those whose faults did not fire have shown nothing, and are played
    again, once, with fewer beside them: nineteen jobs at their points together are late on a machine with other work.
    """
    with rung.broker() as broker:
        results = Stage(rung, broker, wanted).play()
    missed = [each.cell for each in results if each.problems and all(map(_says_nothing, each.problems))]
    if not missed:
        return results
    with rung.broker() as broker:
        again = {each.cell: each for each in Stage(rung, broker, missed).play()}
    return [again.get(each.cell, each) for each in results]


def _says_nothing(problem: str) -> bool:
    return problem.startswith(Kind.FAULT_NOT_FIRED.name)
