"""The brokers and the worlds are those of tests/pyspark_kafka_eos/commit."""

from tests.pyspark_kafka_eos.commit.conftest import broker, world

__all__ = ["broker", "world"]
