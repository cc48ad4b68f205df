"""One broker at a time: pytest sorts the tests by the session's parameter, so each broker is started once, when
needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parity.brokers import NAMES, Broker, started
from tests.parity.report import pytest_runtest_setup

__all__ = ["broker", "pytest_configure", "pytest_runtest_setup"]


def pytest_configure(config: pytest.Config) -> None:
    """The marker of a line in the table of docs/embedded-broker.md."""
    config.addinivalue_line("markers", "shows(client, what): the line of the parity table that a test stands for")


@pytest.fixture(scope="session", params=NAMES)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker that is judged."""
    with started(request.param) as running:
        yield running
