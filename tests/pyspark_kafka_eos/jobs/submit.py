"""A job under spark-submit, on the driver's own threads or on a cluster with two executors of their own.

Owns: the command, its environment, waiting for the end.
Does not know: what the job does.
Invariants: nothing of it survives the test.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.real.java import require_java
from spark_jobs import demo_job
from tests.pyspark_kafka_eos.spark.cluster import spark_home
from tests.support.quick_start import QUICK_START

ENDS_WITHIN_MS = 900_000
"""A job takes some 10 s; with ten others at work on the same two cores it took more than 300."""
TWO_EXECUTORS = "local-cluster[2,1,1024]"


def start(
    job: str,
    config: Mapping[str, Any],
    directory: Path,
    *flags: str,
    master: str = "local[2]",
    environ: Mapping[str, str] | None = None,
) -> Child:
    """Start `spark_jobs/<job>.py` with this configuration; what it says goes to `job.log` in the directory."""
    directory.mkdir(exist_ok=True)
    conf_file = directory / "job.yaml"
    conf_file.write_text(yaml.safe_dump(dict(config)))
    whole = {
        **require_java().environ(),
        "PYTHONPATH": str(demo_job.ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory),
        **(environ or {}),
    }
    command = demo_job.spark_submit()
    if master == TWO_EXECUTORS:
        home = spark_home(directory)
        whole["SPARK_HOME"] = str(home)
        command = home / "bin" / "spark-submit"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    said = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    return spawn(
        [
            *(command, "--master", master, "--driver-java-options", QUICK_START, *said, *flags),
            *(Path(demo_job.ROOT, "spark_jobs", f"{job}.py"), "--conf-file", conf_file),
        ],
        log_path=directory / "job.log",
        env=whole,
        cwd=directory,
    )


def submit(job: str, config: Mapping[str, Any], directory: Path, *flags: str, **how: Any) -> tuple[int, str]:
    """Run it until it ends: exit code and everything it said."""
    child = start(job, config, directory, *flags, **how)
    try:
        code = child.wait(ENDS_WITHIN_MS)
    finally:
        child.stop()
    return code, Path(directory, "job.log").read_text(errors="replace")
