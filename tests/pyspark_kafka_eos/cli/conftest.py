"""Rights that are taken away for one test, and the broker in both transaction versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from tests.support.brokers import AnyKafka


class Denying(Protocol):
    """What the `denying` fixture gives."""

    def __call__(self, operation: str, resource: str, name: str = "*") -> None: ...


@pytest.fixture
def denying(kafka: AnyKafka) -> Iterator[Denying]:
    """Takes rights away on the embedded broker; all are back when the test ends."""
    assert isinstance(kafka, EmbeddedKafka)
    try:
        yield kafka.deny
    finally:
        kafka.allow_all()


@pytest.fixture(params=["newest", "zookeeper"])
def broker(request: pytest.FixtureRequest) -> AnyKafka:
    """Transaction version 2, then 1."""
    name = {"newest": "kafka", "zookeeper": "kafka_zk"}[request.param]
    return request.getfixturevalue(name)  # type: ignore[no-any-return]
