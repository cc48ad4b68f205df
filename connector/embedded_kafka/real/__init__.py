"""Real Kafka brokers on this machine, for the demo, the tests and the benchmarks.

Owns: finding Java, fetching Kafka's jars, starting and stopping brokers as child processes.
Does not know: our client, our embedded broker, Spark's API.  What runs here is Apache Kafka itself, so the
product is tested against independent code.
Invariant: every process started here ends with the process that started it, even after its SIGKILL.
"""

from embedded_kafka.real.kafka import NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA, OLDEST_KAFKA, LocalKafka
from embedded_kafka.real.zookeeper import LocalZooKeeper

__all__ = ["NEWEST_KAFKA", "NEWEST_ZOOKEEPER_KAFKA", "OLDEST_KAFKA", "LocalKafka", "LocalZooKeeper"]
