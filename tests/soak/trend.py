"""Whether a figure grows: a straight line through its samples, with the error of its slope."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_ERRORS = 3.0
"""A slope of so many standard errors is no chance. Samples of a process depend on each other, so fewer would call noise
growth.
"""


@dataclass(frozen=True)
class Trend:
    """`mean` in the figure's unit; `slope`, `error`: the unit for an hour; nan where there are under three samples."""

    mean: float
    slope: float
    error: float

    def grows(self, tolerated: float) -> bool:
        """Whether it grows by more than `tolerated` in an hour, and not by chance."""
        return self.slope - _ERRORS * self.error > 0 and self.slope > tolerated


def trend(seconds: Sequence[float], values: Sequence[float]) -> Trend:
    """The least squares line. `seconds`: when each value was taken, in any order; ValueError where the two differ in
    length.
    """
    if len(seconds) != len(values):
        raise ValueError(f"{len(seconds)} times and {len(values)} values")
    at, found = np.asarray(seconds, float) / 3600, np.asarray(values, float)
    mean = float(found.mean()) if len(found) else math.nan
    spread = float(((at - at.mean()) ** 2).sum()) if len(found) > 2 else 0.0
    if spread == 0.0:
        return Trend(mean, math.nan, math.nan)
    slope = float(((at - at.mean()) * (found - mean)).sum()) / spread
    rest = found - mean - slope * (at - at.mean())
    error = math.sqrt(float((rest**2).sum()) / (len(found) - 2) / spread)
    return Trend(mean, slope, error)
