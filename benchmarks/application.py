"""One Spark application that holds the cached DataFrames and writes them in the requested ways.

    python -m benchmarks.application <bootstrap servers> [--jars ...]       a child of `python -m benchmarks`

Owns: the Spark session (one configuration for all ways), the cached frames, the clock around one write.
Invariants:
- A write is measured from before its Spark job is submitted until everything is acknowledged (exactly once:
  committed).
- CPU time is that of this process and its descendants: of the JVM and of Python, not of the broker.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any

import pyspark
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.children import PYTHON, between, python_peaks, serve_application, usage
from benchmarks.variants import COUNT_SCHEMA, count_only, make_values, ready_made, row_by_row
from embedded_kafka.real.java import require_java
from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.drivers import Driver, driver_for
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.spark.sink.rows import select_columns
from pyspark_kafka_eos.spark.sink.tasks import RESULT_SCHEMA, read_results, slot_task

CORES = 2
QUERY = "benchmark"

ARROW_BATCH_BYTES = 2_048_000
"""Bytes of values in one Arrow batch sent to Python: 2,000 rows of 1 KB, 20,000 of 100 bytes. With Spark's
10,000 rows of 1 KB its buffers exceed the processor's cache (2.1 -> 2.7 CPU s per GB on 4.3.0); with 2,000
rows of 100 bytes the fixed cost of a batch occurs ten times as often (1.28 -> 1.40 M records a second,
exactly once on 4.0.0)."""

DESERIALIZED = StorageLevel(useDisk=False, useMemory=True, useOffHeap=False, deserialized=True)
"""Rows are read from it as they are; PySpark's MEMORY_ONLY would have every run deserialise them first."""


