"""One Spark application with two queries over the same source: one writes by our format, one by Spark's own Kafka sink.

    python -m tests.cluster.application <bootstrap servers> --jars ...     a child of `python -m tests.cluster --spark`

Run by the Python that has the pyspark whose own Kafka connector can be had.

Owns: the session, the queries, starting one again that ended.
Does not know: the brokers' troubles, who judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from benchmarks.application import session
from benchmarks.children import serve_application
from tests.cluster.plan import OURS, ROWS_PER_BATCH, SOURCE, SPARKS, TRIGGER_S

_FORMATS = {OURS: "kafka_eos", SPARKS: "kafka"}


class Application:
    """The session and its queries, by their names, which are those of their outputs."""

    def __init__(self, bootstrap_servers: str, jars: str) -> None:
        self._servers = {"kafka.bootstrap.servers": bootstrap_servers}
        self._spark = session(jars=jars, memory="768m")
        self._spark.sparkContext.setLogLevel("ERROR")
        self._queries: dict[str, StreamingQuery] = {}
        self._directory = ""

    def start(self, directory: str) -> Mapping[str, Any]:
        """Both queries, with their checkpoints there."""
        self._directory = directory
        for name in _FORMATS:
            self._start(name)
        return {}

    def _start(self, name: str) -> None:
        rows = (
            self._spark.readStream.format("kafka")
            .options(**self._servers, subscribe=SOURCE, startingOffsets="earliest", maxOffsetsPerTrigger=ROWS_PER_BATCH)
            .load()
            .select("key", "value")
        )
        ours = {"pipeline": name} if name == OURS else {}
        self._queries[name] = (
            rows.writeStream.format(_FORMATS[name])
            .options(**self._servers, **ours, topic=name, checkpointLocation=str(Path(self._directory, name)))
            .trigger(processingTime=f"{round(TRIGGER_S * 1000)} milliseconds")
            .start()
        )

    def check(self, more: bool = True) -> Mapping[str, Any]:
        """Of each query the newest batches, and why it ended by itself where it did; then it is started again, but for
        `more` false.
        """
        found: dict[str, Any] = {}
        for name, query in list(self._queries.items()):
            error = "" if query.isActive else str(query.exception()).splitlines()[0][:400]
            batches = [
                {
                    "batch": each["batchId"],
                    "began": began,
                    "ended": began + each["durationMs"]["triggerExecution"] / 1000,
                }
                for each in query.recentProgress
                if each["numInputRows"]
                for began in [datetime.fromisoformat(str(each["timestamp"]).replace("Z", "+00:00")).timestamp()]
            ]
            found[name] = {"batches": batches, "error": error}
            if error and more:
                self._start(name)
        return found

    def stop(self) -> Mapping[str, Any]:
        """Stop both, in the middle of a batch if need be."""
        for query in self._queries.values():
            query.stop()
        return {}


if __name__ == "__main__":
    serve_application(Application, ("start", "check", "stop"))
