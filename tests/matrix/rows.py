"""Which versions are run together.

Owns: the versions, what cannot be had together, the rows.
Invariants: each two versions that can be had together are in a row together; the same versions give the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations, product

VERSIONS: Mapping[str, Sequence[str]] = {
    "python": ("3.10", "3.11", "3.12", "3.13"),
    "pyspark": ("4.0", "4.1", "4.2", "4.3"),
    "kafka": ("3.0.2", "3.9.1", "4.1.1", "4.4.0"),
    "mode": ("classic", "connect"),
}
LOCKS = {"4.0": "bench-jvm", "4.1": "spark-4.1", "4.2": "spark-4.2", "4.3": "test"}
"""pyspark's minor version -> the file in requirements/ with the exact one."""

IMPOSSIBLE = {("3.10", "4.3"): "pyspark 4.3 asks for Python 3.11"}
"""Python and pyspark -> why pip does not install the two together."""


@dataclass(frozen=True)
class Row:
    """One environment, one broker, one way in which the application reaches Spark."""

    python: str
    pyspark: str
    kafka: str
    mode: str

    def pairs(self) -> frozenset[tuple[str, str]]:
        """Each two of the versions, as name=version."""
        named = [f"{name}={value}" for name, value in zip(VERSIONS, astuple(self), strict=True)]
        return frozenset(combinations(named, 2))

    def __str__(self) -> str:
        return f"Python {self.python}, pyspark {self.pyspark}, Kafka {self.kafka}, {self.mode}"


def possible() -> Iterator[Row]:
    """Every combination that can be had."""
    for values in product(*VERSIONS.values()):
        row = Row(*values)
        if (row.python, row.pyspark) not in IMPOSSIBLE:
            yield row


def rows() -> list[Row]:
    """Few rows that have every pair: the one with the most new pairs is next, the earlier one of equals."""
    candidates = list(possible())
    missing = set().union(*(row.pairs() for row in candidates))
    chosen: list[Row] = []
    while missing:
        best = max(candidates, key=lambda row: len(row.pairs() & missing))
        chosen.append(best)
        missing -= best.pairs()
    return sorted(chosen, key=astuple)
