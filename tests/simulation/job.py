"""A stand-in for Spark: batches from an offset log, tasks with attempts on executors, a driver that is started again.

What Spark was seen to do: a task has four attempts; an executor that is lost fails its task; a driver that died is
started anew and begins with the first batch that its commit log lacks; a driver that was taken for dead may go on
beside its successor.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa

from kafka_core import runtime
from kafka_core.errors import AuthorizationFailed, InternalError, OptionsError, PipelineConflict, UnknownTopic
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.drivers import Driver, driver_for
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from pyspark_kafka_eos.spark.sink.tasks import FINAL
from tests.simulation.cluster import ADDRESS
from tests.simulation.world import Process, World

ATTEMPTS = 4
EXECUTORS = 2
RESTART_S = 0.5
WRONG = (AuthorizationFailed, InternalError, OptionsError, PipelineConflict, UnknownTopic)
"""Errors that no fault here explains."""


class ExecutorLost(Exception):
    """The task's process is gone."""


def rows_of(batch: int, slot: int, rows: int) -> list[str]:
    """What a slot of a batch writes."""
    return [f"b{batch}.s{slot}.r{number}" for number in range(rows)]


def source_offset(batch: int) -> int:
    """Where the source stands after a batch."""
    return 10 * (batch + 1)


class Job:
    """A query over `batches` batches of `slots` tasks with `rows` rows each."""

    def __init__(
        self,
        world: World,
        options: dict[str, str],
        *,
        batches: int,
        slots: int,
        rows: int,
        key_bytes: int = 0,
        at_once: int = 0,
        empty: int = 0,
    ) -> None:
        self.world = world
        self.options = {
            "kafka.bootstrap.servers": ADDRESS,
            "pipeline": "pipe",
            "topic": "out",
            "kafka.transaction.timeout.ms": "20000",
            **options,
        }
        self.batches, self.slots, self.rows, self.key_bytes = batches, slots, rows, key_bytes
        self.at_once = at_once or slots
        self.empty = empty
        self.done_batches = 0
        self.runs = 0
        self.repaired = 0
        self.patient = False
        """Whether the driver looks less often for tasks that take longer than 0.2 s. These looks are most of a
        campaign's steps; the seeds of storms that are named somewhere have them.
        """
        self.redone = 0
        self.sealed: list[Seal] = []
        """Of the newest batch: the seals of the tasks that are done."""
        self.errors: list[str] = []
        self.fatal: BaseException | None = None
        self.explained: set[type[Exception]] = set()
        """Errors of `WRONG` that a fault explains: the query is started again."""
        self.final: set[type[Exception]] = set()
        """Errors that a fault explains and that an operator has to settle: the query stays stopped."""
        self.operator: Callable[[Exception], None] = lambda _: None
        """Called with what a query ended with, before it is started again."""
        self.driver = world.process("driver")
        self.overtakes = False
        """Whether a driver was abandoned before it took its id: when it goes on, it takes that from its successor."""
        self._at_work: Driver | None = None
        self.executors = [world.process(f"executor{number}") for number in range(EXECUTORS)]

    @property
    def over(self) -> bool:
        """Whether all is written, or something is wrong."""
        return self.done_batches == self.batches or self.fatal is not None

    def start(self) -> None:
        """A new driver, now."""
        self.runs += 1
        self.driver, self._at_work = self.world.process("driver"), None
        self.world.spawn(self.driver, self._run, "driver")
        self._watch(self.driver)

    def abandon_driver(self, seconds: float) -> None:
        """Freeze the driver and start another one: the first goes on as a zombie."""
        zombie = self.driver
        self.overtakes = self._has_no_id()
        self.world.freeze(zombie, seconds, struck=False)
        self.start()

    def _has_no_id(self) -> bool:
        if isinstance(self._at_work, PerTask | WholeBatch):
            return self._at_work.run.producer.session.identity is None
        return self._at_work is None

    def _watch(self, driver: Process) -> None:
        def look() -> None:
            if not self.over and driver is self.driver:
                if driver.alive:
                    self.world.schedule(RESTART_S, look)
                else:
                    self.start()

        self.world.schedule(RESTART_S, look)

    def expected(self, batches: int) -> Counter[str]:
        """The rows of the first batches, each once."""
        return Counter(
            row
            for batch in range(batches)
            for slot in range(self.slots)
            for row in rows_of(batch, slot, self.rows_in(batch, slot))
        )

    def rows_in(self, batch: int, slot: int) -> int:
        """How many rows a slot has in a batch: of `empty` slots in a hundred none, the same ones in every history."""
        return 0 if zlib.crc32(f"{batch}.{slot}".encode()) % 100 < self.empty else self.rows

    # ---- the driver

    def _run(self) -> None:
        me = self.world.running().process
        try:
            self._work(me, SinkOptions.parse(self.options))
        except Exception as error:  # noqa: BLE001 -- Spark ends the query with it
            self.errors.append(f"{type(error).__name__}: {error}")
            self.world.note("error", type(error).__name__)
            known = isinstance(error, ExecutorLost) or type(error).__module__.startswith(
                ("kafka_core", "pyspark_kafka_eos")
            )
            wrong = isinstance(error, WRONG) and not isinstance(error, tuple(self.explained))
            if me is self.driver and (wrong or not known or isinstance(error, tuple(self.final))):
                self.fatal = error
            self.operator(error)
            runtime.sleep(self.world.random.uniform(0, 2))
        # Its process ends; `_watch` starts the next.
        if not self.over or me is not self.driver:
            runtime.kill()

    def _work(self, me: Process, options: SinkOptions) -> None:
        """All batches that are left, as long as no other driver is started."""
        driver = driver_for(Cluster.shared(options.client), options, "query-1")
        if me is self.driver:
            self._at_work = driver
        first = True
        while self.done_batches < self.batches and me is self.driver:
            batch = self.done_batches

            def write(only: frozenset[int] | None = None, batch: int = batch) -> list[Seal]:
                return self._tasks(driver.plan(batch, only), batch)

            lines = (json.dumps([["src", 0, source_offset(batch)]]),)
            report = driver.start(batch, write, lines) if first else None
            first = False
            if report is None:
                report = driver.process(batch, write, lines, {TopicPartition("src", 0): source_offset(batch)})
            if me is self.driver:
                self._finished(batch, report)

    def _finished(self, batch: int, report: object) -> None:
        self.repaired += getattr(report, "repaired", 0) or 0
        self.redone += getattr(report, "redone", 0) or 0
        self.done_batches = batch + 1
        self.world.note("batch", batch)

    # ---- the tasks

    def _tasks(self, plan: WritePlan | SharedPlan, batch: int) -> list[Seal]:
        tasks = [_Task(self, plan, batch, slot) for slot in range(self.slots)]
        launched = polls = 0
        while any(task.seal is None for task in tasks):
            polls += 1
            most = sum(task.seal is not None for task in tasks) + self.at_once
            for task in tasks[launched:most]:
                task.launch(0)
            launched = max(launched, most)
            failures = [task.error for task in tasks if task.error is not None]
            self.sealed = [task.seal for task in tasks if task.seal is not None]
            if failures:
                raise next((error for error in failures if isinstance(error, FINAL)), failures[0])
            runtime.sleep(0.05 if self.patient and polls > 100 else 0.002)
        self.sealed = [task.seal for task in tasks if task.seal is not None]
        return self.sealed

    def executor(self, number: int) -> Process:
        """The executor, a new one where it is dead."""
        if not self.executors[number].alive:
            self.executors[number] = self.world.process(f"executor{number}")
        return self.executors[number]


