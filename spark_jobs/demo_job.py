"""The demo's job: `enrich_flights.py` as a child process under spark-submit, and its state as visible from
outside.

Owns: the command and its environment, SIGKILL to all its processes, its state as Kafka and its checkpoint
show it.
Does not know: the moments of the kills, the output and the judgement.
Invariants:
- No process of the job survives `close`.
- All its files are in the demo's directory.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.real.java import require_java
from spark_jobs.proof import Look

ROOT = Path(__file__).resolve().parent.parent
CONF_FILE = ROOT / "conf" / "enrich_flights.yaml"
GIVEN, WRITTEN, PIPELINE = "flights", "flights.enriched", "enrich-flights"
"""As the job's YAML file names them."""


class DemoFailed(Exception):
    """The demo could not be carried out. The message names the step and contains the end of the job's log."""


class Job:
    """The streaming job as a child process, and its state as Kafka and the checkpoint show it from outside."""

    def __init__(self, bootstrap_servers: str, directory: Path, per_batch: int) -> None:
        self.look = Look(bootstrap_servers)
        self._directory = directory
        self._checkpoint = directory / "checkpoint"
        self._log = directory / "job.log"
        self._temporary = directory / "tmp"
        self._temporary.mkdir()
        self._child: Child | None = None
        self._environ = {
            **require_java().environ(),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            # A killed driver's files are removed with the demo's directory.
            "SPARK_LOCAL_DIRS": str(self._temporary),
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
            "CHECKPOINT_LOCATION": self._checkpoint.as_uri(),
            "MAX_OFFSETS_PER_TRIGGER": str(per_batch),
        }

    def start(self) -> None:
        """Start the job, for the first time or after a kill: both starts are the same."""
        command: list[str | Path] = [
            *(spark_submit(), "--master", "local[2]", "--driver-memory", "1g"),
            *("--driver-java-options", f"-Djava.io.tmpdir={self._temporary}"),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--conf", f"spark.sql.warehouse.dir={self._temporary / 'warehouse'}"),
            *(ROOT / "spark_jobs" / "enrich_flights.py", "--conf-file", CONF_FILE),
        ]
        self._child = spawn(command, log_path=self._log, env=self._environ, cwd=self._directory)

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and its Python workers at the same moment, as when the machine
        crashes."""
        assert self._child is not None
        self._child.kill_tree()
        self._child = None

    def close(self) -> None:
        """End the job if it runs: SIGTERM first, SIGKILL if it does not end."""
        self.look.close()
        if self._child is not None:
            self._child.stop()
            self._child = None

    def must_run(self) -> None:
        """DemoFailed where the job has ended by itself."""
        assert self._child is not None
        code = self._child.poll()
        if code is not None:
            self.fail(f"the job ended by itself with exit code {code}")

    def fail(self, what: str) -> NoReturn:
        """DemoFailed with the end of the job's log."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        tail = "\n".join(text.splitlines()[-40:])
        raise DemoFailed(f"{what}; the end of its log:\n{tail}")

    def committed(self) -> int:
        """Records of the input that are done, from the consumer group's offsets."""
        return sum(self.look.group_offsets(PIPELINE, GIVEN).values())

    def end_of(self, batch: int) -> int:
        """Records of the input up to the end of a batch that has begun."""
        source = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
        return sum(json.loads(source)[GIVEN].values())

    def last_begun(self) -> int:
        """The batch that Spark began last (its offset log), -1 before the first."""
        return _last(self._checkpoint / "offsets")

    def last_finished(self) -> int:
        """The batch that Spark finished last (its commit log), -1 before the first."""
        return _last(self._checkpoint / "commits")


def _last(log: Path) -> int:
    """The highest batch in one of Spark's checkpoint logs, -1 where it has none."""
    if not log.is_dir():
        return -1
    return max((int(entry.name) for entry in log.iterdir() if entry.name.isdigit()), default=-1)


def spark_submit() -> Path:
    """The command that comes with pyspark; DemoFailed where there is no pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DemoFailed("pyspark is not installed here: pip install pyspark")
    return Path(spec.origin).parent / "bin" / "spark-submit"
