"""A Spark application that reads the same topics through Spark's own Kafka source and through ours, and says what it
saw.

    python source_job.py <bootstrap servers> <jars> <directory>  < cases.json  > outcomes, the last line of JSON

Run by the Python that has pyspark 4.0.0. A case is {"name", "mode": "batch" or "stream", "options", "more", "limit"};
options are given to both formats alike, which is the point. For each case and format one outcome:
{"schema", "rows", "tasks", "batches", "offsets"} or {"error": {"when", "text"}}.

Owns: what is asked of a source, the same of both.
Does not know: which answers are right, and nothing of this project but the name of its format.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tests.support.spark_session import SMALL, spark_session

FORMATS = ("kafka", "kafka_eos")

_TOO_SLOW = "Python worker failed to connect back"
_STARTS = 5
"""Spark 4.0 gives a source's Python process 10 s to start, which is little on a machine that does much else."""


def rows_of(frame: DataFrame) -> list[list[Any]]:
    """All columns as JSON can say them, in the order of the log."""
    columns = [
        f.hex("key").alias("key") if name == "key" else
        f.hex("value").alias("value") if name == "value" else
        f.unix_micros("timestamp").alias("timestamp") if name == "timestamp" else
        f.to_json("headers").alias("headers") if name == "headers" else f.col(name)
        for name in frame.columns
    ]  # fmt: skip
    found = frame.select(*columns, f.spark_partition_id().alias("task")).collect()
    return sorted(([*row] for row in found), key=lambda row: (row[2], row[3], row[4]))


def outcome_of(frame: DataFrame, rows: list[list[Any]]) -> dict[str, Any]:
    """Rows without their task, and for each task which offsets of which partition it had."""
    tasks: dict[int, list[Any]] = {}
    for row in rows:
        first = tasks.setdefault(row[-1], [row[2], row[3], row[4], row[4]])
        first[3] = row[4]
    return {
        "schema": frame.schema.jsonValue(),
        "rows": [row[:-1] for row in rows],
        "tasks": sorted(tasks.values()),
    }


def failure(when: str, error: BaseException) -> dict[str, Any]:
    """Where it was refused and everything that was said."""
    return {"error": {"when": when, "text": "".join(traceback.format_exception(error))}}


class Job:
    """The session and where checkpoints go."""

    def __init__(self, bootstrap_servers: str, jars: str, directory: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._directory = Path(directory)
        settings = {
            **SMALL,
            "spark.jars": jars,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.pollingDelay": "50ms",
        }
        self.spark = spark_session(directory, settings, log_level="OFF")

    def _options(self, case: Mapping[str, Any]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap_servers, **case["options"]}

    def batch(self, case: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Read once."""
        when = "load"
        try:
            frame = self.spark.read.format(name).options(**self._options(case)).load()
            when = "run"
            return outcome_of(frame, rows_of(frame))
        except Exception as error:  # noqa: BLE001  what was raised is the outcome
            return failure(when, error)

    def stream(self, case: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Run a query of each format beside the other, so that both see the topics at the same moments."""
        runs = {name: Run(self, case, name) for name in FORMATS}
        try:
            for run in runs.values():
                run.catch_up()
            if case.get("more"):
                self._write_more(case["more"])
                for run in runs.values():
                    run.catch_up()
            if case.get("restart"):
                for run in runs.values():
                    run.restart()
        finally:
            outcomes = {name: run.finish() for name, run in runs.items()}
        return outcomes

    def _write_more(self, more: Mapping[str, Any]) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap_servers, "log_level": 0})
        for partition, count in enumerate(more["counts"]):
            for number in range(count):
                producer.produce(more["topic"], b"more %d" % number, partition=partition, timestamp=1_000 + number)
        if producer.flush(30):
            raise TimeoutError("the records that come later were not written")

    def patterns(self, patterns: list[str], names: list[str]) -> list[list[str] | None]:
        """Which names Java finds each pattern in; None where Java refuses the pattern."""
        regex: Any = self.spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
        found: list[list[str] | None] = []
        for pattern in patterns:
            try:
                compiled = regex.compile(pattern)
            except Exception:  # noqa: BLE001  PatternSyntaxException
                found.append(None)
            else:
                found.append([name for name in names if compiled.matcher(name).find()])
        return found


class Run:
    """One streaming query over one format."""

    def __init__(self, job: Job, case: Mapping[str, Any], name: str) -> None:
        self._job, self._case, self._name = job, case, name
        self._checkpoint = job._directory / case["name"] / name
        self._batches: list[list[list[Any]]] = []
        self._error: dict[str, Any] | None = None
        self._query: Any = None
        self._frame: DataFrame | None = None
        self._start(name)

    def _start(self, name: str) -> None:
        when = "load"
        try:
            options = self._job._options(self._case)
            self._frame = self._job.spark.readStream.format(name).options(**options).load()
            when = "start"
            writer = self._frame.writeStream.foreachBatch(lambda rows, number: self._batches.append(rows_of(rows)))
            self._query = writer.option("checkpointLocation", str(self._checkpoint)).start()
        except Exception as error:  # noqa: BLE001
            self._error = failure(when, error)

    def catch_up(self) -> None:
        """Wait until everything that is there has been processed."""
        for _ in range(_STARTS):
            if self._error is not None:
                return
            try:
                self._query.processAllAvailable()
            except Exception as error:  # noqa: BLE001
                if self._batches or _TOO_SLOW not in str(error):
                    self._error = failure("run", error)
                else:
                    self._start(self._name)
            else:
                return

    def restart(self) -> None:
        """Stop and go on from the checkpoint, always with our format: what a migrating job does."""
        if self._error is None:
            self._query.stop()
            self._start(FORMATS[1])
            self.catch_up()

    def finish(self) -> dict[str, Any]:
        """Stop; what was seen."""
        if self._query is not None:
            self._query.stop()
        if self._error is not None:
            return self._error
        assert self._frame is not None
        files = [path for path in (self._checkpoint / "offsets").iterdir() if path.name.isdigit()]
        texts = [path.read_text().splitlines()[-1] for path in sorted(files, key=lambda path: int(path.name))]
        every = sorted((row for batch in self._batches for row in batch), key=lambda row: (row[2], row[3], row[4]))
        return {
            "schema": self._frame.schema.jsonValue(),
            "rows": [row[:-1] for row in every],
            "tasks": [outcome_of(self._frame, batch)["tasks"] for batch in self._batches],
            # Ours has entries more, which name no partition: docs/reading.md.
            "offsets": [{topic: each for topic, each in json.loads(text).items() if each} for text in texts],
        }


def main(bootstrap_servers: str, jars: str, directory: str) -> None:
    """All cases, one after the other."""
    asked = json.load(sys.stdin)
    job = Job(bootstrap_servers, jars, directory)
    outcomes = {
        case["name"]: job.stream(case)
        if case["mode"] == "stream"
        else {name: job.batch(case, name) for name in FORMATS}
        for case in asked["cases"]
    }
    found = {"outcomes": outcomes, "patterns": job.patterns(asked["patterns"], asked["names"])}
    print(json.dumps(found))  # noqa: T201  what the test reads
    job.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
