"""Every test of the commit runs on both transaction versions."""

from __future__ import annotations

import pytest

from tests.brokers import AnyKafka


@pytest.fixture(params=["newest", "zookeeper"])
def broker(request: pytest.FixtureRequest) -> AnyKafka:
    """Transaction version 2, then 1."""
    name = {"newest": "kafka", "zookeeper": "kafka_zk"}[request.param]
    return request.getfixturevalue(name)  # type: ignore[no-any-return]