class Application:
    """The Spark session and its cached frames."""

    def __init__(self, bootstrap_servers: str, jars: str) -> None:
        self._bootstrap = bootstrap_servers
        self._frames: dict[str, tuple[DataFrame, int]] = {}
        self._partitions = 0
        self._counted: set[tuple[str, str]] = set()
        self._batch_id = 0
        self._spark = session(jars=jars)

    def versions(self) -> Mapping[str, Any]:
        """The versions of the software that runs here."""
        import confluent_kafka
        import pyarrow

        jvm: Any = self._spark._jvm
        return {
            "pyspark": pyspark.__version__,
            "python": sys.version.split()[0],
            "java": str(jvm.java.lang.System.getProperty("java.version")),
            "pyarrow": pyarrow.__version__,
            "confluent-kafka": confluent_kafka.__version__,
        }

    def load(
        self, name: str, value_bytes: int, records: int, partitions: int, words: bool = False
    ) -> Mapping[str, Any]:
        """Make and cache a frame of one binary column `value`, uncompressed in the JVM's memory."""
        self._tune(value_bytes)
        ids = self._spark.range(0, records, 1, partitions)
        frame = ids.mapInArrow(make_values(value_bytes, words=words), "value binary").persist(DESERIALIZED)
        found = frame.count()
        assert found == records, f"{found} rows instead of {records}"
        self._frames[name] = (frame, records)
        self._partitions = partitions
        return {}

    def stream(self, name: str, value_bytes: int, records: int, partitions: int) -> Mapping[str, Any]:
        """A frame of one binary column `value` whose rows the JVM generates while they are read; nothing is
        cached."""
        self._tune(value_bytes)
        padding = f"repeat('.', {value_bytes - 20})"
        value = f"CAST(concat(lpad(CAST(id AS STRING), 20, '0'), {padding}) AS BINARY) AS value"
        self._frames[name] = (self._spark.range(0, records, 1, partitions).selectExpr(value), records)
        return {}

    def unload(self) -> Mapping[str, Any]:
        """Release the frames' memory."""
        for frame, _ in self._frames.values():
            frame.unpersist(blocking=True)
        self._frames.clear()
        self._collect_garbage()
        return {}

    def write(self, name: str, way: str, topic: str, options: Mapping[str, str], passes: int = 1) -> Mapping[str, Any]:
        """Write the frame in one way, `passes` times in one job; returns the seconds taken, CPU seconds, records."""
        frame, records = self._repeated(name, passes)
        ways: dict[str, Callable[[DataFrame, str, Mapping[str, str]], Callable[[], int]]] = {
            "jvm": self._jvm,
            "row-by-row": self._row_by_row,
            "at-least-once": self._at_least_once,
            "exactly-once": self._exactly_once,
            "count": self._count,
            "ready-made": self._ready_made,
        }
        act = ways[way](frame, topic, options)
        # What an earlier way left behind is not to be collected in this one's time.
        self._collect_garbage()
        written, used = _measured(act)
        if written not in (records, -1):
            raise AssertionError(f"{way} wrote {written} records instead of {records}")
        return {"records": records, **used}

    def _repeated(self, name: str, passes: int) -> tuple[DataFrame, int]:
        """The frame's rows that many times, in as many tasks as once: each task reads several cached partitions."""
        frame, records = self._frames[name]
        if passes == 1:
            return frame, records
        return reduce(DataFrame.union, [frame] * passes).coalesce(self._partitions), records * passes

    def read(self, name: str, form: str, topic: str, passes: int = 1) -> Mapping[str, Any]:
        """Read a topic that contains the frame `passes` times and drop the rows; returns the seconds taken, CPU
        seconds, records.
        """
        records = self._frames[name][1] * passes
        options = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic, "startingOffsets": "earliest",
                   # Ours reads committed records by itself; the peer has to do the same work.
                   "kafka.isolation.level": "read_committed"}  # fmt: skip
        frame = self._spark.read.format(form).options(**options).load()
        self._collect_garbage()
        # What Spark made for measuring sources: every row is computed and dropped.
        _, used = _measured(frame.write.format("noop").mode("overwrite").save)
        # Once is enough, and takes as long as the run.
        if (form, topic) not in self._counted and (found := frame.count()) != records:
            raise AssertionError(f"{form} read {found} records instead of {records}")
        self._counted.add((form, topic))
        return {"records": records, **used}

    def peaks(self) -> Mapping[str, Any]:
        """Peak memory of each Python process."""
        found = [(pid, command, peak) for pid, command, peak in python_peaks(os.getpid())]
        return {"driver_mb": max(p for pid, _, p in found if pid == os.getpid()),
                "workers_mb": [p for _, command, p in found if "pyspark.daemon" in command]}  # fmt: skip

    # ---- the ways; each prepares what a running query would have, and returns what is measured

    def _jvm(self, frame: DataFrame, topic: str, options: Mapping[str, str]) -> Callable[[], int]:
        writer = frame.write.format("kafka").option("topic", topic)
        for key, value in {"kafka.bootstrap.servers": self._bootstrap, **options}.items():
            writer = writer.option(key, value)

        def act() -> int:
            writer.save()
            return -1

        return act

    def _row_by_row(self, frame: DataFrame, topic: str, options: Mapping[str, str]) -> Callable[[], int]:
        counts = frame.mapInArrow(row_by_row(self._bootstrap, topic), COUNT_SCHEMA)
        return lambda: sum(row[0] for row in counts.collect())

    def _count(self, frame: DataFrame, topic: str, options: Mapping[str, str]) -> Callable[[], int]:
        counts = frame.mapInArrow(count_only(), COUNT_SCHEMA)
        return lambda: sum(row[0] for row in counts.collect())

    def _ready_made(self, frame: DataFrame, topic: str, options: Mapping[str, str]) -> Callable[[], int]:
        counts = frame.mapInArrow(ready_made(self._bootstrap, topic, self._partitions), COUNT_SCHEMA)
        return lambda: sum(row[0] for row in counts.collect())

    def _driver(self, topic: str, options: Mapping[str, str]) -> Driver:
        parsed = SinkOptions.parse(
            {
                "kafka.bootstrap.servers": self._bootstrap,
                "topic": topic,
                "pipeline": f"bench-{os.getpid()}",
                **options,
            }
        )
        return driver_for(Cluster.shared(parsed.client, parsed.max_block_ms), parsed, QUERY)

    def _at_least_once(self, frame: DataFrame, topic: str, options: Mapping[str, str]) -> Callable[[], int]:
        plan = self._driver(topic, {**options, "delivery.guarantee": "at-least-once"}).plan(0)
        rows = select_columns(frame, topic)

        def act() -> int:
            results = rows.mapInArrow(slot_task(plan), RESULT_SCHEMA).collect()
            seals, failures = read_results((row[0], row[1], row[2]) for row in results)
            if failures:
                raise failures[0]
            return sum(seal.records for seal in seals)

        return act

    def _exactly_once(self, frame: DataFrame, topic: str, options: Mapping[str, str]) -> Callable[[], int]:
        driver = self._driver(topic, options)
        batch_id = self._batch_id
        self._batch_id += 1
        # Once per run of a query, not per batch: takes over the pipeline and reads the ledger.
        driver.start(batch_id)
        rows = select_columns(frame, topic)

        def act() -> int:
            plan = driver.plan(batch_id)
            results = rows.mapInArrow(slot_task(plan), RESULT_SCHEMA).collect()
            seals, failures = read_results((row[0], row[1], row[2]) for row in results)
            if failures:
                driver.abandon(batch_id, seals, str(failures[0]))
                raise failures[0]
            # Not `process`: a try that has to be done again is no measurement.
            return driver.commit(batch_id, seals, (), {}).records

        return act

    def _tune(self, value_bytes: int) -> None:
        """The settings that a user would choose for rows of this size, as the JVM sink's linger and batch are
        tuned."""
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH_BYTES // value_bytes))

    def _collect_garbage(self) -> None:
        jvm: Any = self._spark._jvm
        jvm.java.lang.System.gc()
        gc.collect()


