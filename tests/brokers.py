"""The broker that a test runs against: the embedded one, or with `--brokers real` Apache Kafka itself.

Owns: what tests may ask of either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class AnyKafka(Protocol):
    """What `LocalKafka` and `EmbeddedKafka` have in common."""

    @property
    def bootstrap_servers(self) -> str:
        """For a client's configuration."""

    @property
    def data_dir(self) -> Path:
        """Where the broker keeps its data."""
