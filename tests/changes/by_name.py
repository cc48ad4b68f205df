"""A cell as it goes to another process, and its outcome as it comes back: by names and texts, because a change has
functions of its own.

Not in `__main__`, which another process does not have.
"""

from __future__ import annotations

from tests.changes.cell import Cell, play
from tests.changes.changes import CHANGES
from tests.changes.moments import MOMENTS

Name = tuple[str, str, str, str, int]


def name_of(cell: Cell) -> Name:
    """What `play_named` finds it by."""
    return cell.change.name, cell.moment.name, cell.way, cell.scope, cell.version


def play_named(name: Name) -> tuple[str, list[str], list[str]]:
    """How the cell ended, its problems, the errors."""
    change = next(each for each in CHANGES if each.name == name[0])
    moment = next(each for each in MOMENTS if each.name == name[1])
    try:
        outcome = play(Cell(change, moment, *name[2:]))
    except Exception as error:  # noqa: BLE001 -- one cell that cannot be played does not end the others
        return "not played", [f"{type(error).__name__}: {error}"], []
    return outcome.ended, outcome.problems, outcome.said
