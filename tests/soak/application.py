"""One Spark application with one query, which is started again after a failure.

    python -m tests.soak.application <bootstrap servers>        a child of `python -m tests.soak`

Owns: the session, the query. Its rows are 0, 1, 2, ... and depend on the batch alone, so a batch that is read again is
the same.
Does not know: faults, measurements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from benchmarks.application import live_heap_mb, session, start_numbers
from benchmarks.children import serve_application
from tests.soak.plan import PIPELINE, ROWS_PER_BATCH, TASKS, TOPIC, TRIGGER_MS


class Application:
    """The session and its query."""

    def __init__(self, bootstrap_servers: str, jars: str) -> None:
        self._servers = bootstrap_servers
        self._spark = session(
            jars=jars,
            memory="1g",
            # A task that loses its worker is tried again, which plain local mode does not do.
            master="local[2,4]",
            settings={
                # Otherwise the history of jobs and batches grows until it reaches its bounds, for an hour.
                "spark.ui.retainedJobs": "20",
                "spark.ui.retainedStages": "20",
                "spark.ui.retainedTasks": "200",
                "spark.sql.ui.retainedExecutions": "20",
                "spark.sql.streaming.minBatchesToRetain": "10",
                # All of the heap is resident from the start: what grows is native memory. The heap's content is a
                # figure of its own.
                "spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch",
            },
        )
        self._spark.sparkContext.setLogLevel("OFF")
        self._query: StreamingQuery | None = None

    def start(self, form: str, checkpoint: str) -> Mapping[str, Any]:
        """Start the query on its checkpoint. `form`: "foreachBatch" or "format"."""
        options = {
            "kafka.bootstrap.servers": self._servers,
            "topic": TOPIC,
            "pipeline": PIPELINE,
        }
        self._query = start_numbers(
            self._spark, form, options, checkpoint, rows=ROWS_PER_BATCH, tasks=TASKS, trigger_ms=TRIGGER_MS
        )
        return {}

    def check(self) -> Mapping[str, Any]:
        """Whether the query runs, its newest batch, and the first line of its error."""
        assert self._query is not None
        error = None if self._query.isActive else self._query.exception()
        progress = self._query.lastProgress
        return {
            "active": self._query.isActive,
            "batch": -1 if progress is None else int(progress["batchId"]),
            "error": "" if error is None else str(error).splitlines()[0][:300],
        }

    def heap(self) -> Mapping[str, Any]:
        """What is alive in the JVM's heap, in MB: its use after a collection."""
        return {"mb": live_heap_mb(self._spark)}

    def threads(self) -> Mapping[str, Any]:
        """The JVM's threads by name, without the numbers in the names."""
        jvm: Any = self._spark._jvm
        stacks = jvm.java.lang.Thread.getAllStackTraces()
        names = str(jvm.java.util.ArrayList(stacks.keySet()).toString())
        found = re.findall(r"Thread\[#?\d*,?(.*?),\d+,", names)
        return dict(Counter(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|0x[0-9a-f]+|\d+", "*", name) for name in found))

    def stop(self) -> Mapping[str, Any]:
        """Stop the query, in the middle of a batch if need be."""
        assert self._query is not None
        self._query.stop()
        return {}


if __name__ == "__main__":
    serve_application(Application, ("start", "check", "heap", "threads", "stop"))
