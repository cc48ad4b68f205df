"""One broker of three: whatever happens to it, the history is right in the end, and no run of the query ends for it."""

from __future__ import annotations

import pytest

from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from tests.simulation import one_broker as given
from tests.simulation.cluster import BROKERS
from tests.simulation.faults import at_point
from tests.simulation.play import Outcome, Scene, play
from tests.simulation.watch import OUTPUT

pytestmark = pytest.mark.simulation

SCOPES = pytest.mark.parametrize("scope", ["task", "batch"])
VERSIONS = pytest.mark.parametrize("version", [1, 2])


def is_right(outcome: Outcome, fired: str) -> None:
    assert not outcome.problems, (outcome.problems, outcome.errors)
    assert outcome.fired.get(fired, 0) > 0, f"it did not happen: {outcome.fired}"


@SCOPES
@pytest.mark.parametrize("node_id", range(BROKERS))
@pytest.mark.parametrize("kind", ["broker killed", "broker frozen", "broker cut off"])
def test_a_broker_that_is_gone_for_long_ends_no_run(kind: str, node_id: int, scope: str) -> None:
    def strike(scene: Scene) -> None:
        does = {
            "broker killed": scene.broker.kill_one,
            "broker frozen": scene.broker.freeze_one,
            "broker cut off": scene.broker.cut_off,
        }[kind]
        does(node_id, 12.0, noticed=True)

    outcome = play(3, at_point("before-check", strike), scope=scope)

    is_right(outcome, kind)
    assert outcome.errors == []


@SCOPES
@VERSIONS
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("topic", [OUTPUT, DEFAULT_LEDGER_TOPIC])
def test_what_no_follower_had_and_nobody_was_told_of_is_written_again(
    topic: str, told: bool, version: int, scope: str
) -> None:
    outcome = play(
        4,
        lambda scene: given.unacknowledged_tail(scene, topic, 1, told=told),
        scope=scope,
        transaction_version=version,
    )

    is_right(outcome, "unacknowledged tail lost")
    assert outcome.errors == []


@SCOPES
@pytest.mark.parametrize("share", [0.01, 1.0])
def test_an_unclean_election_loses_what_it_took_and_nothing_else(share: float, scope: str) -> None:
    outcome = play(7, at_point("before-decision", lambda scene: given.lost_tail(scene, 0, share)), scope=scope)

    is_right(outcome, "tail lost in an election")
