"""What a program on the peer's Spark is started with: pyspark 4.0.0 in its own environment, beside ours.

Owns: that it uses this Java, the peer's Python and the classes that are kept for the peer's jars.
Does not know: what the program does.
"""

from __future__ import annotations

from benchmarks.children import ROOT
from benchmarks.peer import PEER_PYTHON
from embedded_kafka.real.java import require_java
from tests.support.quick_start import flags


def peer_environ() -> dict[str, str]:
    """A copy of this process's environment for such a program, which may import what the repository has."""
    return {
        **require_java().environ(),
        "PYSPARK_PYTHON": str(PEER_PYTHON),
        "PYTHONPATH": str(ROOT),
        # Ours are of other jars: a Java that is given them starts without any.
        "JDK_JAVA_OPTIONS": flags(PEER_PYTHON.parents[1]),
    }
