"""`make changes`: every change in every moment, way and scope; writes evidence/changes.md.

    python -m tests.changes [--write] [--change NAME ...] [--jobs 2] [--pairs] [--everything] [--within SECONDS]

Exit 1 where a cell does not hold.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterable, Sequence

from tests.changes import by_name, report
from tests.changes.cell import Cell, Outcome, counted, play
from tests.changes.cells import few, sensible, whole
from tests.changes.changes import CHANGES


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, tell, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.changes")
    parser.add_argument("--write", action="store_true", help="write evidence/changes.md")
    parser.add_argument("--change", nargs="*", default=[], help="changes, or kinds of them; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--pairs", action="store_true", help="as few cells as have every pair of two parts")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds, after which no cell begins")
    parser.add_argument("--everything", action="store_true", help="each cell in both transaction versions")
    given = parser.parse_args(arguments)
    changes = report.changes_of(given.change)
    cells = (sensible if given.everything else whole)(changes)
    cells = few(cells, len(cells)) if given.pairs else cells
    began, outcomes = time.monotonic(), []
    for outcome in played(cells, given.jobs):
        outcomes.append(outcome)
        if time.monotonic() - began > given.within:
            break
        if outcome.problems:
            print(f"{outcome.cell}: {outcome.text}: {'; '.join(outcome.problems)}", flush=True)
    numbers = ", ".join(f"{number} {word}" for word, number in sorted(counted(outcomes).items()))
    print(f"{len(outcomes)} cells in {time.monotonic() - began:.0f} s: {numbers}")
    if given.write:
        if len(changes) < len(CHANGES):
            parser.error("a page is of all changes")
        report.write(outcomes)
    return int(any(each.problems for each in outcomes))


def played(cells: Sequence[Cell], jobs: int) -> Iterable[Outcome]:
    """The outcomes, in the order of the cells."""
    if jobs == 1:
        yield from map(play, cells)
        return
    # Not forked from this process: it may have threads by now.
    with multiprocessing.get_context("forkserver").Pool(jobs) as pool:
        yield from map(_with_cell, pool.imap(by_name.play_named, map(by_name.name_of, cells)), cells)


def _with_cell(seen: tuple[str, list[str], list[str]], cell: Cell) -> Outcome:
    return Outcome(cell, *seen)


if __name__ == "__main__":
    sys.exit(main())
