"""Real Kafka brokers on this machine, for the demo, the tests and the benchmarks.

Owns: finding Java, fetching Kafka's jars, starting and stopping brokers as child processes.
Does not know: our client, our embedded broker, Spark's API.  What runs here is Apache Kafka itself, so that the product
is judged by somebody else's code.
Invariant: whatever is started here ends with the process that started it, also when that is killed by SIGKILL.
"""

from connector.local.kafka import (
    NEWEST_KAFKA,
    NEWEST_ZOOKEEPER_KAFKA,
    OLDEST_KAFKA,
    LocalKafka,
)
from connector.local.zookeeper import LocalZooKeeper

__all__ = ["NEWEST_KAFKA", "NEWEST_ZOOKEEPER_KAFKA", "OLDEST_KAFKA", "LocalKafka", "LocalZooKeeper"]
