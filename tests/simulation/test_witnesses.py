"""Whoever cannot know is not believed: some cells of the matrix of witnesses, and the whole of it with `long`."""

from __future__ import annotations

import pytest

from tests.simulation.witnesses import PLANTED, Cell, cells, play_cell
from tests.support.planting import Planted

pytestmark = pytest.mark.simulation

WHOLE = cells()
SHOWS = {
    "leaders of an older epoch are believed": ("a leader that was replaced without noticing", "task"),
    # With one transaction for each task its end is answered, and the marker says that the followers have all.
    "a high watermark is taken for the end of the log": ("a leader whose high watermark lags", "batch"),
}


def held(cell: Cell) -> None:
    outcome, _ = play_cell(cell)
    assert outcome.problems == [], outcome.errors


@pytest.mark.parametrize("cell", WHOLE[::9], ids=str)
def test_nothing_follows_from_an_answer_of_one_who_cannot_know(cell: Cell) -> None:
    held(cell)


@pytest.mark.long
@pytest.mark.parametrize("cell", WHOLE, ids=str)
def test_nothing_ever_follows_from_an_answer_of_one_who_cannot_know(cell: Cell) -> None:
    held(cell)


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name for planted in PLANTED])
def test_a_product_that_believes_him_is_refused(planted: Planted) -> None:
    cell = next(
        each for each in WHOLE if (each.way, each.scope) == SHOWS[planted.name] and each.moment.name == "decided"
    )
    held(cell)

    with planted.here():
        outcome, answered = play_cell(cell)

    assert outcome.problems and answered
