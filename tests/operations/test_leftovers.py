"""The transactional ids of a pipeline as one picture, though others change them while it is put together. On a cluster in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from connector.client.cluster import Cluster
from connector.commit.proof import Proof, prove
from connector.machines.commit.events import Verdict
from connector.model import Seal
from connector.operations import leftovers
from connector.operations.ending import commit
from tests.commit.fakes import OUTPUT, PIPELINE, World, decision_of


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


@pytest.mark.parametrize("both", [True, False], ids=["no marker at all", "one marker missing"])
def test_records_that_no_client_can_end_are_named_with_the_operators_command(
    world: World, both: bool
) -> None:
    """Their producer id is no id's any more, so the ids' own states showed nothing of them."""
    seal = world.slot(0, {0: 1, 1: 1})
    decision = decision_of([seal])
    world.decide(decision)
    for where in OUTPUT if both else OUTPUT[1:]:
        world.kafka.forget_marker(where)
    world.end(seal, commit=True)
    world.kafka.transactions.expire(seal.transactional_id)

    found = leftovers.find_leftovers(world.cluster, PIPELINE, decision)

    (slot,) = [each for each in found if each.seal == seal]
    assert slot.unsettled and slot.holds == ()
    assert slot.verdict is (Verdict.UNKNOWN if both else Verdict.COMMITTED)
    told = leftovers.story(slot)
    assert "no client can write it" in told
    assert "abort --topic out --partition 1 --start-offset 0`" in told
    assert ("--partition 0" in told) is both

    (done,) = commit(world.cluster, world.ledger, [seal.transactional_id])
    assert done.outcome == "unknown" and "--partition 1 --start-offset 0`" in done.detail
