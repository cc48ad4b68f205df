"""Jobs of many tasks in virtual time: what each further slot costs, and what strikes among hundreds of them."""

from __future__ import annotations

import pytest

from tests.simulation.cluster import BROKERS
from tests.simulation.many import UNDISTURBED, further, play_many, strikes

pytestmark = pytest.mark.simulation

SLOTS = 64


@pytest.mark.parametrize(
    ("scope", "strike"),
    # With scope=batch there is one end.
    [("task", each) for each in strikes(SLOTS)] + [("batch", each) for each in strikes(SLOTS) if "ends" not in each],
)
def test_whatever_strikes_among_many_slots_every_row_is_there_once(scope: str, strike: str) -> None:
    outcome = play_many(SLOTS, strike, scope=scope, watched=True)

    assert not outcome.problems, (outcome.problems, outcome.errors)
    assert sum(outcome.fired.values()) == (strike != UNDISTURBED), outcome.fired


def test_a_further_slot_adds_three_requests_to_a_batch_and_one_lookup_to_a_run() -> None:
    few, many = (play_many(slots, UNDISTURBED) for slots in (SLOTS // 4, SLOTS))

    added = {api: rate for api, rate in further((SLOTS // 4, few), (SLOTS, many)).items() if rate}
    connections = many.requests["ApiVersions"] - few.requests["ApiVersions"]

    # Of the two batches the first one looks for the coordinator of its id.
    assert {api: rate for api, rate in added.items() if api != "ApiVersions"} == {
        "InitProducerId": 1,
        "Produce": 1,
        "EndTxn": 1,
        "FindCoordinator": 0.5,
    }
    # More slots are coordinated by more of the brokers, each of which has connections of its own.
    assert connections <= 2 * BROKERS


def test_a_run_that_finds_many_open_transactions_has_them_all_aborted_at_once() -> None:
    """One after another each took 22 ms: its markers, and the pause before it is asked for again."""
    few, many = (play_many(slots, "driver killed before the decision") for slots in (SLOTS, 4 * SLOTS))

    assert not few.problems and not many.problems
    assert many.seconds - few.seconds < 0.5
