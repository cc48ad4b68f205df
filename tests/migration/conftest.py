"""The two brokers that the comparison runs on, one after the other, and the one run of the job on each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connector.local import NEWEST_KAFKA
from tests.parity.brokers import EMBEDDED, Broker, started


@pytest.fixture(scope="session", params=(EMBEDDED, f"kafka-{NEWEST_KAFKA}"))
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The embedded broker, and the newest Kafka."""
    with started(request.param) as running:
        yield running
