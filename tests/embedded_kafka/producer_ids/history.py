"""What several owners drew from one node, and the judge of it.

Ids are kept as runs (first, last) in the order in which they were handed out: a process draws hundreds of thousands.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

Run = tuple[int, int]


def runs_of(ids: Sequence[int]) -> list[Run]:
    """Consecutive ids become one run."""
    runs: list[Run] = []
    for number in ids:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def problems(drawn: Mapping[str, Sequence[Run]]) -> list[str]:
    """Everything that must not be: an id twice, in one owner or in two, or an id below an earlier one."""
    found: list[str] = []
    for owner, runs in drawn.items():
        for earlier, following in itertools.pairwise(runs):
            if following[0] <= earlier[1]:
                found.append(f"{owner} went back from {earlier} to {following}")
    everything = sorted((run, owner) for owner, runs in drawn.items() for run in runs)
    for (left, first), (right, second) in itertools.pairwise(everything):
        if right[0] <= left[1]:
            found.append(f"{first} has {left} and {second} has {right}")
    return found
