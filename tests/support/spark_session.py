"""The one builder of a Spark session: for the tests' own, and for the applications that tests start.

Owns: what every session of the tests has: no UI, and nothing that listens beyond this machine.
Does not know: Java, Python's path and where Spark finds its workers' Python, which are of the environment that a
process begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
"""For a session beside others on a machine with 2 cores. Half of the memory is too little for a batch of Arrow's."""


def spark_session(
    folder: Path | str,
    settings: Mapping[str, str] | None = None,
    *,
    master: str = "local[2]",
    builder: Any = None,
    log_level: str | None = None,
) -> SparkSession:
    """A session with these settings beside the tests' own; its tables go into `folder`/warehouse. `builder`: another
    one than a classic session's on `master`, such as Connect's.
    """
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(Path(folder) / "warehouse"),
        **(settings or {}),
    }
    builder = builder or SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    if log_level is not None:
        session.sparkContext.setLogLevel(log_level)
    return session
