"""The brokers and the worlds are those of tests/pyspark_kafka_eos/commit."""

from __future__ import annotations

import pytest

from pyspark_kafka_eos.client.cluster import Cluster
from tests.pyspark_kafka_eos.commit.conftest import broker, world
from tests.pyspark_kafka_eos.commit.fakes import World

__all__ = ["broker", "one_cluster", "world"]


@pytest.fixture
def one_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command finds the world's cluster."""
    monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_: world.cluster))
