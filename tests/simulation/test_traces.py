"""Traces that TLC drew from the model, played by the product."""

from __future__ import annotations

import pytest

from pyspark_kafka_eos.commit.markers import Mender
from tests.simulation.guided import follow
from tests.simulation.traces import CONFIGURATIONS, POINTS, broken_rules, kept, plan_of

pytestmark = pytest.mark.simulation

PLANS = kept()
PLAYED = 4
"""Plans of each configuration that a run of the tests plays; `python -m tests.simulation.guided` plays all."""

_STATE = """
/\\ d = << [ pc |-> "{0}", b |-> 1 ], [ pc |-> "{1}", b |-> 1 ] >>
/\\ led = <<>>
/\\ drv = [ep |-> 0, st |-> "Empty"]
/\\ flight = {2}
/\\ used = [x |-> 0, t |-> {3}, z |-> 0, f |-> 0]

"""


def trace(*states: tuple[str, str, str, int]) -> str:
    return "".join(f"STATE_{number} ==" + _STATE.format(*each) for number, each in enumerate(states, 1))


def test_a_trace_is_read_as_who_goes_on_where_and_what_strikes_before() -> None:
    text = trace(
        ("off", "off", "{}", 0),
        ("check", "off", "{}", 0),
        ("check", "look", "{}", 0),
        ("check", "look", "{}", 1),
        ("decide", "look", "{}", 1),
        ("endDecision", "look", "{}", 1),
        ("unknown", "look", '{<<"drv", 1>>}', 1),
        ("unknown", "dead", '{<<"drv", 1>>}', 1),
    )

    assert plan_of(text) == [
        ["new", "1"],
        ["timeout"],
        ["pass", "0", "before-check"],
        ["pass", "0", "before-decision"],
        ["late"],
        ["pass", "0", "decision-written"],
        ["crash", "1"],
    ]


def test_every_configuration_has_its_plans_and_they_reach_every_point_and_every_fault() -> None:
    assert set(PLANS) == {*CONFIGURATIONS, *broken_rules()}
    events = [event for plans in PLANS.values() for plan in plans for event in plan]
    assert {event[-1] for event in events if event[0] == "pass"} == set(POINTS.values())
    assert {event[0] for event in events} == {
        "pass",
        "new",
        "crash",
        "timeout",
        "forget",
        "lose answer",
        "late",
    }


@pytest.mark.parametrize("configuration", sorted(PLANS))
def test_the_product_keeps_what_the_model_keeps(configuration: str) -> None:
    followed = 0
    for plan in PLANS[configuration][:PLAYED]:
        outcome, events = follow(configuration, plan)
        assert outcome.problems == [], (plan, outcome.problems, outcome.errors)
        followed += events

    assert followed >= sum(map(len, PLANS[configuration][:PLAYED])) / 4


def test_a_rule_that_the_code_lacks_is_seen_in_the_counterexample_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The marker of the last decision is not looked for, so the timeout of the next one takes both."""
    monkeypatch.setattr(Mender, "misses_marker", lambda *_: False)
    (plan,) = PLANS["TaskCommit-no-OwnMarker"]

    outcome, _ = follow("TaskCommit-no-OwnMarker", plan)

    assert outcome.problems[0].startswith("stopped by PipelineConflict")
