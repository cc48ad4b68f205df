"""Record times as Spark has them: Kafka's milliseconds in microseconds.

Owns: what becomes of a time that microseconds in 64 bits cannot hold.
Does not know: topics, Arrow.
Invariants: no time wraps: one that is out of reach becomes the nearest that is not, and is counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FURTHEST_MS = (2**63 - 1) // 1000
"""The last millisecond that fits (in the year 294247); Kafka takes any int64."""


def microseconds(timestamp_ms: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Times in microseconds, and how many of them were out of reach and are given as the furthest there is."""
    within = np.clip(timestamp_ms, -FURTHEST_MS, FURTHEST_MS)
    return within * 1000, int(np.count_nonzero(within != timestamp_ms))
