"""What each row of the matrix has to show.

Owns: how many rows each application writes, to which topic.
"""

from __future__ import annotations

from collections.abc import Mapping

ROWS = 500
"""Of each micro-batch."""

BATCHES = 2
AFTER_THE_DECISION = "after-decision"

TOPICS: Mapping[str, int] = {
    "format": ROWS * BATCHES,
    "foreachBatch": ROWS * BATCHES,
    "write": ROWS,
    "stream": ROWS,
}
"""Name -> how many numbers, from 0 on, the topic has, each once."""

PARTITIONS = 2
