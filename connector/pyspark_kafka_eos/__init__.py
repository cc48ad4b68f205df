"""Exactly-once micro-batches from Spark to Kafka.

    from pyspark_kafka_eos import ExactlyOnceWriter

    df.writeStream.foreachBatch(ExactlyOnceWriter(options)).option("checkpointLocation", path).start()

Spark finds `format("kafka_eos")` here by itself, because this module's name begins with `pyspark_`. It imports the
module in a Python worker on every look-up of a data source. So importing is cheap and raises nothing, and a name is
loaded on its first use.

The public names are those of `__all__` here, the classes of `kafka_core.errors`, and `__all__` of
`embedded_kafka`. Everything else may change from one version to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_core.lazy import on_first_use
from pyspark_kafka_eos.version import __version__

if TYPE_CHECKING:
    from pyspark_kafka_eos.spark.data_source import DefaultSource
    from pyspark_kafka_eos.spark.metrics.display import display_progress
    from pyspark_kafka_eos.spark.metrics.listener import ExactlyOnceListener
    from pyspark_kafka_eos.spark.metrics.prometheus import serve_metrics
    from pyspark_kafka_eos.spark.registration import register
    from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter
    from pyspark_kafka_eos.spark.token_logins import delegation_token_options

__all__ = [
    "DefaultSource",
    "ExactlyOnceListener",
    "ExactlyOnceWriter",
    "__version__",
    "delegation_token_options",
    "display_progress",
    "register",
    "serve_metrics",
]

# Imported on first use: an import on an executor, or in the broker, must not load Spark.
__getattr__, __dir__ = on_first_use(
    globals(),
    {
        "DefaultSource": "pyspark_kafka_eos.spark.data_source",
        "ExactlyOnceWriter": "pyspark_kafka_eos.spark.sink.foreach_batch",
        "ExactlyOnceListener": "pyspark_kafka_eos.spark.metrics.listener",
        "display_progress": "pyspark_kafka_eos.spark.metrics.display",
        "serve_metrics": "pyspark_kafka_eos.spark.metrics.prometheus",
        "delegation_token_options": "pyspark_kafka_eos.spark.token_logins",
        "register": "pyspark_kafka_eos.spark.registration",
    },
)
