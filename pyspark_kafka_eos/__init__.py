"""The entry point that Spark finds: `format("kafka_eos")`, registered because this module's name begins with
`pyspark_`.

It re-exports the public names of `connector`, so `from pyspark_kafka_eos import ExactlyOnceWriter` needs no
other import.

Owns: the name of the format, the moment its implementation is loaded, and the check that the implementation
is ours.
Does not know: Kafka.
Invariants:
- Importing is cheap and raises nothing: Spark imports this module in a Python worker on every look-up of a
  Python data source.
- The first use raises where another package named `connector` precedes ours on the path.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from connector import (
        ExactlyOnceListener,
        ExactlyOnceWriter,
        __version__,
        delegation_token_options,
        display_progress,
        register,
        serve_metrics,
    )

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


def _require_own_connector() -> None:
    """ImportError with both paths where `connector` is another package."""
    import connector

    if "ExactlyOnceWriter" not in getattr(connector, "__all__", ()):
        found = connector.__file__ or next(iter(connector.__path__), "an unknown place")
        raise ImportError(
            f"another package named connector was imported from {found}; pyspark-kafka-eos needs its own, "
            f"installed beside {Path(__file__).parent}. Remove or rename the other one, or put the directory "
            "of ours before it on sys.path (PYTHONPATH, --py-files).",
            name="connector",
            path=found,
        )


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _require_own_connector()
    import connector

    return getattr(connector, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class DefaultSource(DataSource):
    """Kafka topics, read_committed: `spark.readStream.format("kafka_eos").option("subscribe", ...).load()`, or `read`.
    And exactly once: `df.writeStream.format("kafka_eos").option("pipeline", ...).option("topic", ...).start()`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kafka_eos"

    def schema(self) -> StructType:
        """See `connector.spark.opening.columns`."""
        _require_own_connector()
        from connector.spark import opening

        return opening.columns(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """See `connector.spark.opening.stream_reader`."""
        _require_own_connector()
        from connector.spark import opening

        return opening.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See `connector.spark.opening.batch_writer`."""
        _require_own_connector()
        from connector.spark import opening

        return opening.batch_writer(self.options, schema, overwrite)

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `connector.spark.opening.batch_reader`."""
        _require_own_connector()
        from connector.spark import opening

        return opening.batch_reader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """See `connector.spark.opening.stream_writer`. The batch is begun unless its tasks have run already."""
        _require_own_connector()
        from connector.spark import opening

        return opening.stream_writer(self.options, schema, overwrite=overwrite, planning=not self._was_sent)

    _was_sent = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Spark creates a data source to plan a micro-batch, and sends one, pickled, to the process that
        # commits or aborts it.
        self.__dict__.update(state)
        self._was_sent = True
