"""The judge of the simulation refuses what is wrong: bugs that are planted in the product are seen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.shell import CommitShell
from pyspark_kafka_eos.model import Seal
from tests.simulation.faults import at_point
from tests.simulation.planted.table import bug
from tests.simulation.play import Scene, play

pytestmark = pytest.mark.simulation


def test_a_decided_batch_that_the_next_run_writes_again_is_seen() -> None:
    with bug("a decided batch is written again after a restart").here():
        outcome = play(0, at_point("after-end", "kill driver"))

    assert outcome.runs == 2
    assert any("twice or foreign {'b0.s0.r0': 1" in problem for problem in outcome.problems)


def test_a_decided_slot_that_nobody_ends_is_seen() -> None:
    with bug("only the first slot is ended").here():
        outcome = play(0)

    assert any("missing {'b0.s1.r0': 1" in problem for problem in outcome.problems)


def test_a_history_that_does_not_come_to_its_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_self: CommitShell, seals: Sequence[Seal]) -> Sequence[ev.Event]:
        return [ev.SlotUnanswered(seal.slot) for seal in seals]

    monkeypatch.setattr(CommitShell, "_end", refused)

    assert "not finished" in play(0, batches=1, most_steps=10_000).problems[0]


def test_a_clock_that_jumps_by_more_than_the_brokers_hour_is_no_needless_run() -> None:
    """Found by 500 fresh seeds: an hour and five seconds. The broker refuses the timestamp, as Kafka does, and the next
    run goes on.
    """
    scene_has: list[int] = []

    def faults(scene: Scene) -> None:
        def jump(name: str) -> None:
            if name == "before-check" and not scene_has:
                scene_has.append(1)
                scene.job.driver.clock_offset_ns += 3605 * 10**9
                scene.world.fired["clock"] += 2

        scene.at_crash_points(jump)

    outcome = play(0, faults)

    assert outcome.runs == 2
    assert any("INVALID_TIMESTAMP" in error for error in outcome.errors)
    assert not outcome.problems
