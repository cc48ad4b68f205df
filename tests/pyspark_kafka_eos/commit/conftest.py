"""Every test of the commit runs on both transaction versions: on a broker, or on the embedded one in process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_kafka_eos import crash_points
from tests.pyspark_kafka_eos.commit.fakes import World, skipping_clock
from tests.pyspark_kafka_eos.commit.node_kafka import NodeKafka
from tests.support.brokers import AnyKafka


@pytest.fixture(params=["newest", "zookeeper"])
def broker(request: pytest.FixtureRequest) -> AnyKafka:
    """Transaction version 2, then 1."""
    name = {"newest": "kafka", "zookeeper": "kafka_zk"}[request.param]
    return request.getfixturevalue(name)  # type: ignore[no-any-return]


@pytest.fixture(params=[2, 1], ids=["version2", "version1"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A broker in process with one pipeline, in transaction version 2, then 1. Nothing is waited for."""
    with skipping_clock(), NodeKafka(request.param) as kafka:
        yield World(kafka)
    crash_points.arm("")
