"""Parts of `make chaos` that fit into the test run: who is killed at which point, and rounds at random moments.

All cells of a rung are played together, so one broker's death serves them all; each cell is a test of its own.
"""

from __future__ import annotations

import functools
import random

import pytest

from tests.chaos import rounds
from tests.chaos.matrix import RUNGS, Cell, Result, Rung, cells, play

pytestmark = [pytest.mark.kafka, pytest.mark.real]

CLASSIC, NEWEST, TWO_PHASE = RUNGS
# `make chaos` plays every cell on every rung. Here: all at once on the newest, and late where time decides.
DECIDED = Cell("before-end", 1, "driver", late=True)
UNDECIDED = Cell("after-seal", 1, "driver", late=True)
PLAYED: tuple[tuple[Rung, tuple[Cell, ...]], ...] = (
    (CLASSIC, (DECIDED, UNDECIDED)),
    (NEWEST, (*cells(late=[False]), DECIDED, UNDECIDED)),
    (TWO_PHASE, (DECIDED, UNDECIDED)),
)


@functools.cache
def results_of(rung: Rung) -> dict[Cell, Result]:
    """Played once, when the first test of the rung asks."""
    wanted = {each.name: found for each, found in PLAYED}[rung.name]
    return {result.cell: result for result in play(rung, wanted)}


@pytest.mark.parametrize(
    ("rung", "cell"),
    [pytest.param(rung, cell, id=f"{rung.name}, {cell.name}") for rung, found in PLAYED for cell in found],
)
def test_whoever_is_killed_each_record_is_there_once(rung: Rung, cell: Cell) -> None:
    result = results_of(rung)[cell]

    assert result.fired
    assert not result.problems, [(ended.exitcode, ended.error) for ended in result.runs]


def test_late_after_the_decision_means_repair_except_where_nothing_times_out() -> None:
    assert results_of(CLASSIC)[DECIDED].mended == {"resumed": 1, "repaired": 1, "redone": 0}
    assert results_of(NEWEST)[DECIDED].mended == {"resumed": 1, "repaired": 1, "redone": 0}
    assert results_of(TWO_PHASE)[DECIDED].mended == {"resumed": 1, "repaired": 0, "redone": 0}


def test_killed_at_random_moments_each_record_is_there_once() -> None:
    seed = random.randrange(1_000_000)

    played = rounds.play(NEWEST, range(2), seed)

    assert any(fault.fired for one in played for fault in one.faults), f"seed {seed}: no strike landed"
    assert not [problem for one in played for problem in one.problems], f"seed {seed}"
