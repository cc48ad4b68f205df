"""A streaming query without Spark: driver and tasks as processes, a checkpoint as Spark keeps one, faults at named
points.

Owns: the order that Spark gives (offsets file, batch, commits file), tasks in processes of their own, their retries.
Does not know: which faults there are to be (`matrix`, `rounds`), how the result is judged.
Invariants: everything below this module is the product; a batch's rows depend on nothing but its number, so a replay
writes the same; a killed task is tried again as Spark does, four times in all; a task whose driver dies goes on as a
zombie.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from kafka_core.errors import ExactlyOnceError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.drivers import Driver, driver_for
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit import ends_arrived
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.support.forks import forks

_ATTEMPTS = 4
"""Spark's own spark.task.maxFailures."""

_HOLD_S = 60.0
"""How long a process waits at a point for the harness; it gives up loudly rather than hang a run."""


@dataclass(frozen=True)
class Strike:
    """What happens at a point: in the driver (`slot` None) or in the first attempt of a slot's task.

    `victim`: the process itself, the driver, or none: then the process waits at the point until the harness has done
    its part (`reached` and `release` are files in the fault's directory).
    """

    point: str
    count: int = 1
    slot: int | None = None
    victim: Literal["self", "driver", "wait"] = "self"


@dataclass(frozen=True)
class Job:
    """One query: `batches[b][s]` are the values that slot s writes in batch b, `offsets[b]` its source offsets."""

    options: dict[str, str]
    checkpoint: Path
    batches: tuple[tuple[tuple[str, ...], ...], ...]
    offsets: tuple[tuple[tuple[str, int, int], ...], ...]
    query: str = "query-1"
    strike: Strike | None = None
    pause_before_retry_s: float = 0.0
    pause_between_rows_s: float = 0.0

    @property
    def files(self) -> Path:
        """Where a fault leaves word that it was reached, and waits for its release."""
        return self.checkpoint / "fault"


@dataclass(frozen=True)
class Ended:
    """How one run of a job ended: -9 where it was killed; reports of its batches; the error that stopped it."""

    exitcode: int
    reports: tuple[dict[str, Any], ...] = ()
    error: str = ""


@dataclass
class Run:
    """A run that is going on."""

    process: BaseProcess
    answers: Connection
    job: Job
    _reports: list[dict[str, Any]] = field(default_factory=list)

    def finish(self, timeout_s: float = 180.0) -> Ended:
        """Wait for the end, however it comes."""
        error = ""
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                if not self.answers.poll(max(0.0, deadline - time.monotonic())):
                    error = f"no end within {timeout_s} s"
                    self.process.kill()
                    break
                said = self.answers.recv()
                if "error" in said:
                    error = said["error"]
                else:
                    self._reports.append(said)
        except (EOFError, ConnectionError):
            pass
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        assert self.process.exitcode is not None
        return Ended(self.process.exitcode, tuple(self._reports), error)

    def kill(self) -> None:
        """SIGKILL to the driver."""
        self.process.kill()

    def at_the_point(self, timeout_s: float = 60.0) -> bool:
        """Wait until the fault's point is reached; False where the run ends or time is over first."""
        deadline = time.monotonic() + timeout_s
        while not (self.job.files / "reached").exists():
            if time.monotonic() > deadline or not self.process.is_alive():
                return (self.job.files / "reached").exists()
            time.sleep(0.005)
        return True

    @property
    def commits(self) -> int:
        """Batches that the job has done."""
        return len(list((self.job.checkpoint / "commits").glob("*")))

    def stop_after_this_batch(self) -> Ended:
        """Have the run end with the batch that it is at, and wait for that."""
        (self.job.files / "stop").touch()
        return self.finish()

    def release(self) -> None:
        """Let the process that waits at the point go on."""
        (self.job.files / "release").touch()


def start(job: Job) -> Run:
    """Start a run in a process of its own, forked from a server that has imported everything."""
    context = forks()
    job.files.mkdir(parents=True, exist_ok=True)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_drive, args=(job, theirs))
    process.start()
    theirs.close()
    return Run(process, ours, job)


# ---- the driver's process


def _drive(job: Job, answers: Connection) -> None:
    try:
        _arm(job, None)
        _run_query(job, answers)
    except Exception as error:  # noqa: BLE001 -- a query that fails says why, whatever it is
        answers.send({"error": f"{type(error).__name__}: {error}"})


