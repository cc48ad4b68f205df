"""Campaigns: what they play does not depend on the processes, what is never reached is known, and what is new is
varied.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_core import table
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.machine import per_task
from tests.simulation import campaign, plans, report
from tests.simulation.campaign import Totals
from tests.simulation.coverage import Lead, Row, all_leads, all_rows, noted, rows_of
from tests.simulation.history import History, Strike, drawn_kinds, play_history
from tests.simulation.plans import CAMPAIGNS, AtPoints, AtRandom, AtSteps, Campaign, InPairs, Plan, Varied
from tests.simulation.planted.table import bug
from tests.simulation.play import play
from tests.simulation.shrink import problem_class

pytestmark = pytest.mark.simulation

ROOT = Path(__file__).parents[2]


def test_every_move_of_a_machine_is_counted_with_where_it_led() -> None:
    with noted() as leads:
        value, _ = per_task.Commit().handle(ev.TasksFailed("why"))
        value.handle(ev.AbortFinished())
        with pytest.raises(Exception, match="not allowed"):
            value.handle(ev.AllAlive())
    gathering, aborting = (
        Row("commit", "GATHERING", "TasksFailed"),
        Row("commit", "ABORTING", "AbortFinished"),
    )
    assert leads == {Lead(gathering, "ABORTING"): 1, Lead(aborting, "ABORTED"): 1}
    assert rows_of(leads) == {gathering: 1, aborting: 1}
    assert per_task.step is table.step, "counting goes on after its context"


def test_a_batch_without_faults_reaches_known_rows_and_no_others_of_its_machine() -> None:
    with noted() as leads:
        assert not play(0, batches=1).problems
    reached = {row for row in rows_of(leads) if row.machine == "commit"}
    assert reached == {
        Row("commit", state, event)
        for state, event in [
            ("GATHERING", "Sealed"),
            ("GATHERING", "TasksFinished"),
            ("CHECKING", "AllAlive"),
            ("DECIDING", "DecisionDurable"),
            ("FINISHING", "SlotEnded"),
        ]
    }
    assert set(leads) <= set(all_leads())
    missing = report.never_reached(leads)
    assert set(missing) | set(rows_of(leads)) == set(all_rows())
    assert Row("commit", "RECORD_UNKNOWN", "DecisionRefused") in missing


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_plans_of_a_campaign_are_the_same_every_time(name: str) -> None:
    def drawn() -> list[Plan]:
        return list(itertools.islice(CAMPAIGNS[name](40, 7).plans(), 40))

    assert drawn() == drawn()
    assert len({plan.history for plan in drawn()}) == 40
    # The first plan of a sweep is the same step in both.
    assert drawn() != list(itertools.islice(CAMPAIGNS[name](40, 8).plans(), 40))


def test_every_kind_of_strike_is_aimed_at_every_point_and_in_pairs() -> None:
    strikes = [strike for plan in AtPoints(20_000, 0).plans() for strike in plan.history.strikes]
    assert {(each.kind, each.at) for each in strikes} == set(itertools.product(drawn_kinds(), plans.ALL_POINTS))
    pairs = [plan.history.strikes for plan in InPairs(2_000, 0).plans()]
    assert {strike.kind for pair in pairs for strike in pair} == set(drawn_kinds())
    assert {len(pair) for pair in pairs} == {2, 3}
    seconds = {pair[1].at for pair in pairs}
    assert seconds == {*plans.ROUND_DECISION, *plans.ROUND_MENDING}


def test_each_victim_is_killed_over_the_whole_length_of_a_batch() -> None:
    strikes = [(plan.history.scope, plan.history.strikes[0]) for plan in AtSteps(200, 0).plans()]
    for scope, victim in itertools.product(("task", "batch"), plans.VICTIMS):
        steps = [strike.number for of, strike in strikes if (of, strike.kind) == (scope, victim)]
        assert min(steps) <= 20 and max(steps) > 200, (scope, victim, steps)


def test_what_reached_something_new_is_kept_and_varied() -> None:
    of = Varied(40, 0)
    drawn = of.plans()
    kept = History(5, "task", 2, (Strike("clock", "after-end", 1, 1), Strike("reset", "before-end", 1, 1)))
    first = [next(drawn) for _ in range(10)]
    assert all(plan.storm for plan in first)
    new = {Lead(Row("commit", "GATHERING", "Sealed"), "GATHERING")}
    of.learn(History(9, "task", 2), set())
    of.learn(kept, new)

    varied = [plan.history for plan in drawn]

    assert of.corpus == [kept]
    assert len(varied) == 30 and not any(plan.storm for plan in drawn)
    assert all(history.scope == "task" for history in varied)
    assert len({history.strikes for history in varied}) > 10
    assert len(set(varied)) > 25 and kept not in varied
    assert sum(bool(set(history.strikes) & set(kept.strikes)) for history in varied) > 20
    assert sum(history.seed == kept.seed for history in varied) > 10


def played_by(of: Campaign, jobs: int) -> tuple[Totals, list[str]]:
    traces = []
    for totals, played in campaign.carry_out(of, jobs=jobs):  # noqa: B007 -- the last one is used
        traces.append(played.outcome.trace)
    return totals, traces


def test_two_processes_play_what_one_plays() -> None:
    one, traces = played_by(Varied(12, 100), 1)
    two, again = played_by(Varied(12, 100), 2)
    assert traces == again
    assert (one.fired, one.leads, one.seeds) == (two.fired, two.leads, 12)


def test_what_is_left_out_for_lack_of_time_is_counted() -> None:
    (totals, _), *more = list(campaign.carry_out(AtRandom(30, 0), seconds=0.0))
    assert not more
    assert (totals.seeds, totals.left_out) == (1, 29)
    assert "NOT PLAYED: 29 seeds" in report.summary(totals, 1)


class AroundTheDecision(Campaign):
    """The driver killed once, at each point around the decision of one batch."""

    name = "around the decision"

    def plans(self) -> Iterator[Plan]:
        for point in plans.ROUND_DECISION:
            yield Plan(History(0, "task", 2, (Strike("kill driver", point, 1, 0),), batches=1))


def test_a_history_that_goes_wrong_is_found_kept_and_shortened() -> None:
    with bug("a decided batch is written again after a restart").here():
        totals, _ = played_by(AroundTheDecision(0, 0), 1)

        assert totals.bad
        bad = totals.bad[0]
        assert play_history(bad.history).problems == bad.outcome.problems
        shorter, _ = campaign.shortened(bad)
    assert shorter.strikes == bad.history.strikes, "one strike cannot be less"
    page = report.page([totals])
    assert f"| around the decision | {problem_class(bad.outcome.problems)}" in page
    assert "Nothing." not in page.split("does so no more")[0]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_list_of_strikes_is_played_by_one_command() -> None:
    history = History(0, "task", 2, (Strike("kill driver", "after-decision", 1),))
    done = command("--history", history.text())
    assert done.returncode == 0, done.stderr
    assert "after-decision (1.)  kill driver" in done.stdout
    assert "2 runs" in done.stdout and "nothing is wrong" in done.stdout


def test_a_campaign_that_is_not_played_to_its_end_fails() -> None:
    done = command("--campaign", "random", "--seeds", "30", "--within", "0", "--fresh", "a commit")
    assert done.returncode == 1, done.stderr
    assert "NOT PLAYED: 29 seeds" in done.stdout
