"""A Spark application on two executor processes that does what a test tells it, and holds its tasks where a test wants
them.

    python -m tests.pyspark_kafka_eos.spark.cluster_job <port> <Spark's settings as JSON>      a child of `cluster`

Owns: the session, one query after another, the stage before the sink in which tasks are held and fail.
Does not know: what is killed and when, what the result must be.
Invariants: the rows of a batch depend on nothing but its number; every start of a task leaves a file that says who it
was.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.commit.reports import CommitReport

SLOTS = 2
PADDING = "x" * 2000
"""Makes an Arrow batch of 50 rows larger than the buffers between Python and the JVM, so that it reaches the sink."""

FILLS_THE_WAY = 3
"""Batches of rows after which the sink has some: the JVM passes on a batch when it has begun the next one."""

HELD_AT_MOST_S = 120.0
"""A task that nobody lets go fails loudly rather than hang a run."""


@dataclass(frozen=True)
class Script:
    """What the stage before the sink does. A start of a task is named `slot.n`, n counting the slot's starts from 0.

    `holds`: start -> batches of rows that it hands to the sink before it is held. `fails`: starts that raise when they
    are let go.
    """

    directory: str
    holds: dict[str, int]
    fails: tuple[str, ...]

    def stage(self) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """The function for `mapInArrow`: numbers become the sink's columns; every slot writes to its own partition."""

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            start = self._register(context)
            after = self.holds.get(start)
            for count, batch in enumerate(batches):
                if count == after:
                    self._hold(start)
                if count == FILLS_THE_WAY:
                    Path(self.directory, f"{start}.flows").touch()
                numbers = batch.column("value").to_pylist()
                yield pa.RecordBatch.from_pydict(
                    {
                        "value": [f"{number} {PADDING}" for number in numbers],
                        "partition": pa.array([context.partitionId()] * len(numbers), pa.int32()),
                    }
                )

        return run

    def _register(self, context: TaskContext) -> str:
        slot, number = context.partitionId(), 0
        facts = {
            "stage": context.stageId(),
            "attempt": context.attemptNumber(),
            "task": context.taskAttemptId(),
            "pid": os.getpid(),
        }
        while True:
            try:
                with Path(self.directory, f"{slot}.{number}.start").open("x") as file:
                    json.dump(facts, file)
                return f"{slot}.{number}"
            except FileExistsError:
                number += 1

    def _hold(self, start: str) -> None:
        Path(self.directory, f"{start}.held").touch()
        deadline = time.monotonic() + HELD_AT_MOST_S
        while not Path(self.directory, f"{start}.go").exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody let start {start} go within {HELD_AT_MOST_S} s")
            time.sleep(0.01)
        Path(self.directory, f"{start}.gone-on").touch()
        if start in self.fails:
            raise RuntimeError(f"the test has start {start} fail")


class Application:
    """The session, and the query that runs or ran last."""

    def __init__(self, conf: dict[str, str]) -> None:
        self._conf = conf
        self.spark = self._session(conf)
        self._query: StreamingQuery | None = None
        self._reports: list[CommitReport | None] = []
        self._errors: list[str] = []

    def _session(self, conf: dict[str, str]) -> SparkSession:
        # Not the class's own builder: it would keep the settings of an earlier session.
        builder = SparkSession.Builder()
        for name, value in conf.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("WARN")
        return session

    def restart(self, **conf: str) -> dict[str, Any]:
        """End the Spark application and start another with these settings besides."""
        self.spark.stop()
        self.spark = self._session({**self._conf, **conf})
        return {}

    def app_id(self) -> dict[str, Any]:
        """Spark's name for this application, which its executors' command lines have."""
        return {"app_id": self.spark.sparkContext.applicationId}

    def start(
        self,
        *,
        options: dict[str, str],
        script: dict[str, Any],
        checkpoint: str,
        rows: int,
        shuffled: bool,
    ) -> dict[str, Any]:
        """Start a query that writes one batch of numbers, and first what an earlier run of it left undone."""
        writer = ExactlyOnceWriter(options)
        self._reports, self._errors = [], []
        reports, errors = self._reports, self._errors

        def write(frame: DataFrame, batch_id: int) -> None:
            try:
                writer(frame, batch_id)
            except BaseException as error:
                errors.append(f"{type(error).__name__}: {error}")
                raise
            reports.append(writer.last_report)

        source = (
            self.spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=rows, numPartitions=SLOTS)
            .load()
            .select("value")
        )
        if shuffled:
            source = source.repartition(SLOTS, "value")
        self._query = (
            source.mapInArrow(Script(**script).stage(), "value string, partition int")
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        return {}

    def stop(self) -> dict[str, Any]:
        """query.stop()"""
        assert self._query is not None
        self._query.stop()
        return {}

    def wait(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the query's end: whether it came, reports of its batches, what the writer raised, what Spark
        says.
        """
        assert self._query is not None
        said = ""
        ended = True
        try:
            ended = bool(self._query.awaitTermination(int(timeout_s)))
        except StreamingQueryException as error:
            said = str(error)
        reports = [None if report is None else asdict(report) for report in self._reports]
        return {"ended": ended, "reports": reports, "errors": self._errors, "spark_says": said}

    def stage_attempt(self, stage: int) -> dict[str, Any]:
        """The number of the stage's newest attempt, as Spark counts: 0 where it was never run again."""
        info = self.spark.sparkContext.statusTracker().getStageInfo(stage)
        assert info is not None
        return {"attempt": info.currentAttemptId}


def main() -> None:
    """Carry out requests, a line of JSON each, until the test closes the connection."""
    port, conf = sys.argv[1:]
    with socket.create_connection(("127.0.0.1", int(port))) as connection, connection.makefile("rw") as lines:
        application = Application(json.loads(conf))
        try:
            for line in lines:
                request = json.loads(line)
                try:
                    answer = getattr(application, request.pop("action"))(**request)
                except Exception:  # noqa: BLE001 -- the test has to hear of every failure
                    answer = {"failure": traceback.format_exc()}
                lines.write(json.dumps(answer) + "\n")
                lines.flush()
        finally:
            application.spark.stop()


if __name__ == "__main__":
    main()
