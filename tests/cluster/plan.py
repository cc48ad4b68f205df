"""What the queries of a run are to do, and their names."""

from __future__ import annotations

ROWS_PER_BATCH = 400
TRIGGER_S = 0.5

SOURCE = "source"
OURS, SPARKS = "spark-format", "spark-own-sink"
"""The queries of a real Spark, and their outputs."""
