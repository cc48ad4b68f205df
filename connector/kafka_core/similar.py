"""The names that a misspelt one may stand for, and the question that a message ends with: "did you mean topic?".

Owns: how near two names have to be.
Does not know: whose names they are.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ALIKE = 0.6
"""Of difflib's measure, and its default. With half of it every name is near some other; with 0.9 only one letter may
be wrong in ten."""


def similar(name: str, known: Iterable[str], *, most: int = 1, alike: float = ALIKE) -> list[str]:
    """Those of `known` that are most similar to `name`, in any case, the nearest first; at most so many."""
    names = {each.lower(): each for each in sorted(known)}
    return [names[found] for found in difflib.get_close_matches(name.lower(), names, n=most, cutoff=alike)]


def did_you_mean(
    name: str, known: Iterable[str], *, joint: str = "; ", prefix: str = "", most: int = 1, alike: float = ALIKE
) -> str:
    """The question for the end of a message, behind `joint`, with `prefix` before each name; empty where no name is
    similar."""
    near = [f"{prefix}{each}" for each in similar(name, known, most=most, alike=alike)]
    return f"{joint}did you mean {' or '.join(near)}?" if near else ""
