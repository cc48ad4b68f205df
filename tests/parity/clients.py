"""The clients that judge, by the names in the table of docs/embedded-broker.md."""

from __future__ import annotations

import confluent_kafka
import kafka

from embedded_kafka.real import NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA

JAVA = f"Java client {NEWEST_KAFKA}"
OLDER_JAVA = f"Java client {NEWEST_ZOOKEEPER_KAFKA}"
LIBRDKAFKA = f"librdkafka {confluent_kafka.libversion()[0]}"
KAFKA_PYTHON = f"kafka-python {kafka.__version__}"
SPARK = "Spark 4.0.0 (JVM)"
