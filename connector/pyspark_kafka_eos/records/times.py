"""Record times as Spark has them: Kafka's milliseconds in microseconds.

Owns: how a time is treated that does not fit into 64 bits as microseconds.
Does not know: topics, Arrow.
Invariants: no time wraps around. A time out of range becomes the nearest one in range, and is counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FURTHEST_MS = (2**63 - 1) // 1000
"""The last millisecond that fits (in the year 294247); Kafka takes any int64."""


def microseconds(timestamp_ms: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Times in microseconds, and how many of them were out of range and became the nearest possible time."""
    within = np.clip(timestamp_ms, -FURTHEST_MS, FURTHEST_MS)
    return within * 1000, int(np.count_nonzero(within != timestamp_ms))
