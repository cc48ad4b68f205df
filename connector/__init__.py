"""Exactly-once micro-batches from Spark to Kafka.

from connector import ExactlyOnceWriter

df.writeStream.foreachBatch(ExactlyOnceWriter(options)).option("checkpointLocation", path).start()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.version import __version__

__all__ = ["ExactlyOnceListener", "ExactlyOnceWriter", "__version__"]

if TYPE_CHECKING:
    from connector.spark.foreach_batch import ExactlyOnceWriter
    from connector.spark.listener import ExactlyOnceListener


def __getattr__(name: str) -> Any:
    # Importing a module of this package on an executor, or in the broker, must not pull in Spark.
    if name == "ExactlyOnceWriter":
        from connector.spark.foreach_batch import ExactlyOnceWriter

        return ExactlyOnceWriter
    if name == "ExactlyOnceListener":
        from connector.spark.listener import ExactlyOnceListener

        return ExactlyOnceListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
