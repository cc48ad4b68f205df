"""The transactional ids of a pipeline as one picture, though others change them while it is put together. On a cluster
in memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_core.protocol import messages as m
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.noted_fates import Look
from pyspark_kafka_eos.commit.proof import Proof, prove
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations import leftovers
from pyspark_kafka_eos.operations.decision_checks import newest_decision
from pyspark_kafka_eos.operations.ending import commit
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.fakes import OUTPUT, PIPELINE, RUN_OPTIONS, World, decision_of


def test_a_slot_that_somebody_else_commits_meanwhile_is_never_open_beside_a_proof_of_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator who saw both was told that an open transaction is not decided, and the command ended in an error."""
    seal = world.slot(0)
    decision = decision_of([seal])
    world.decide(decision)

    def another_terminal(
        cluster: Cluster, seals: Sequence[Seal], *, settle_ms: int, look: Look | None
    ) -> dict[int, Proof]:
        world.end(seal, commit=True)
        return prove(cluster, seals, settle_ms=settle_ms, look=look)

    monkeypatch.setattr(leftovers, "prove", another_terminal)

    found = leftovers.find_leftovers(world.cluster, PIPELINE, decision)

    (slot,) = [each for each in found if each.seal == seal]
    assert (slot.verdict, slot.state, slot.unsettled) == (Outcome.COMMITTED, "CompleteCommit", False)


@pytest.mark.parametrize("both", [True, False], ids=["no marker at all", "one marker missing"])
def test_records_that_no_client_can_end_are_named_with_the_operators_command(world: World, both: bool) -> None:
    """Their producer id is no id's any more, so the ids' own states showed nothing of them."""
    seal = world.slot(0, {0: 1, 1: 1})
    decision = decision_of([seal])
    world.decide(decision)
    for where in OUTPUT if both else OUTPUT[1:]:
        world.kafka.forget_marker(where)
    world.end(seal, commit=True)
    world.kafka.expire(seal.transactional_id)

    found = leftovers.find_leftovers(world.cluster, PIPELINE, decision)

    (slot,) = [each for each in found if each.seal == seal]
    assert slot.unsettled and slot.holds == ()
    assert slot.verdict is (Outcome.UNKNOWN if both else Outcome.COMMITTED)
    told = leftovers.story(slot)
    assert "no client can write it" in told
    assert "abort --topic out --partition 1 --start-offset 0`" in told
    assert ("--partition 0" in told) is both

    (done,) = commit(world.cluster, world.ledger, [seal.transactional_id])
    assert done.outcome == "unknown" and "--partition 1 --start-offset 0`" in done.detail


def test_an_operator_asks_for_the_ids_of_one_pipeline_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 pipelines on a cluster, doctor had 6,000 ids sent to it twice, for six of its own."""
    world.decide(decision_of([world.slot(0)]))
    world.kafka.take_over("another:0")
    asked: list[str | None] = []
    build = world.cluster.build

    def noted(request: type[Any], **fields: Any) -> m.Message:
        if request is m.ListTransactionsRequest:
            asked.append(fields["transactional_id_pattern"])
        return build(request, **fields)

    monkeypatch.setattr(world.cluster, "build", noted)

    found = {each.transactional_id for each in leftovers.find_leftovers(world.cluster, PIPELINE)}
    list(newest_decision(world.cluster, SinkOptions.parse(RUN_OPTIONS)))

    assert found == {f"{PIPELINE}:driver", f"{PIPELINE}:0"}
    assert len(asked) == 2
    for pattern in asked:
        assert pattern is not None
        assert all(re.fullmatch(pattern, each) for each in (*found, f"{PIPELINE}:batch"))
        assert not re.fullmatch(pattern, "another:0")
