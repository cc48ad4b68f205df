"""A stand-in for Spark: an offset log and a commit log on disk, batches of a source, tasks side by side, the three ways
of writing.

What is played is the product: the source's reader, `ExactlyOnceWriter`, the writers by format and of `df.write`, each
in the processes in which Spark calls them (see `connector/pyspark_kafka_eos/spark/sink/sink.py` and `batch_sink.py`).
Spark Connect's side of `ExactlyOnceWriter` needs no JVM, so that one is used.

Owns: what Spark owns: query id, checkpoint, order of the calls, attempts.
Does not know: what changes, what is right.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import (
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.spark.sink import batch_sink, sink
from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter
from pyspark_kafka_eos.spark.sink.tasks import FINAL
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from tests.changes.processes import ManyProcesses

FORMAT, FOREACH, DF_WRITE = "format", "foreachBatch", "df.write"

Row = tuple[bytes | None, str, int | None, int]
"""Key, value, partition (None: the product chooses), time in milliseconds."""

ATTEMPTS = 2
"""Of a task that failed. Spark has four; every one waits for what the first has waited for."""

STALL_MS = 5_000
"""How long a reader waits for records that do not come, for 120 s."""

ZONE = "spark.sql.session.timeZone"


def schema_of(*, local_times: bool) -> StructType:
    """The frame's columns. `local_times`: their times have no zone."""
    time = TimestampNTZType() if local_times else TimestampType()
    fields = {"key": StringType(), "value": StringType(), "partition": IntegerType(), "timestamp": time}
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def frame_of(rows: Sequence[Row], *, local_times: bool) -> Iterator[pa.RecordBatch]:
    """The rows as a task gets them."""
    time = pa.timestamp("us") if local_times else pa.timestamp("us", "UTC")
    if rows:
        columns = list(zip(*rows, strict=True))
        keys = [None if key is None else key.decode() for key in columns[0]]
        times = [each * 1000 for each in columns[3]]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(keys, pa.string()),
                pa.array(columns[1], pa.string()),
                pa.array(columns[2], pa.int32()),
                pa.array(times, pa.int64()).cast(time),
            ],
            names=["key", "value", "partition", "timestamp"],
        )


# ---- what a task sees of Spark


class _Context(TaskContext):
    """The context of the task that this thread runs."""

    _own = threading.local()

    def partitionId(self) -> int:  # noqa: N802 -- pyspark's own name
        return int(self._own.partition)

    def attemptNumber(self) -> int:  # noqa: N802 -- pyspark's own name
        return int(self._own.attempt)

    def stageId(self) -> int:  # noqa: N802 -- pyspark's own name
        return 0

    def taskAttemptId(self) -> int:  # noqa: N802 -- pyspark's own name
        return int(self._own.partition) * 10 + int(self._own.attempt)

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802 -- pyspark's own name
        found: str | None = self._own.properties.get(key)
        return found


@contextlib.contextmanager
def task_contexts() -> Iterator[_Context]:
    """Spark's context of a task, one for each thread."""
    before = TaskContext._taskContext
    context = object.__new__(_Context)
    TaskContext._setTaskContext(context)
    try:
        yield context
    finally:
        TaskContext._setTaskContext(before)


# ---- the checkpoint


