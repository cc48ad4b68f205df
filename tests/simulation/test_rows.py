"""Rows that no history reaches: each has a reason, no reason is of a row that does not exist, and a reached row
shows.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import coverage, report
from tests.simulation.aimed import AIM
from tests.simulation.campaign import Totals, carry_out
from tests.simulation.coverage import Lead, Row
from tests.simulation.plans import AtRows
from tests.simulation.rows import NOT_REACHED

pytestmark = pytest.mark.simulation


def test_every_reason_is_of_a_row_that_exists() -> None:
    assert set(NOT_REACHED) <= set(coverage.all_rows())
    assert all(reason.endswith(".") for reason in NOT_REACHED.values())


def test_a_row_without_a_reason_is_named_on_the_page() -> None:
    page = report.page([Totals("random", "x")])
    assert "| commit | 1 | `REWRITING RewriteFailed` |" in page
    assert "`GATHERING Sealed`" in page and "NO REASON IS KNOWN." in page


def test_a_reason_is_marked_as_wrong_where_its_row_was_reached() -> None:
    row = Row("commit", "REWRITING", "RewriteFailed")
    totals = Totals("random", "x", leads=Counter({Lead(row, "BROKEN"): 1}))

    assert report.wrong_reasons(totals.leads) == [row]
    assert "REACHED, so this is not true" in report.page([totals])
    assert "REACHED ALTHOUGH" in report.summary(totals, 1)


# What random histories reach now and then, and these always do.
WANTED = {
    "a task fails, a hand-over gives the batch up": [Row("commit", "GATHERING", "TasksFailed")],
    "a task fails, a hand-over gives the batch up, in one transaction": [Row("batch commit", "WRITING", "TasksFailed")],
    "the decision's answer held up": [Row("commit", "DECISION_UNKNOWN", "DecisionDurable")],
    "the repair's record has its answer held up": [Row("commit", "RECORD_UNKNOWN", "DecisionDurable")],
    "the repair's record held up for longer than it may be open": [Row("commit", "RECORD_UNKNOWN", "DecisionRefused")],
    "the right to write the ledger gone before the repair's record": [Row("commit", "RECORDING", "DecisionRefused")],
    "produce refused for now": [
        Row("sequences", "SENDING", "Enqueue"),
        Row("sequences", "RETRYING", "Enqueue"),
        Row("sequences", "RETRYING", "OutOfOrder"),
    ],
    "a produce request too many": [
        Row("sequences", "SENDING", "OutOfOrder"),
        Row("sequences", "REJECTED", "OutOfOrder"),
    ],
    # A broker that knows the producer takes nothing behind a batch that it has refused.
    "produce done and refused for good": [Row("sequences", "REJECTED", "Acknowledged")],
    "a produce request too many, the next one's answer lost": [Row("sequences", "REJECTED", "NotDelivered")],
    "all produce requests refused for good": [Row("sequences", "REJECTED", "Rejected")],
}

PLAYED = {"produce refused for now": 24}
"""How many histories, where six do not have all of them."""


@pytest.mark.parametrize("name", WANTED)
def test_a_history_that_is_aimed_at_rows_reaches_them(name: str) -> None:
    of = AtRows(10_000, 0)
    plans = [plan for plan in of.plans() if plan.storm == AIM + name][: PLAYED.get(name, 6)]
    of.plans = lambda: iter(plans)  # type: ignore[method-assign]
    *_, (totals, _) = carry_out(of)

    assert not totals.bad, [each.outcome.problems for each in totals.bad]
    assert set(WANTED[name]) <= set(coverage.rows_of(totals.leads))
