"""Decisions that are larger than a record of the ledger, in several records: killed between any two of them, and in
storms.
"""

from __future__ import annotations

import pytest

from tests.simulation.faults import at_point
from tests.simulation.plans import SMALL_LEDGER, job_of, storms, varied
from tests.simulation.play import play

pytestmark = pytest.mark.simulation

EVERY = pytest.mark.parametrize(("scope", "version"), [("task", 2), ("batch", 2), ("task", 1), ("batch", 1)])


@EVERY
@pytest.mark.parametrize("victim", ["kill driver", "kill broker"])
@pytest.mark.parametrize("which", [1, 20])
def test_killed_among_the_records_of_a_decision_every_row_is_there_once(
    victim: str, which: int, scope: str, version: int
) -> None:
    strike = at_point("decision-part-sent", victim, which)

    outcome = play(which, strike, scope=scope, transaction_version=version, job="small ledger")

    assert not outcome.problems, (outcome.problems, outcome.errors)
    assert outcome.fired.get("kill", 0) > 0, outcome.fired


@pytest.mark.parametrize("seed", range(4))
def test_whatever_strikes_every_row_is_there_once(seed: int) -> None:
    storm = "brief" + SMALL_LEDGER
    batches, job = job_of(storm)
    scope, version = varied(seed)

    outcome = play(seed, storms()[storm], scope=scope, transaction_version=version, batches=batches, job=job)

    assert not outcome.problems, (outcome.problems, outcome.errors[-3:])
