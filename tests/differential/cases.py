"""The scenarios of a pair of brokers as pytest's parameters, and what a test of one asserts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential import compare
from tests.differential.brokers import PAIRS, Brokers, Pair
from tests.differential.known import KNOWN
from tests.differential.script import Scenario, scenarios

JUDGED = [pytest.mark.kafka, pytest.mark.parity]
"""The marks of every file with such tests. A file has one release: its brokers wait most of the time, so files run side
by side.
"""


def cases(*pairs: str) -> list[object]:
    """(pair, scenario) for each scenario that says something on one of these pairs."""
    return list(_cases(pairs))


def _cases(pairs: tuple[str, ...]) -> Iterator[object]:
    for pair in map(PAIRS.__getitem__, pairs):
        for scenario in scenarios():
            if pair.plays(scenario):
                marks = [pytest.mark.slow] if scenario.slow else []
                yield pytest.param(pair, scenario, id=f"{pair.name}, {scenario.name}", marks=marks)


def check(pair: Pair, scenario: Scenario, brokers: Brokers) -> None:
    """Both answer the script alike, or as `known` has it."""
    embedded, real = brokers.transcripts(scenario, pair)
    assert real, "the scenario asked nothing"
    found = compare.differences(embedded, real)
    problems = compare.problems(pair.name, scenario.name, found, KNOWN)
    # The text goes along: pytest does not take this module's assertions apart.
    assert problems == [], "\n".join(map(str, problems))
