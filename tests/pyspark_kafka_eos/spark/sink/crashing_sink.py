"""The sink under another name, with a crash point armed in the process that commits: there the whole application dies.

Owns: reading from the environment which point, and whom to kill.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from pyspark_kafka_eos import DefaultSource, crash_points

POINT, GROUP, PROOF = "SINK_CRASH_POINT", "SINK_CRASH_GROUP", "SINK_CRASH_PROOF"


class CrashingSource(DefaultSource):
    """`format("kafka_eos_crashing")`."""

    @classmethod
    def name(cls) -> str:
        return "kafka_eos_crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if self._was_sent:
            arm()
        return super().streamWriter(schema, overwrite)


def arm() -> None:
    """Arm the point in this process, which is the one that commits."""
    point, _, count = os.environ[POINT].partition(":")
    crash_points.arm(point, int(count or 1), _kill_the_application)


def _kill_the_application() -> None:
    Path(os.environ[PROOF]).write_text("reached")
    # The driver's Python and its JVM; Spark's Python workers have groups of their own.
    os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
