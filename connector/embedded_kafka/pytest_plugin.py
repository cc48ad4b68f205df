"""Fixtures that pytest finds automatically where this package is installed.

Owns: one broker per test session, and its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from embedded_kafka.embedded import EmbeddedKafka


@pytest.fixture(scope="session")
def embedded_kafka() -> Iterator[EmbeddedKafka]:
    """A Kafka broker for this test session; topics are created when they are first used."""
    # Not at the top: pytest loads plugins for every run, also where no test needs a broker.
    from embedded_kafka.embedded import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        yield kafka
