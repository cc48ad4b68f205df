"""The dense storm: many short faults in each batch, the job goes on, and the list of strikes plays the same history."""

from __future__ import annotations

import pytest

from tests.simulation.dense import dense
from tests.simulation.history import MESSAGE, REQUEST, History, play_history, play_recorded
from tests.simulation.short import ODDS
from tests.simulation.world import PARTS

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize(("seed", "scope", "version"), [(600, "task", 2), (601, "batch", 1)])
def test_dense_strikes_messages_and_requests_and_plays_again_from_its_list(seed: int, scope: str, version: int) -> None:
    outcome, history = play_recorded(seed, dense, scope=scope, transaction_version=version, batches=3)
    assert not outcome.problems, outcome.problems
    assert {MESSAGE, REQUEST} <= {each.at for each in history.strikes}
    fired = {kind: times for kind, times in outcome.fired.items() if kind not in PARTS}
    assert sum(fired.values()) > 20 * 3
    assert len({kind for kind in ODDS if any(each.startswith(kind) for each in fired)}) > 4

    again = play_history(History.parse(history.text()))

    assert again.trace.split(":")[1] == outcome.trace.split(":")[1]
    assert {kind: times for kind, times in again.fired.items() if kind not in PARTS} == fired
