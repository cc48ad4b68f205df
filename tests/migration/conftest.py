"""The broker that the comparison runs on: the embedded one. Two connectors are compared, and both see the same
broker.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parity.brokers import EMBEDDED, Broker, started


@pytest.fixture(scope="session", params=(EMBEDDED,))
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One for both connectors."""
    with started(request.param) as running:
        yield running