class _Task:
    """One slot of one batch, over all its attempts."""

    def __init__(self, job: Job, plan: WritePlan | SharedPlan, batch: int, slot: int) -> None:
        self.job, self.plan, self.batch, self.slot = job, plan, batch, slot
        self.driver = job.world.running().process
        self.seal: Seal | None = None
        self.error: Exception | None = None

    def launch(self, attempt: int) -> None:
        """Start an attempt on an executor, and notice where that is lost."""
        world = self.job.world
        executor = self.job.executor((self.slot + attempt) % EXECUTORS)
        ended = False

        def end(seal: Seal | None, error: Exception | None) -> None:
            nonlocal ended
            if ended or not self.driver.alive:
                return
            ended = True
            if error is None:
                self.seal = seal
            elif attempt + 1 < ATTEMPTS and not isinstance(error, FINAL):
                self.launch(attempt + 1)
            else:
                self.error = error

        def work() -> None:
            try:
                write = write_shared if isinstance(self.plan, SharedPlan) else write_slot
                seal = write(self.plan, self.slot, self._rows())  # type: ignore[operator]
            except Exception as error:  # noqa: BLE001 -- Spark tries the task again
                end(None, error)
            else:
                end(seal, None)

        def heartbeat() -> None:
            if not ended and self.driver.alive:
                if executor.alive:
                    world.schedule(1.0, heartbeat, self.driver)
                else:
                    end(None, ExecutorLost("the executor is lost"))

        world.spawn(executor, work, f"task{self.slot}")
        world.schedule(1.0, heartbeat, self.driver)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        rows = rows_of(self.batch, self.slot, self.job.rows_in(self.batch, self.slot))
        for at in range(0, len(rows), 2):
            columns = {"value": pa.array(rows[at : at + 2], pa.string())}
            if self.job.key_bytes:
                keys = [row.ljust(self.job.key_bytes) for row in rows[at : at + 2]]
                columns["key"] = pa.array(keys, pa.string())
            yield pa.RecordBatch.from_pydict(columns)
