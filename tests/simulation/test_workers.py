"""Batches that begin in one process and are committed in another, both of which live on: later batches begin without a
take-over.
"""

from __future__ import annotations

import pytest

from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.commit.handover import going_on, phases
from tests.simulation.faults import at_point
from tests.simulation.plans import WORKERS, job_of, storms, varied
from tests.simulation.play import play

pytestmark = pytest.mark.simulation

BATCHES = 3
EVERY = pytest.mark.parametrize(("scope", "version"), [("task", 2), ("batch", 2), ("task", 1), ("batch", 1)])
POINTS = (
    *crash_points.HANDOVER_POINTS[:3],
    "before-decision",
    "after-decision",
    "before-note-ended",
    "after-note-ended",
)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each beginning that was tried without a take-over, whether it went on."""
    found: list[bool] = []
    go_on = going_on.go_on

    def noted(*given: object) -> bool:
        found.append(go_on(*given))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(phases.going_on, "go_on", noted)
    return found


@EVERY
def test_every_batch_but_the_first_goes_on(scope: str, version: int, begun: list[bool]) -> None:
    outcome = play(1, scope=scope, transaction_version=version, batches=BATCHES, job="workers kept")

    assert not outcome.problems, outcome.problems
    assert (outcome.runs, outcome.repaired) == (1, 0)
    assert begun == [True] * (BATCHES - 1)


@EVERY
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_point_of_a_later_batch_every_row_is_there_once(point: str, scope: str, version: int) -> None:
    outcome = play(
        2,
        at_point(point, "kill driver", 2),
        scope=scope,
        transaction_version=version,
        batches=BATCHES,
        job="workers kept",
    )

    assert not outcome.problems, (outcome.problems, outcome.errors)
    assert outcome.fired.get("kill", 0) > 0, outcome.fired


@pytest.mark.parametrize("seed", range(4))
def test_whatever_strikes_every_row_is_there_once(seed: int) -> None:
    storm = "brief" + WORKERS
    batches, job = job_of(storm)
    scope, version = varied(seed)

    outcome = play(seed, storms()[storm], scope=scope, transaction_version=version, batches=batches, job=job)

    assert not outcome.problems, (outcome.problems, outcome.errors[-3:])
