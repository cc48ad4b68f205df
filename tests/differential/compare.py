"""Two transcripts of one scenario side by side: where they differ, and whether that is known.

Owns: what counts as a difference, and what a list of known ones has to fulfil.
Does not know: brokers; which differences are known (`known`).
Invariants: an answer that only one broker gave is a difference; a known difference that does not occur is a problem
too, so that the list tells the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.differential.play import Step

NOT_THERE = "(nothing)"


@dataclass(frozen=True)
class Difference:
    """One value of one answer. `path` leads to it; lists of different lengths are compared as a whole."""

    step: str
    path: str
    embedded: Any
    real: Any

    def __str__(self) -> str:
        return f"{self.step}: {self.path}: embedded {self.embedded!r}, real {self.real!r}"


@dataclass(frozen=True)
class Known:
    """A difference that is meant. Pair, scenario, step and path are patterns (`*`), several as a tuple.

    In every scenario that the pattern names, and that the pair plays, it has to occur at one step at least.
    """

    pairs: str
    scenarios: tuple[str, ...]
    steps: tuple[str, ...]
    path: str
    reason: str

    def concerns(self, pair: str, scenario: str) -> bool:
        """Whether it has to occur there."""
        return fnmatchcase(pair, self.pairs) and any(fnmatchcase(scenario, one) for one in self.scenarios)

    def covers(self, difference: Difference) -> bool:
        """Whether this is it."""
        return fnmatchcase(difference.path, self.path) and any(fnmatchcase(difference.step, one) for one in self.steps)


def differences(embedded: Iterable[Step], real: Iterable[Step]) -> list[Difference]:
    """All of them, in the order of the steps."""
    ours, theirs = dict(embedded), dict(real)
    found: list[Difference] = []
    for step in dict.fromkeys([*ours, *theirs]):
        found += _between(step, "", ours.get(step, NOT_THERE), theirs.get(step, NOT_THERE))
    return found


def problems(pair: str, scenario: str, found: Iterable[Difference], known: Iterable[Known]) -> list[str]:
    """What is wrong with a scenario: differences that nobody knows, and known ones that are gone."""
    concerned = [one for one in known if one.concerns(pair, scenario)]
    occurred: set[int] = set()
    said = []
    for difference in found:
        covering = [number for number, one in enumerate(concerned) if one.covers(difference)]
        occurred.update(covering)
        if not covering:
            said.append(str(difference))
    for number, one in enumerate(concerned):
        if number not in occurred:
            said.append(f"this difference is gone, take it off the list: {one.steps} {one.path}: {one.reason}")
    return said


def _between(step: str, path: str, embedded: Any, real: Any) -> Iterator[Difference]:
    if isinstance(embedded, dict) and isinstance(real, dict):
        for key in dict.fromkeys([*embedded, *real]):
            inner = f"{path}.{key}" if path else str(key)
            yield from _between(step, inner, embedded.get(key, NOT_THERE), real.get(key, NOT_THERE))
    elif isinstance(embedded, list) and isinstance(real, list) and len(embedded) == len(real):
        for number, (mine, other) in enumerate(zip(embedded, real, strict=True)):
            yield from _between(step, f"{path}[{number}]", mine, other)
    elif embedded != real:
        yield Difference(step, path, embedded, real)
