"""The judge of the simulation refuses what is wrong: bugs that are planted in the product are seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from connector.commit.driver import PipelineDriver
from connector.commit.shell import CommitShell
from connector.machines.commit import per_task as cm
from connector.model import Seal
from tests.simulation.faults import at_point
from tests.simulation.play import play

pytestmark = pytest.mark.simulation


def test_a_decided_batch_that_the_next_run_writes_again_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = PipelineDriver.start

    def forgetful(self: PipelineDriver, *arguments: Any) -> None:
        real(self, *arguments)

    monkeypatch.setattr(PipelineDriver, "start", forgetful)

    outcome = play(0, at_point("after-end", "kill driver"))

    assert outcome.runs == 2
    assert any("twice or foreign {'b0.s0.r0': 1" in problem for problem in outcome.problems)


def test_a_decided_slot_that_nobody_ends_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = CommitShell._end

    def lazy(self: CommitShell, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        return [*real(self, seals[:1]), *(cm.SlotEnded(seal.slot) for seal in seals[1:])]

    monkeypatch.setattr(CommitShell, "_end", lazy)

    outcome = play(0)

    assert any("missing {'b0.s1.r0': 1" in problem for problem in outcome.problems)


def test_a_history_that_does_not_come_to_its_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_self: CommitShell, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        return [cm.SlotUnanswered(seal.slot) for seal in seals]

    monkeypatch.setattr(CommitShell, "_end", refused)

    assert "not finished" in play(0, batches=1, most_steps=10_000).problems[0]
