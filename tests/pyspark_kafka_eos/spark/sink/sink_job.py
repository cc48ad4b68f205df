"""An application of its own that runs one query of `sink_query`, classic or on Spark Connect; for tests that kill it.

    python -m tests.pyspark_kafka_eos.spark.sink.sink_job <settings as JSON>

Owns: the session, which way the query writes, what is told of its end. Settings: folder, options, batches, rows;
`connect`;
`way`: format or foreachBatch; `crash`: the point at which the application dies; `fail_first`: the first attempt of each
task fails after it has handed its rows on; `distinct`: the query remembers every row;
`conf`: more settings of Spark; `location`: of the checkpoint; `environ`: more variables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pyspark_kafka_eos.spark.sink import crashing_sink, sink_query
from tests.support.spark_session import SMALL, spark_session

_TIMEOUT_S = 400
"""A cold start of Spark and of its Python workers takes 20 s, on a machine that does much else minutes."""


@dataclass(frozen=True)
class Ended:
    """How the application ended: its exit code (-9 where it was killed), and what Spark said of the query ("" for
    nothing).
    """

    exitcode: int
    said: str
    log: str


def run_job(**settings: Any) -> Ended:
    """Run the application to its end."""
    folder = Path(settings["folder"])
    said = folder / "said"
    said.unlink(missing_ok=True)
    (folder / "crash").unlink(missing_ok=True)
    log = folder / "job.log"
    with log.open("wb") as out:
        job = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.pyspark_kafka_eos.spark.sink.sink_job",
                json.dumps({**settings, "folder": str(folder)}),
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            job.wait(_TIMEOUT_S)
        finally:
            job.kill()
            job.wait()
    return Ended(job.returncode, said.read_text() if said.exists() else "", log.read_text(errors="replace"))


def main(settings: dict[str, Any]) -> None:
    """The application."""
    from embedded_kafka.real.java import require_java

    os.environ.update(require_java().environ())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[4]), os.environ.get("PYTHONPATH", "")])
    os.environ.update(settings.get("environ", {}))
    folder = Path(settings["folder"])
    crash = settings.get("crash")
    if crash:
        os.environ[crashing_sink.POINT] = crash
        os.environ[crashing_sink.PROOF] = str(folder / "crash")
        os.environ[crashing_sink.GROUP] = str(os.getpgid(0))
    spark = session(folder, settings)
    name = "kafka_eos"
    if crash and settings.get("way") == "foreachBatch":
        crashing_sink.arm()
    elif crash:
        spark.dataSource.register(crashing_sink.CrashingSource)
        name = crashing_sink.CrashingSource.name()
    said = sink_query.run_sink(
        spark,
        folder,
        settings["options"],
        _failing_first if settings.get("fail_first") else _distinct if settings.get("distinct") else _as_it_is,
        batches=settings["batches"],
        rows=settings["rows"],
        way=settings.get("way", "format"),
        name=name,
        location=settings.get("location", ""),
        timeout_s=_TIMEOUT_S - 60,
    )
    (folder / "said").write_text(said)
    spark.stop()


def session(folder: Path, settings: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    builder = _connect(SparkSession.builder) if settings.get("connect") else None
    confs = {**settings.get("conf", {}), **SMALL, "spark.sql.session.timeZone": "UTC"}
    return spark_session(folder, confs, master="local[2,4]", builder=builder)


def _connect(builder: Any) -> Any:
    """A server in this process, on a free port. PySpark looks for such a server at the default port only."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    from embedded_kafka.child.ports import free_ports

    (port,) = free_ports(1)
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    return builder.remote("local[2]").config("spark.connect.grpc.binding.port", str(port))


def _as_it_is(frame: Any) -> Any:
    return frame


def _distinct(frame: Any) -> Any:
    return frame.dropDuplicates()


def _failing_first(frame: Any) -> Any:
    return frame.mapInArrow(_fail_first_attempt, "value string")


def _fail_first_attempt(batches: Iterator[Any]) -> Iterator[Any]:
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails after its last row")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
