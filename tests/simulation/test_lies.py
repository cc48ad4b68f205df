"""Nothing follows from what a broker of three says that cannot know: some requests of the sweep; all with `long`."""

from __future__ import annotations

import pytest

from tests.simulation.lies import LIES, PHASES, READERS, Cell, cells, play_cell

pytestmark = pytest.mark.simulation

SOME = [
    Cell(phase, lie, ("task", "batch")[number % 2], 1 + number // 2 % 2, 20 + 23 * number)
    for phase in (*PHASES, *READERS)
    for number, lie in enumerate(LIES)
]


@pytest.mark.parametrize("cell", SOME, ids=str)
def test_a_lie_at_a_request_loses_doubles_and_breaks_nothing(cell: Cell) -> None:
    outcome, _ = play_cell(cell)

    assert outcome.problems == [], outcome.errors


def test_each_lie_takes_effect_in_some_of_them() -> None:
    assert {cell.lie for cell in SOME if play_cell(cell)[1]} == set(LIES)


@pytest.mark.long
@pytest.mark.parametrize("phase", [*PHASES, *READERS])
def test_a_lie_at_any_request_loses_doubles_and_breaks_nothing(phase: str) -> None:
    wrong = {
        str(cell): outcome.problems
        for cell in cells(3)
        if cell.phase == phase and (outcome := play_cell(cell)[0]).problems
    }

    assert wrong == {}