def _run_query(job: Job, answers: Connection) -> None:
    options = SinkOptions.parse(job.options)
    driver = driver_for(Cluster.shared(options.client), options, job.query)
    tasks = _Tasks(job)
    first = _next_batch(job.checkpoint)
    for batch in range(first, len(job.batches)):
        if (job.files / "stop").exists():
            return
        began = time.time()
        lines = _log_offsets(job, batch)

        def write(only: frozenset[int] | None, batch: int = batch) -> Sequence[Seal]:
            return tasks.run(driver, batch, only)

        report = driver.start(batch, write) if batch == first else None
        if report is None:
            wanted = {TopicPartition(topic, number): at for topic, number, at in job.offsets[batch]}
            report = driver.process(batch, write, lines, wanted)
        crash_points.reached("before-return")
        (job.checkpoint / "commits" / str(batch)).touch()
        answers.send(
            {
                "batch": report.batch_id,
                "records": report.records,
                "resumed": report.resumed,
                "repaired": report.repaired,
                "redone": report.redone,
                "commit_ms": report.commit_ms,
                "left_ms": report.left_ms,
                "began": began,
                "ended": time.time(),
            }
        )


def _next_batch(checkpoint: Path) -> int:
    """Where Spark goes on: the newest batch whose offsets are logged, unless it is committed too."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    logged = [int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    newest = max(logged, default=-1)
    return newest + 1 if newest < 0 or (checkpoint / "commits" / str(newest)).exists() else newest


def _log_offsets(job: Job, batch: int) -> tuple[str, ...]:
    path = job.checkpoint / "offsets" / str(batch)
    if not path.exists():
        beside = path.with_suffix(".tmp")
        beside.write_text(json.dumps(job.offsets[batch]))
        beside.rename(path)
    return (path.read_text(),)


class _Tasks:
    """Runs the slots of a batch, each attempt in a process forked from the driver's, as PySpark forks its workers."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._first_try = True

    def run(self, driver: Driver, batch: int, only: frozenset[int] | None) -> list[Seal]:
        """The seals of all slots; after a failure that tries do not mend, what was written is abandoned."""
        plan = driver.plan(batch, only)
        context = multiprocessing.get_context("fork")
        seals: dict[int, Seal] = {}
        running: dict[Connection, tuple[int, int, BaseProcess]] = {}

        def begin(slot: int, attempt: int) -> None:
            ours, theirs = context.Pipe(duplex=False)
            arguments = (self._job, plan, slot, batch, attempt, theirs, os.getpid())
            process = context.Process(target=_task, args=arguments)
            process.start()
            theirs.close()
            running[ours] = (slot, attempt, process)

        first = 0 if self._first_try else 1
        for slot in range(len(self._job.batches[batch])):
            begin(slot, first)
        self._first_try = False
        failure: Exception | None = None
        while running:
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                slot, attempt, process = running.pop(ready)
                try:
                    seal = ready.recv()
                except EOFError:
                    seal = ChildProcessError(f"the task of slot {slot} died")
                process.join()
                ready.close()
                if isinstance(seal, Seal):
                    seals[slot] = seal
                elif attempt + 1 < _ATTEMPTS and failure is None and not _returned(plan, seal):
                    time.sleep(self._job.pause_before_retry_s)
                    begin(slot, attempt + 1)
                else:
                    failure = seal
        if failure is not None:
            if only is None:
                driver.abandon(batch, list(seals.values()), str(failure))
            raise failure
        return [seals[slot] for slot in sorted(seals)]


# ---- a task's process


def _returned(plan: WritePlan | SharedPlan, failure: Exception) -> bool:
    """Whether the failure is a value to Spark, which then does not start the task again."""
    return isinstance(plan, SharedPlan) and isinstance(failure, ExactlyOnceError)


def _task(
    job: Job,
    plan: WritePlan | SharedPlan,
    slot: int,
    batch: int,
    attempt: int,
    answer: Connection,
    driver: int,
) -> None:
    # What the driver's process has armed is its own; only the first attempt of one slot meets a fault.
    crash_points.arm("")
    if attempt == 0:
        _arm(job, slot, driver)
    values = list(job.batches[batch][slot])
    rows = arrow_batches(values, job.pause_between_rows_s)
    try:
        seal = write_shared(plan, slot, rows) if isinstance(plan, SharedPlan) else write_slot(plan, slot, rows)
    except ExactlyOnceError as error:
        answer.send(error)
    else:
        answer.send(seal)


def _arm(job: Job, slot: int | None, driver: int = 0) -> None:
    strike = job.strike
    if strike is None or strike.slot != slot:
        return

    def act() -> None:
        (job.files / "reached").touch()
        if strike.victim == "self":
            os.kill(os.getpid(), signal.SIGKILL)
        elif strike.victim == "driver":
            os.kill(driver, signal.SIGKILL)
        else:
            deadline = time.monotonic() + _HOLD_S
            while not (job.files / "release").exists():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"nobody released {strike.point} within {_HOLD_S} s")
                time.sleep(0.005)

    ends_arrived.arm(f"{strike.point}:{strike.count}", job.options, act)
