"""A history as data: what is recorded plays the same trace again."""

from __future__ import annotations

import pytest

from tests.simulation import faults
from tests.simulation.brief import brief
from tests.simulation.faults import storm
from tests.simulation.history import (
    MESSAGE,
    SLOW,
    STEP,
    TIME,
    History,
    Strike,
    play_history,
    play_recorded,
)
from tests.simulation.plans import varied
from tests.simulation.play import Faults, Scene
from tests.simulation.shrink import problem_class, shrink
from tests.simulation.world import World

pytestmark = pytest.mark.simulation


def digest(trace: str) -> str:
    """Without the number of steps: a storm looks once more whether it is over, which is a step in which nothing
    happens.
    """
    return trace.split(":")[1]


@pytest.mark.parametrize(
    ("profile", "seed"), [*((brief, seed) for seed in (0, 1, 4, 9, 11, 13)), (storm, 9), (storm, 12)]
)
def test_what_a_storm_did_plays_the_same_trace_again_without_the_storm(profile: Faults, seed: int) -> None:
    scope, version = varied(seed)
    outcome, history = play_recorded(seed, profile, scope=scope, transaction_version=version)

    again = play_history(History.parse(history.text()))

    assert digest(again.trace) == digest(outcome.trace)
    assert {kind: times for kind, times in outcome.fired.items() if kind != "aimed"} == again.fired


def test_the_storms_of_these_seeds_strike_in_every_way_that_is_recorded() -> None:
    ways = set()
    for seed in (0, 1, 4, 9, 11, 13):
        scope, version = varied(seed)
        _, history = play_recorded(seed, brief, scope=scope, transaction_version=version)
        ways |= {TIME if each.at == TIME else MESSAGE if each.at == MESSAGE else "point" for each in history.strikes}
    assert ways == {TIME, MESSAGE, "point"}


def test_a_strike_that_is_left_out_changes_nothing_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = (Strike("kill executor", TIME, 0.05, 1), Strike("clock", "before-decision", 1, 2))
    last = Strike("kill driver", TIME, 0.3)
    notes: list[tuple[object, ...]] = []
    real = World.note

    def note(world: World, *what: object) -> None:
        notes.append((world.now, *what))
        real(world, *what)

    monkeypatch.setattr(World, "note", note)
    played = []
    for strikes in ((*first, last), first):
        notes.clear()
        assert not play_history(History(0, "task", 2, strikes)).problems
        played.append(list(notes))

    with_it, without = ([each for each in story if each[0] < last.number] for story in played)  # type: ignore[operator]
    assert with_it == without
    assert len(without) > 50
    assert played[0] != played[1], "the last strike did not happen"


def test_a_strike_within_a_strike_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(scene: Scene) -> None:
        faults.STRIKES["reset"](scene)
        faults.STRIKES["clock"](scene)

    def once(scene: Scene) -> None:
        scene.world.schedule(0.02, lambda: faults.STRIKES["both"](scene))

    monkeypatch.setitem(faults.STRIKES, "both", both)
    before = dict(faults.STRIKES)
    outcome, history = play_recorded(0, once, scope="task", transaction_version=2)

    assert [each.kind for each in history.strikes] == ["both"]
    assert outcome.fired["clock"] == 1 and outcome.fired["reset"] > 0
    assert play_history(history).fired == outcome.fired
    assert before == faults.STRIKES, "recording has left its own strikes behind"


def test_a_strike_at_a_step_happens_there() -> None:
    history = History(0, "task", 2, (Strike("kill driver", STEP, 100),), batches=1)
    outcome = play_history(history)
    assert not outcome.problems
    assert outcome.runs == 2


def test_a_message_is_as_slow_as_the_list_has_it() -> None:
    usual = play_history(History(0, "task", 2))
    slow = play_history(History(0, "task", 2, (Strike(SLOW, MESSAGE, 40, 3),)))
    assert slow.fired["slow message"] == 1
    assert slow.seconds > usual.seconds + 4


# ---- the list alone


def test_a_history_is_the_same_after_it_was_written_and_read() -> None:
    history = History(
        7,
        "batch",
        1,
        (Strike("clock", TIME, 0.1 + 0.2, 5), Strike("cut", "after-end", 2, 2**32 - 1)),
        batches=3,
    )
    assert History.parse(history.text()) == history


@pytest.mark.parametrize("needed", [set(), {3}, {0, 19}, {4, 5, 11}])
def test_only_what_is_needed_is_left(needed: set[int]) -> None:
    left, plays = shrink(range(20), lambda some: needed <= set(some))
    assert set(left) == needed
    assert plays < 100


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            "twice or foreign {}, missing {'b0.s1.r0': 1}",
            "twice or foreign {}, missing {'b1.s0.r2': 1, 'x': 2}",
            True,
        ),
        (
            "twice or foreign {'b0.s1.r0': 1}, missing {}",
            "twice or foreign {}, missing {'b0.s1.r0': 1}",
            False,
        ),
        ("not finished after 3600 s and 77 steps: []", "not finished after 12.5 s and 1 steps: ['x']", True),
        ("stopped by InternalError: x", "stopped by PipelineConflict: x", False),
        ("4 records are open", "12 records are open", True),
    ],
)
def test_two_problems_are_of_one_class_where_only_rows_and_numbers_differ(one: str, other: str, same: bool) -> None:
    assert (problem_class([one]) == problem_class([other])) is same
    assert problem_class([]) == ""
