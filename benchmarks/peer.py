"""The peer: the Spark whose own Kafka sink and source are beside ours, and where a benchmark keeps its brokers' logs.

Owns: the peer's version, its jars, its Python.
Does not know: what is measured.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.children import ROOT
from embedded_kafka.real.java import require_java
from embedded_kafka.real.maven import Artifact, fetch

PEER_PYTHON = ROOT / ".venv-bench-jvm" / "bin" / "python"
PEER_SPARK = "4.0.0"
SINK = Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", PEER_SPARK)

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 14 * 1024**3
"""Memory that must be free before logs are kept in it: for the largest topic and the one being deleted, the
packed records, and the JVMs."""


def logs_in_memory() -> Path | None:
    """A directory in memory with room for the brokers' logs, so the disk does not limit the results; None
    without one."""
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        return None
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvail"))
    return _MEMORY if int(free.split()[1]) * 1024 >= _ROOM_BYTES else None


def jvm_sink_jars() -> str:
    """Spark's own Kafka sink with the dependencies that Spark lacks, as a list for `spark.jars`."""
    found = fetch(f"spark-sql-kafka-{PEER_SPARK}", [SINK], require_java())
    needed = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    # Ivy names them by group or not, as it likes.
    jars = sorted(str(jar) for jar in found.glob("*.jar") if any(name in jar.name for name in needed))
    if len(jars) != len(needed):
        raise FileNotFoundError(f"expected one jar each of {needed} in {found}, found {jars}")
    return ",".join(jars)
