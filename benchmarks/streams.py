"""One Spark application that runs streaming queries from Kafka to Kafka, one after another.

    python -m benchmarks.streams <bootstrap servers> [--jars ...]       a child of `python -m benchmarks.latency`

Owns: the session, the queries' options; the phases of a micro-batch as Spark's progress names them.
Does not know: the records, the time that one takes from end to end.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from benchmarks.application import session
from benchmarks.children import serve_application
from pyspark_kafka_eos import ExactlyOnceWriter

_PROGRESS_KEPT = 10_000
"""Spark keeps 100 of a query by default, which are 20 s of the fastest one."""

PHASES = (
    "latestOffset",
    "queryPlanning",
    "walCommit",
    "getBatch",
    "addBatch",
    "commitOffsets",
    "triggerExecution",
)


class Streams:
    """The session and the query that runs now."""

    def __init__(self, bootstrap_servers: str, jars: str) -> None:
        self._servers = bootstrap_servers
        self._spark = session(jars=jars, memory="1g")
        self._spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(_PROGRESS_KEPT))
        self._query: StreamingQuery | None = None
        self._checkpoint = ""

    def start(self, form: str, source: str, topic: str, options: Mapping[str, str]) -> Mapping[str, Any]:
        """Start a query from one topic to another. `form`: "kafka" for Spark's own source and sink, "kafka_eos" for
        ours by format, "foreachBatch" for ours by that. `options`: of our sink.
        """
        ours = form != "kafka"
        self._checkpoint = tempfile.mkdtemp(prefix="benchmarks-checkpoint-")
        servers = {"kafka.bootstrap.servers": self._servers}
        # A reader of committed records on both sides: the peer has to do the same work.
        committed = {} if ours else {"kafka.isolation.level": "read_committed"}
        rows = (
            self._spark.readStream.format("kafka_eos" if ours else "kafka")
            .options(**servers, **committed, subscribe=source, startingOffsets="latest")
            .load()
            .select("value")
        )
        sink = {**servers, "topic": topic, **({"pipeline": topic, **options} if ours else {})}
        writer = rows.writeStream.option("checkpointLocation", self._checkpoint)
        if form == "foreachBatch":
            writer = writer.foreachBatch(ExactlyOnceWriter(sink))
        else:
            writer = writer.format(form).options(**sink)
        self._query = writer.start()
        return {}

    def check(self) -> Mapping[str, Any]:
        """The number of batches so far; the query's error as a failure."""
        assert self._query is not None
        if not self._query.isActive:
            raise RuntimeError(f"the query failed: {self._query.exception()}")
        return {"batches": len(self._query.recentProgress)}

    def stop(self, since: int) -> Mapping[str, Any]:
        """Stop the query. Returns, of its batches from that one on, how many there were and the median milliseconds of
        each phase.
        """
        assert self._query is not None
        batches = [dict(each["durationMs"]) for each in self._query.recentProgress[since:] if each["numInputRows"]]
        self._query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        return {
            "batches": len(batches),
            "phases_ms": {
                phase: statistics.median([each[phase] for each in batches if phase in each] or [0]) for phase in PHASES
            },
        }


if __name__ == "__main__":
    serve_application(Streams, ("start", "check", "stop"))
