"""The transactional ids of a pipeline as one picture, though others change them while it is put together. On a cluster in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from connector.client.cluster import Cluster
from connector.commit.proof import Proof, prove
from connector.machines.commit.per_task import Verdict
from connector.model import Seal
from connector.operations import leftovers
from tests.commit.fakes import PIPELINE, World, decision_of


def test_a_slot_that_somebody_else_commits_meanwhile_is_never_open_beside_a_proof_of_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator who saw both was told that an open transaction is not decided, and the command ended in an error."""
    seal = world.slot(0)
    decision = decision_of([seal])
    world.decide(decision)

    def another_terminal(cluster: Cluster, seals: Sequence[Seal], *, settle_ms: int) -> dict[int, Proof]:
        world.end(seal, commit=True)
        return prove(cluster, seals, settle_ms=settle_ms)

    monkeypatch.setattr(leftovers, "prove", another_terminal)

    found = leftovers.find_leftovers(world.cluster, PIPELINE, decision)

    (slot,) = [each for each in found if each.seal == seal]
    assert (slot.verdict, slot.state, slot.unsettled) == (Verdict.COMMITTED, "CompleteCommit", False)
