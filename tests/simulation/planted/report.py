"""The page of the planted bugs, from the table and the known seeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.simulation.planted.known import KNOWN
from tests.simulation.planted.table import BUGS, UNREACHED

PAGE = Path(__file__).parents[3] / "evidence" / "planted-bugs.md"

_HEAD = """# Planted bugs

`make planted` writes this page. Each row is a change of one function of the product (`tests/simulation/planted/table.py`).
With the change the judge refuses the history of the seed; without it the same history passes. `test_planted.py` plays both.

CPU seconds: of the whole hunt, from the first seed to the one that was refused.
"""


def page() -> str:
    """The page's text."""
    return "\n".join([_HEAD, *_caught(), "", *_unreached(), ""])


def _caught() -> Iterator[str]:
    yield f"{sum(bug.name in KNOWN for bug in BUGS)} of {len(BUGS)} are caught.\n"
    yield "| bug | takes back | scope | faults | seed | CPU s | the judge's first word |"
    yield "|---|---|---|---|---|---|---|"
    for bug in BUGS:
        known = KNOWN.get(bug.name)
        found = f"{known.seed} | {known.cpu_s} | {_short(known.problem)}" if known else "not caught | | "
        yield f"| {bug.name} | {bug.takes_back} | {', '.join(filter(None, (bug.scope, bug.job)))} | {bug.recipe} | {found} |"


def _short(problem: str) -> str:
    text = problem.replace("|", "/").replace("\n", " ")
    return text if len(text) < 110 else text[:107] + "..."


def _unreached() -> Iterator[str]:
    yield "## What the faults do not reach\n"
    yield "| rule or finding | what is missing |"
    yield "|---|---|"
    for rule, missing in UNREACHED:
        yield f"| {rule} | {missing} |"
