"""An embedded, single-node Kafka broker: the server side of the idempotent producer and of transactions.

    from embedded_kafka import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        ... kafka.bootstrap_servers ...

Owns: sockets in, partition logs, the transaction and group coordinators, injected faults; Apache Kafka itself beside it
(`real`).
Does not know: `pyspark_kafka_eos` (neither imports the other), Spark. One event loop runs everything, so
state needs no locks. Code that has to wait is a coroutine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_core.lazy import on_first_use

if TYPE_CHECKING:
    from embedded_kafka.embedded import EmbeddedKafka
    from embedded_kafka.remote import FaultHandle
    from embedded_kafka.security.prepared import Security

__all__ = ["EmbeddedKafka", "FaultHandle", "Security"]

# Imported on first use: pytest imports the plugin, and so this package, in every run.
__getattr__, __dir__ = on_first_use(
    globals(),
    {
        "EmbeddedKafka": "embedded_kafka.embedded",
        "FaultHandle": "embedded_kafka.remote",
        "Security": "embedded_kafka.security.prepared",
    },
)
