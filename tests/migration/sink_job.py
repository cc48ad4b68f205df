"""A Spark application that writes the same rows through Spark's own Kafka sink and through ours, and says how it went.

    python sink_job.py <bootstrap servers> <jars> <directory>  < cases.json  > outcomes, the last line of JSON

Run by the Python that has pyspark 4.0.0. A case is what `SinkCase.as_json` gives; both formats get the same options,
`pipeline` among them, which Spark's own sink ignores. For each case and format one outcome: "" or the text of the
error.

Owns: what is asked of a sink, the same of both.
Does not know: which answers are right, what has come into the topics, and of this project only the name of its format.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from tests.support.spark_session import SMALL, spark_session

FORMATS = ("kafka", "kafka_eos")

_TOO_SLOW = "Python worker failed to connect back"
_STARTS = 5
"""Spark 4.0 gives a sink's Python process 10 s to start, which is little on a machine that does much else."""

_ENDS_WITHIN_S = 240


class Job:
    """The session and where the streams' files go."""

    def __init__(self, bootstrap_servers: str, jars: str, directory: str, rows: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._directory = Path(directory)
        self._rows = rows
        settings = {
            **SMALL,
            "spark.jars": jars,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.pollingDelay": "50ms",
        }
        self.spark = spark_session(directory, settings, log_level="OFF")

    def outcome(self, case: Mapping[str, Any], name: str) -> str:
        """Write through the format; everything that was said where it failed, else ""."""
        for _ in range(_STARTS):
            try:
                if case["mode"] == "batch":
                    self._save(case, name)
                else:
                    self._stream(case, name)
            except Exception as error:  # noqa: BLE001  what was raised is the outcome
                said = "".join(traceback.format_exception(error))
                if _TOO_SLOW not in said:
                    return said
            else:
                return ""
        return said

    def _save(self, case: Mapping[str, Any], name: str) -> None:
        numbers = self.spark.range(0, self._rows, 1, 2).selectExpr("cast(id as int) as n")
        writer = self._shaped(case, name, numbers).write.format(name).options(**self._options(case, name))
        if case["save_mode"]:
            writer = writer.mode(case["save_mode"])
        writer.save()

    def _stream(self, case: Mapping[str, Any], name: str) -> None:
        folder = self._directory / case["name"] / name
        files = folder / "input"
        files.mkdir(parents=True, exist_ok=True)
        for run in range(case["runs"]):
            numbers = range(run * self._rows, (run + 1) * self._rows)
            (files / f"{run}.txt").write_text("\n".join(map(str, numbers)))
            source = self.spark.readStream.format("text").load(str(files)).selectExpr("cast(value as int) as n")
            query = (
                self._shaped(case, name, source)
                .writeStream.format(name)
                .options(**self._options(case, name))
                .option("checkpointLocation", str(folder / "checkpoint"))
                .outputMode(case["save_mode"])
                .trigger(availableNow=True)
                .start()
            )
            try:
                if not query.awaitTermination(_ENDS_WITHIN_S):
                    raise TimeoutError("the query came to no end")
            finally:
                query.stop()

    def _shaped(self, case: Mapping[str, Any], name: str, numbers: DataFrame) -> DataFrame:
        return numbers.selectExpr(*(self._filled(case, name, column) for column in case["columns"]))

    def _options(self, case: Mapping[str, Any], name: str) -> dict[str, str]:
        options = {
            "kafka.bootstrap.servers": self._bootstrap_servers,
            "pipeline": case["topics"][name]["topic"],
            **case["options"],
        }
        return {option: self._filled(case, name, text) for option, text in options.items() if text is not None}

    def _filled(self, case: Mapping[str, Any], name: str, text: str) -> str:
        for role, topic in case["topics"][name].items():
            text = text.replace(f"{{{role}}}", topic)
        return text


def main(bootstrap_servers: str, jars: str, directory: str) -> None:
    """All cases, one after the other."""
    asked = json.load(sys.stdin)
    job = Job(bootstrap_servers, jars, directory, asked["rows"])
    outcomes = {case["name"]: {name: job.outcome(case, name) for name in FORMATS} for case in asked["cases"]}
    print(json.dumps(outcomes))  # noqa: T201  what the test reads
    job.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