class Checkpoint:
    """A query's checkpoint, as Spark writes it: the one that is in the directory, or that of a new query. `jobs`: what
    the scheduler of `df.write` keeps in its place.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if not (directory / "metadata").exists():
            self.begin()

    def begin(self) -> None:
        """A new query."""
        shutil.rmtree(self.directory, ignore_errors=True)
        for each in ("offsets", "commits"):
            (self.directory / each).mkdir(parents=True)
        self._write("metadata", json.dumps({"id": str(uuid.uuid4())}))

    @property
    def query_id(self) -> str:
        """The query's."""
        return str(json.loads((self.directory / "metadata").read_text())["id"])

    def newest(self, log: str) -> int:
        """The newest batch in a log; -1 where it has none."""
        return max((int(each.name) for each in (self.directory / log).iterdir()), default=-1)

    def offsets(self, batch: int) -> dict[str, Any]:
        """Where a batch ends."""
        return dict(json.loads((self.directory / "offsets" / str(batch)).read_text().splitlines()[2]))

    def log_offsets(self, batch: int, end: dict[str, Any]) -> None:
        """Before the batch runs."""
        text = "\n".join(["v1", json.dumps({"batchWatermarkMs": 0, "conf": {}}), json.dumps(end)])
        self._write(f"offsets/{batch}", text)

    def log_commit(self, batch: int) -> None:
        """After it."""
        self._write(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _write(self, name: str, text: str) -> None:
        # Whole or not at all, as Spark does: whoever writes may be killed meanwhile.
        beside = self.directory / "unfinished"
        beside.write_text(text)
        beside.rename(self.directory / name)

    def copy_to(self, other: Path) -> None:
        """Keep it as it is now."""
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(self.directory, other)

    def copy_from(self, other: Path) -> None:
        """Restore it."""
        shutil.rmtree(self.directory)
        shutil.copytree(other, self.directory)


# ---- a frame, and the session that it belongs to, as `ExactlyOnceWriter` sees them on Spark Connect


class _Text:
    def __init__(self, path: str) -> None:
        self._path = path

    def collect(self) -> list[tuple[str]]:
        return [(line,) for line in Path(self._path).read_text().splitlines()]


class _Reader:
    def text(self, path: str) -> _Text:
        return _Text(path)


class _Session:
    def __init__(self, conf: dict[str, str]) -> None:
        self.conf = conf
        self.read = _Reader()


class _Frame:
    def __init__(self, query: Query, slots: list[list[Row]], batch: int) -> None:
        self._query, self._slots, self._batch = query, slots, batch
        self.sparkSession = _Session(query.conf)
        self.schema = query.schema

    def mapInArrow(self, function: Callable[..., Any], schema: StructType) -> _Frame:  # noqa: N802
        self._function = function
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        self._query.reached("begun")

        def task(slot: int) -> tuple[Any, ...]:
            (result,) = self._function(self._query.frame(self._slots[slot]))
            return tuple(column[0].as_py() for column in result.columns)

        found = self._query.run_tasks(len(self._slots), self._batch, task)
        self._query.reached("written")
        return found


# ---- the query


class Query:
    """One run of a query, or with `df.write` of the jobs of a scheduler. `hooks`: what happens when a batch is planned
    and not yet read ("planned"), when it has begun ("begun") or when its tasks are done ("written"), once each.
    `stall_ms`: how long the source's reader waits for records.
    """

    def __init__(
        self, many: ManyProcesses, checkpoint: Checkpoint, way: str, sink_options: dict[str, str],
        source_options: dict[str, str], parallelism: int, conf: dict[str, str], hooks: dict[str, Callable[[], None]],
        jobs: Sequence[Sequence[Row]], stall_ms: int = STALL_MS,
    ) -> None:  # fmt: skip
        self.many, self.checkpoint, self.way, self.jobs = many, checkpoint, way, jobs
        self.options, self.conf, self.parallelism, self.hooks = sink_options, conf, parallelism, hooks
        # A session whose zone is set has times without one here.
        self.schema = schema_of(local_times=ZONE in conf)
        many.end_all()
        with many.within("source"):
            options = SourceOptions.parse(source_options, "stream")
            # No option shortens the time for which a reader waits for records that do not come.
            client = replace(options.client, delivery_timeout_ms=stall_ms)
            self.reader = KafkaStreamReader(replace(options, client=client))
        with many.within("driver"):
            self.writer = ExactlyOnceWriter({**sink_options, **self._place()}) if way == FOREACH else None
        self._began = False

    def _place(self) -> dict[str, str]:
        return {"checkpointLocation": str(self.checkpoint.directory)}

    def frame(self, rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
        """The rows as a task gets them."""
        return frame_of(rows, local_times=ZONE in self.conf)

    def reached(self, point: str) -> None:
        """Play what is hooked to a point."""
        hook = self.hooks.pop(point, None)
        if hook is not None:
            hook()

    def batch(self) -> bool:
        """Run the next batch: the one that is logged and not committed, or what is new. False where there is nothing
        new.
        """
        if self.way == DF_WRITE:
            return self._job()
        log = self.checkpoint
        logged, done = log.newest("offsets"), log.newest("commits")
        batch = done + 1
        if not self._began and logged >= 0:
            last = log.offsets(min(logged, done) if done >= 0 else logged)
            with self.many.within("source"):
                self.reader.partitions(last, last)
        with self.many.within("source"):
            start = _through_json(log.offsets(done) if done >= 0 else self.reader.initialOffset())
            if logged == batch:
                end = log.offsets(batch)
            else:
                end = _through_json(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        self._began = True
        if logged != batch:
            if end == start and batch > 0:  # Spark runs the first one also where there is nothing
                return False
            log.log_offsets(batch, end)
        self.play(batch, start, end)
        log.log_commit(batch)
        return True

    def _job(self) -> bool:
        """The next of the scheduler's jobs. It knows by itself which rows a job has."""
        job = self.checkpoint.newest("commits") + 1
        if job >= len(self.jobs):
            return False
        self.write(job, self.jobs[job])
        self.checkpoint.log_commit(job)
        return True

    def play(self, batch: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Read and write one batch."""
        with self.many.within("source"):
            parts = self.reader.partitions(start, end)
        self.reached("planned")
        with self.many.within("executor"):
            reader: KafkaStreamReader = pickle.loads(pickle.dumps(self.reader))
            tables = [each.to_pylist() for part in parts for each in reader.read(part)]
        rows = sorted((row for table in tables for row in table), key=lambda row: (row["partition"], row["offset"]))
        self.write_slots(batch, self.in_slots(rows))

    def in_slots(self, rows: Sequence[dict[str, Any]]) -> list[list[Row]]:
        """Which task gets which of the records that were read, by partition and offset: here in turn, as behind a
        repartition.
        """
        return self._in_turn([row_of(row) for row in rows])

    def _in_turn(self, rows: Sequence[Row]) -> list[list[Row]]:
        return [list(rows[slot :: self.parallelism]) for slot in range(self.parallelism)]

    def write(self, batch: int, rows: Sequence[Row]) -> None:
        """Write a batch's rows in the query's way."""
        self.write_slots(batch, self._in_turn(rows))

    def write_slots(self, batch: int, slots: list[list[Row]]) -> None:
        """The same, as the tasks have them."""
        if self.writer is not None:
            with self.many.within("driver"):
                self.writer(_Frame(self, slots, batch), batch)  # type: ignore[arg-type]
        elif self.way == FORMAT:
            self._by_format(batch, slots)
        else:
            self._by_df_write(batch, slots)

    def _by_format(self, batch: int, slots: list[list[Row]]) -> None:
        options = {**self.options, **self._place()}
        with self.many.within("driver"):
            planned = sink.open_writer(options, self.schema, overwrite=False, planning=True)
            pickled = pickle.dumps(planned)
        self.reached("begun")

        def task(slot: int) -> Any:
            copy = pickle.loads(pickled)
            return pickle.loads(pickle.dumps(copy.write(self.frame(slots[slot]))))

        self._commit(
            lambda: sink.open_writer(options, self.schema, overwrite=False, planning=False), task, len(slots), batch, (batch,)
        )  # fmt: skip

    def _by_df_write(self, batch: int, slots: list[list[Row]]) -> None:
        options = {**self.options, "batch.id": str(batch)}
        with self.many.within("driver"):
            pickled = pickle.dumps(batch_sink.open_writer(options, self.schema, overwrite=False))
        self.reached("begun")

        def task(slot: int) -> Any:
            return pickle.loads(pickle.dumps(pickle.loads(pickled).write(self.frame(slots[slot]))))

        self._commit(lambda: pickle.loads(pickled), task, len(slots), batch, ())

    def _commit(
        self, open_writer: Callable[[], Any], task: Callable[[int], Any], slots: int, batch: int, named: tuple[int, ...]
    ) -> None:  # fmt: skip
        messages: list[Any] = []
        try:
            messages = self.run_tasks(slots, batch, task)
            self.reached("written")
            with self.many.within("committer"):
                open_writer().commit(messages, *named)
        except Exception:
            with self.many.within("committer"):
                open_writer().abort(messages, *named)
            raise

    def run_tasks(self, count: int, batch: int, task: Callable[[int], Any]) -> list[Any]:
        """Side by side, each in attempts, as Spark runs them."""
        own = _Context._own
        properties = {"sql.streaming.queryId": self.checkpoint.query_id, "streaming.sql.batchId": str(batch)}

        def run(slot: int) -> Any:
            with self.many.within("executor"):
                for attempt in range(ATTEMPTS):
                    own.partition, own.attempt, own.properties = slot, attempt, {**self.conf, **properties}
                    try:
                        return task(slot)
                    except ExactlyOnceError as error:
                        if attempt + 1 == ATTEMPTS or isinstance(error, FINAL):
                            raise
                raise AssertionError("no attempt")

        with ThreadPoolExecutor(count) as tasks:
            return list(tasks.map(run, range(count)))


def row_of(row: dict[str, Any]) -> Row:
    """A record that the source has read, as a row for the sink."""
    value = bytes(row["value"]).decode()
    return row["key"], value, named_partition(value), round(row["timestamp"].timestamp() * 1000)


def named_partition(value: str) -> int | None:
    """The partition that a row names. The output has it once it was given more partitions; until then the row becomes a
    dead letter.
    """
    return 5 if value.endswith("bad") else None


def _through_json(offsets: Any) -> dict[str, Any]:
    return dict(json.loads(json.dumps(offsets)))
