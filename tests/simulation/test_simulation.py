"""The product's own code in a simulated world: one seed is one trace, and no history tears, loses or repeats a
batch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.faults import EVERY, PROFILES, STRIKES, after_batch, at_point, killed_at, storm
from tests.simulation.plans import varied
from tests.simulation.play import Outcome, Scene, play
from tests.simulation.short import THIS_REQUEST

pytestmark = pytest.mark.simulation

ROOT = Path(__file__).parents[2]
SEEDS = range(40)
"""Always the same, which take half a minute; `make simulate FIRST=...` plays others."""

WILD_SEEDS = range(6)

BOTH = pytest.mark.parametrize("scope", ["task", "batch"])


def is_right(outcome: Outcome) -> None:
    assert not outcome.problems, f"{outcome.problems}; errors {outcome.errors[-3:]}; {outcome.command}"


@BOTH
@pytest.mark.parametrize("version", [1, 2])
def test_without_faults_every_row_is_there_once_after_one_run(scope: str, version: int) -> None:
    outcome = play(1, scope=scope, transaction_version=version)
    is_right(outcome)
    assert (outcome.runs, outcome.repaired, outcome.errors) == (1, 0, [])


@pytest.mark.parametrize(("scope", "profile"), [("task", "storm"), ("batch", "storm"), ("batch", "wild")])
def test_a_seed_means_one_trace_in_every_process_and_under_every_hash_seed(scope: str, profile: str) -> None:
    code = (
        "import logging; logging.disable(logging.CRITICAL)\n"
        f"from tests.simulation.faults import {profile}\nfrom tests.simulation.play import play\n"
        f"print([play(seed, {profile}, scope={scope!r}).trace for seed in range(4)])"
    )
    traces = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]  # fmt: skip
    assert traces[0] == traces[1]
    assert len(set(traces[0].split(","))) == 4


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_strikes_every_row_is_there_once_in_the_end(seed: int) -> None:
    scope, version = varied(seed)
    is_right(play(seed, storm, scope=scope, transaction_version=version))


@pytest.mark.parametrize("seed", WILD_SEEDS)
@pytest.mark.parametrize("profile", ["wild", "lossy"])
def test_whatever_happens_to_requests_markers_disk_and_cluster_every_row_is_there_once(profile: str, seed: int) -> None:
    scope, version = varied(seed)
    outcome = play(seed, PROFILES[profile], scope=scope, transaction_version=version)
    assert not outcome.problems, (
        f"{outcome.problems}; errors {outcome.errors[-3:]}; {outcome.command} --profile {profile}"
    )


@pytest.mark.parametrize(("seed", "scope", "version"), [(248, "task", 2)])
def test_what_was_found_once_stays_mended(seed: int, scope: str, version: int) -> None:
    is_right(play(seed, storm, scope=scope, transaction_version=version))


@BOTH
@pytest.mark.parametrize("victim", ["driver", "executor0", "broker"])
@pytest.mark.parametrize("part", range(6))
def test_killed_at_a_step_of_the_job_every_row_is_there_once(scope: str, victim: str, part: int) -> None:
    # A prime, so that the steps of the six parts are spread over all requests of a batch.
    for step in range(7 + 11 * part, 560, 67):
        outcome = play(0, killed_at(step, victim), scope=scope)
        assert not outcome.problems, (step, outcome.problems, outcome.errors)


@pytest.mark.parametrize("point", ["after-decision", "before-end", "after-end", "decision-written"])
@pytest.mark.parametrize("strike", ["kill driver", "kill broker", "zombie", "reset"])
def test_struck_at_a_point_of_the_commit_every_row_is_there_once(point: str, strike: str) -> None:
    outcome = play(5, at_point(point, strike))
    assert not outcome.problems, outcome.problems
    assert sum(outcome.fired.values()) > 0, "the strike did not happen"


def test_every_kind_of_strike_takes_effect() -> None:
    for name, strike in STRIKES.items():

        def one(scene: Scene, strike: object = strike) -> None:
            scene.world.schedule(0.02, lambda: strike(scene))  # type: ignore[operator]

        outcome = play(3, one)
        assert not outcome.problems, (name, outcome.problems)
        assert sum(outcome.fired.values()) > 0, name


@pytest.mark.parametrize("name", [name for name in EVERY if name not in STRIKES and name != THIS_REQUEST])
def test_every_kind_that_is_drawn_takes_effect(name: str) -> None:
    def drawn(scene: Scene) -> None:
        EVERY[name](scene)
        after_batch(0, EVERY[name])(scene)

    for seed in range(8):
        outcome = play(seed, drawn, scope=("batch", "task")[seed % 2], transaction_version=1)
        assert not outcome.problems, (name, seed, outcome.problems, outcome.errors)
        if sum(outcome.fired.values()) > 0:
            break
    else:
        pytest.fail("it took no effect in eight histories")
