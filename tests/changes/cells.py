"""Which cells there are, and which make no sense, each with its reason.

Owns: the two lists, and the choice of a few cells of many.
Does not know: how a cell is played, what is right.
Invariants:
- A cell is in exactly one of the two lists: nothing is skipped without a reason on the page.
- A choice of a few has every pair of a change and a moment, way, scope or version that the whole has, as long as there
  is room.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.changes.cell import Cell
from tests.changes.changes import CHANGES, Change
from tests.changes.moments import MOMENTS
from tests.changes.small_spark import DF_WRITE, FOREACH, FORMAT

WAYS = (FORMAT, FOREACH, DF_WRITE)
SCOPES = ("task", "batch")
VERSIONS = (2, 1)
LIVE = frozenset({"running", "planned", "begun", "written"})
"""Moments in which the run goes on."""

FOR_A_START = frozenset({
    "source: another cluster, fewer records", "source: another cluster, more records", "sink: another cluster",
    "another time zone of the session",
})  # fmt: skip
"""Changes of other kinds that a run does not see, either."""


@dataclass(frozen=True)
class Senseless:
    """`why`: for the page. `holds`: of which cells."""

    why: str
    holds: Callable[[Cell], bool]


SENSELESS = (
    Senseless(
        "`df.write` has no source of ours and no checkpoint here: its rows come from a scheduler that knows which rows a job has",
        lambda cell: cell.way == DF_WRITE
        and (cell.change.name.startswith("source") or cell.change.kind == "checkpoint" or cell.change.name == "another group"),
    ),
    Senseless(
        "`df.write` reads no source of ours: nothing of it is planned and not yet read",
        lambda cell: cell.way == DF_WRITE and cell.moment.name == "planned",
    ),
    Senseless(
        "what `df.write` knows of its jobs is in the ledger of the cluster that it writes to: a write to another one is another write",
        lambda cell: cell.way == DF_WRITE and cell.change.name == "sink: another cluster",
    ),
    Senseless(
        "a `df.write` under another pipeline name is another write, which may write the same rows",
        lambda cell: cell.way == DF_WRITE and cell.change.name == "another pipeline name",
    ),
    Senseless(
        "scope=task has no turns",
        lambda cell: cell.scope == "task" and cell.change.name.startswith("turns"),
    ),
    Senseless(
        "with scope=batch the decision is the commit: no timeout aborts it. `decided` is the same",
        lambda cell: cell.scope == "batch" and cell.moment.name == "timed out",
    ),
    Senseless(
        "what a query is given when it is started stays as it is while it runs",
        lambda cell: cell.moment.name in LIVE
        and (cell.change.kind in ("query", "way", "checkpoint") or cell.change.name in FOR_A_START),
    ),
    Senseless(
        "that way is the cell's own",
        lambda cell: cell.change.kind == "way" and cell.change.name.endswith(cell.way),
    ),
)  # fmt: skip


def every(changes: Sequence[Change] = CHANGES) -> list[Cell]:
    """All cells, also those that make no sense."""
    return [
        Cell(change, moment, way, scope, version)
        for change, moment, way, scope, version in itertools.product(changes, MOMENTS, WAYS, SCOPES, VERSIONS)
    ]


def senseless(cell: Cell) -> str | None:
    """Why it makes no sense; None where it does."""
    return next((each.why for each in SENSELESS if each.holds(cell)), None)


def sensible(changes: Sequence[Change] = CHANGES) -> list[Cell]:
    """Those to play."""
    return [cell for cell in every(changes) if senseless(cell) is None]


def whole(changes: Sequence[Change] = CHANGES) -> list[Cell]:
    """Every change in every moment, way and scope. The transaction version takes turns, so that each pair of it
    comes.
    """
    kept: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in sensible(changes):
        kept.setdefault((cell.change.name, cell.moment.name, cell.way, cell.scope), []).append(cell)
    return [cells[number % len(cells)] for number, cells in enumerate(kept.values())]


def few(cells: Iterable[Cell], most: int, seed: str = "") -> list[Cell]:
    """At most so many of the cells, with as many pairs of their parts as that gives: each next one has the most that no
    one before has. The seed chooses among equals.
    """
    left = sorted(cells, key=lambda cell: hashlib.blake2b(f"{seed}{cell}".encode()).digest())
    uncovered = {pair for cell in left for pair in _pairs(cell)}
    chosen: list[Cell] = []
    while left and len(chosen) < most:
        best = max(left, key=lambda cell: len(uncovered & _pairs(cell)))
        if not uncovered & _pairs(best):
            break
        chosen.append(best)
        uncovered -= _pairs(best)
        left.remove(best)
    return chosen


def _pairs(cell: Cell) -> set[tuple[str, ...]]:
    parts = (cell.change.name, cell.moment.name, cell.way, cell.scope, str(cell.version))
    return set(itertools.combinations(parts, 2))
