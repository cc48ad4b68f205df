"""When a way of writing is warm, and how often it has to write its data to be measured.

Owns: the judgement of the runs that do not count.
Does not know: what runs.
Invariants:
- A way is warm where its CPU per record no longer falls, or after `MOST` runs; `steady` tells which.
- A run that counts lasts `LEAST_S` or longer, unless its topic would get larger than `LARGEST_TOPIC_BYTES`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

LEAST_S = 5.0
"""The shortest run. The kernel counts CPU in ticks of 10 ms, and a Spark job costs 0.2 s whatever it writes."""

LARGEST_TOPIC_BYTES = 5 * 1024**3
"""Bytes of values in one run: at 1 KB and a million records/s that is 5 s."""

FALLING = 0.95
"""A run that costs less than this share of the cheapest one before it shows that compilers are still at work. Half of
the difference to 1 is the noise of one run here; double would end the warm-up while it still pays.
"""

LEAST = 3
MOST = 8
_MARGIN = 1.2
"""Of the length: runs that count are faster than those before them."""


@dataclass
class WarmUp:
    """The runs of one way that do not count. `records`, `value_bytes`: of its data, which a run writes `passes`
    times.
    """

    records: int
    value_bytes: int
    costs: list[float] = field(default_factory=list)
    passes: int = 1

    def note(self, seconds: float, records: int, cpu_seconds: float) -> None:
        """A run has ended."""
        self.costs.append(cpu_seconds / records)
        enough = math.ceil(_MARGIN * LEAST_S * records / seconds / self.records)
        self.passes = max(1, min(enough, LARGEST_TOPIC_BYTES // (self.records * self.value_bytes)))

    @property
    def steady(self) -> bool:
        """Whether the newest run was no cheaper than one before it, but for noise."""
        return len(self.costs) >= LEAST and self.costs[-1] >= FALLING * min(self.costs[:-1])

    @property
    def over(self) -> bool:
        """Whether the next run counts."""
        return self.steady or len(self.costs) >= MOST
