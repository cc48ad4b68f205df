"""Fixtures that pytest finds automatically where this package is installed.

Owns: one broker and one cluster per test session, where tests ask for them, and their end.
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


@pytest.fixture(scope="session")
def embedded_kafka_cluster() -> Iterator[EmbeddedKafka]:
    """Three Kafka brokers for this test session; topics are created when they are first used."""
    from embedded_kafka.embedded import EmbeddedKafka

    with EmbeddedKafka(brokers=3) as kafka:
        yield kafka
