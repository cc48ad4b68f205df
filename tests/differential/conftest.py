"""Brokers that the tests of one file share; each is started when a scenario first asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.brokers import Brokers, open_brokers


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with open_brokers() as opened:
        yield opened
