"""Exactly-once micro-batches from Spark to Kafka.

    from connector import ExactlyOnceWriter

    df.writeStream.foreachBatch(ExactlyOnceWriter(options)).option("checkpointLocation", path).start()

The public names are those of `__all__` here, the classes of `connector.errors`, and `__all__` of
`connector.testing`. Everything else may change from one version to the next.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from connector.version import __version__

if TYPE_CHECKING:
    from connector.spark.foreach_batch import ExactlyOnceWriter
    from connector.spark.metrics.display import display_progress
    from connector.spark.metrics.listener import ExactlyOnceListener
    from connector.spark.metrics.prometheus import serve_metrics
    from connector.spark.token_logins import delegation_token_options
    from pyspark_kafka_eos.registration import register

__all__ = [
    "ExactlyOnceListener",
    "ExactlyOnceWriter",
    "__version__",
    "delegation_token_options",
    "display_progress",
    "register",
    "serve_metrics",
]

_HOMES = {
    "ExactlyOnceWriter": "connector.spark.foreach_batch",
    "ExactlyOnceListener": "connector.spark.metrics.listener",
    "display_progress": "connector.spark.metrics.display",
    "serve_metrics": "connector.spark.metrics.prometheus",
    "delegation_token_options": "connector.spark.token_logins",
    # The format's class is there, above this package.
    "register": "pyspark_kafka_eos.registration",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: an import on an executor, or in the broker, must not load Spark.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
