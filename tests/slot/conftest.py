"""The brokers and the worlds are those of tests/commit."""

from tests.commit.conftest import broker, world

__all__ = ["broker", "world"]
