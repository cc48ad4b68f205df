"""A pipeline lives for long without one refusal, whatever brokers forget and whoever shares its partition of the
ledger.
"""

from __future__ import annotations

import pytest

from tests.simulation.long_life import live
from tests.simulation.planted.known import KNOWN
from tests.simulation.planted.table import bug
from tests.simulation.play import Outcome

pytestmark = pytest.mark.simulation

EVERY = pytest.mark.parametrize(
    ("scope", "version", "handed_over"),
    [("task", 2, False), ("task", 1, True), ("batch", 1, False), ("batch", 2, True)],
    ids=["task, foreachBatch", "task, format", "batch, foreachBatch", "batch, format"],
)


def judged(outcome: Outcome) -> None:
    assert outcome.problems == [], outcome.errors
    # It was no calm life.
    for kind in ("forgotten marker out", "forgotten marker exactly-once-ledger", "neighbours", "kill"):
        assert outcome.fired[kind] > 0, outcome.fired


@EVERY
def test_a_pipeline_lives_without_a_refusal(scope: str, version: int, handed_over: bool) -> None:
    judged(live(50, 7, scope=scope, transaction_version=version, handed_over=handed_over))


@pytest.mark.long
@EVERY
def test_a_pipeline_lives_for_a_thousand_batches(scope: str, version: int, handed_over: bool) -> None:
    judged(live(1_000, 1, scope=scope, transaction_version=version, handed_over=handed_over))


def test_a_product_that_forgets_where_a_mending_left_an_id_is_refused() -> None:
    name, batches = "what a mending left is not carried on", 20
    seed = KNOWN[name].seed
    assert live(batches, seed).problems == []

    with bug(name).here():
        (problem,) = live(batches, seed).problems

    assert "PipelineConflict" in problem and "the ledger has lost a later decision" in problem