def _measured(act: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What a call returns, its seconds, and the CPU seconds of this process and its descendants, Python's among them
    apart.
    """
    before, began = usage(os.getpid()), time.perf_counter()
    found = act()
    seconds, after = time.perf_counter() - began, usage(os.getpid())
    used = between(before, after)
    return found, {
        "seconds": round(seconds, 4),
        "cpu_seconds": round(sum(used.values()), 2),
        "python_cpu_seconds": round(used[PYTHON], 2),
    }


def session(
    *,
    jars: str = "",
    memory: str = "4g",
    master: str = f"local[{CORES}]",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> SparkSession:
    """Spark on this machine's two cores, with the same settings for every way of writing. `jars`: further
    jars for the JVM. `settings`: Spark's, beside these."""
    os.environ["JAVA_HOME"] = str(require_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .appName("benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", memory)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", "/nonexistent")
        # Exactly this value means no limit. With any other the JVM adds up all buffers after each row to compare.
        .config("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
    )
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 1):
        builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    if jars:
        # Not spark.jars.packages: that puts the jars on the Python workers' path too, and in Spark 4.0 every task reads
        # the directories of all of them anew (0.2 s of CPU), which would count against everyone who uses Python.
        builder = builder.config("spark.jars", jars)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def start_numbers(
    spark: SparkSession, form: str, options: Mapping[str, str], checkpoint: str, *, rows: int, tasks: int, trigger_ms: int
) -> StreamingQuery:  # fmt: skip
    """Start a query whose rows are 0, 1, 2, ...: so many a batch, which depend on the batch alone. `form`:
    "foreachBatch" or "format".
    """
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=rows, numPartitions=tasks)
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )
    writer = numbers.writeStream.option("checkpointLocation", checkpoint).trigger(
        processingTime=f"{trigger_ms} milliseconds"
    )
    if form == "foreachBatch":
        return writer.foreachBatch(ExactlyOnceWriter(options)).start()
    return writer.format("kafka_eos").options(**options).start()


def live_heap_mb(spark: SparkSession) -> float:
    """What a full collection leaves in the heap of the driver's JVM, in MB."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1024**2


if __name__ == "__main__":
    serve_application(Application, ("versions", "load", "stream", "unload", "write", "read", "peaks"))
