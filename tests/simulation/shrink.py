"""The shortest list of strikes that still goes wrong in the same way: delta debugging.

Owns: which strikes are left out, and what counts as the same problem.
Does not know: what a strike is, or how a history is played.
Invariants:
- What it returns was played and went wrong in the same way.
- Where it was not stopped by `most`, no single strike of what it returns can be left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

MOST_PLAYS = 400
"""A storm has some hundred strikes, of which two or three matter: a hundred plays. Half would stop in the middle of a
storm with a thousand slow messages; double takes minutes for nothing.
"""


def problem_class(problems: Sequence[str]) -> str:
    """What went wrong without which rows, how many and when; empty where nothing did. An empty list or mapping in the
    text stays empty: rows that are missing and rows that are there twice are two classes.
    """
    if not problems:
        return ""
    filled = re.sub(r"\{[^{}]+\}|\[[^\[\]]+\]", "(..)", problems[0])
    return re.sub(r"\d+(\.\d+)?", "n", filled.split(":")[0])


def shrink(strikes: Sequence[T], fails: Callable[[Sequence[T]], bool], most: int = MOST_PLAYS) -> tuple[list[T], int]:
    """The strikes without those that are not needed, and how often a history was played. `fails` plays one and tells
    whether it goes wrong in the same way; it is not asked for `strikes` themselves.
    """
    left, parts, plays = list(strikes), 2, 0
    if left and fails([]):
        return [], 1
    while len(left) > 1 and plays < most:
        size = -(-len(left) // parts)
        for at in range(0, len(left), size):
            fewer = left[:at] + left[at + size :]
            plays += 1
            if fewer and fails(fewer):
                left, parts = fewer, max(parts - 1, 2)
                break
            if plays >= most:
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(left))
    return left, plays + 1
