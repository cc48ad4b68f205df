"""A campaign that is kept in a file goes on where it was stopped, and comes to what it would have come to."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation import campaign, report, saved
from tests.simulation.campaign import Played, Totals
from tests.simulation.history import History, play_history
from tests.simulation.plans import AtRandom

pytestmark = pytest.mark.simulation


def test_what_was_stopped_and_continued_comes_to_what_was_played_at_once(tmp_path: Path) -> None:
    of = AtRandom(6, 40, "plain")
    *_, (whole, _) = campaign.carry_out(of)

    *_, (stopped, _) = itertools.islice(campaign.carry_out(AtRandom(6, 40, "plain")), 3)
    saved.save(tmp_path, stopped)
    found = saved.load(saved.file_of(tmp_path, stopped))
    assert (found.seeds, found.fired, found.leads) == (3, stopped.fired, stopped.leads)
    *_, (continued, _) = campaign.carry_out(AtRandom(6, 40, "plain"), totals=found)

    for one in (whole, continued):
        one.cpu_s = one.wall_s = 0.0
    assert continued == whole
    assert next(iter(saved.all_of(tmp_path))).first == 40


def test_a_campaign_is_over_with_so_many_faults() -> None:
    *_, (totals, _) = campaign.carry_out(AtRandom(50, 40, "plain"), faults=10)
    assert sum(totals.fired.values()) >= 10
    assert (totals.seeds < 50, totals.left_out) == (True, 0)


def test_a_campaign_leaves_the_process_as_it_was() -> None:
    """Tests of other files run in the same process, and some count what is logged."""
    before = logging.root.manager.disable
    assert [totals.seeds for totals, _ in campaign.carry_out(AtRandom(2, 40, "plain"))] == [1, 2]
    campaign.look_again(Totals("random", "x", "brief", 7))

    assert logging.root.manager.disable == before


def test_what_went_wrong_is_kept_and_looked_at_again(tmp_path: Path) -> None:
    history = History(0, "task", 2, batches=1)
    outcome = replace(play_history(history), problems=["a rule that was wrong: 3"])
    totals = Totals("random", "x", "brief", 7, bad=[Played(history, outcome, Counter(), 0.5)])
    saved.save(tmp_path, totals)

    found = saved.load(saved.file_of(tmp_path, totals))
    assert found.bad == totals.bad
    assert "a rule that was wrong" in report.page([found]).split("does so no more")[0]
    campaign.look_again(found)

    assert not found.bad and found.mended == totals.bad
    saved.save(tmp_path, found)
    page = report.page(list(saved.all_of(tmp_path)))
    assert "a rule that was wrong" in page.split("does so no more")[1]
