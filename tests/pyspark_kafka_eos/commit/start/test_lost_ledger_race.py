"""An older run that still decides is never taken for a ledger that lost decisions. On a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.operations import decision_checks
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.fakes import LEDGER, PIPELINE, World, decision_of

OPTIONS = SinkOptions.parse(
    {"kafka.bootstrap.servers": "memory:1", "pipeline": PIPELINE, "topic": "out", "ledger.topic": LEDGER}
)


def decide(world: World, batch_id: int) -> None:
    """An older run commits a batch of one slot."""
    seal = world.slot(0)
    world.decide(decision_of([seal], batch_id=batch_id))
    world.end(seal, commit=True)


@pytest.fixture
def another_batch_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The older run's next batch is decided and ended right after coordinators were first asked for slots; how often
    they were.
    """
    real = Transactions.describe
    asked = 0

    def describe(self: Transactions, names: Collection[str], *arguments: Any, **named: Any) -> Any:
        nonlocal asked
        found = real(self, names, *arguments, **named)
        if f"{PIPELINE}:0" in names:
            asked += 1
            if asked == 1:
                decide(world, 1)
        return found

    decide(world, 0)
    monkeypatch.setattr(Transactions, "describe", describe)
    return lambda: asked


def test_a_run_that_starts_beside_it_is_not_refused(world: World, another_batch_meanwhile: Callable[[], int]) -> None:
    """Found by the simulation: --seed 248 --scope task --transaction-version 2."""
    driver = PerTask(Run(world.cluster, OPTIONS, "query"))

    assert driver.start(2) is None

    # Judged after all: once the older run is fenced.
    assert another_batch_meanwhile() >= 2


def test_the_doctor_finds_no_loss(world: World, another_batch_meanwhile: Callable[[], int]) -> None:
    found = list(decision_checks.newest_decision(world.cluster, OPTIONS))

    assert another_batch_meanwhile() >= 1
    assert [each.status for each in found] == ["ok"] * len(found)
    assert "batch 1 of query query" in found[0].seen
