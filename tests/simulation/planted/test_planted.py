"""Each planted bug is refused under its known seed, and the same history without the bug passes."""

from __future__ import annotations

import pytest

from tests.simulation.planted.known import KNOWN
from tests.simulation.planted.plant import play_healthy, play_with
from tests.simulation.planted.recipes import RECIPES
from tests.simulation.planted.report import PAGE, page
from tests.simulation.planted.table import BUGS, Bug

pytestmark = pytest.mark.simulation

BY_NAME = pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])


@BY_NAME
def test_the_judge_refuses_it_and_nothing_else(bug: Bug) -> None:
    seed = KNOWN[bug.name].seed
    assert play_with(bug, seed).problems
    healthy = play_healthy(bug, seed)
    assert not healthy.problems, (healthy.problems, healthy.errors)


def test_there_are_thirty_bugs_and_every_one_has_been_caught() -> None:
    assert len(BUGS) >= 30
    assert {bug.name for bug in BUGS} == set(KNOWN)
    assert {bug.recipe for bug in BUGS} <= set(RECIPES)


def test_the_page_is_the_one_that_the_table_gives() -> None:
    assert PAGE.read_text() == page()
