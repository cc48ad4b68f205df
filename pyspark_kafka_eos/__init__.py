"""What Spark finds by itself: `format("kafka_eos")`, registered because this module's name begins with `pyspark_`.

Owns: the name of the format and when its implementation is loaded.
Does not know: Kafka.
Invariants: importing is cheap, because Spark imports it in a Python worker whenever any Python data source is looked for.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Kafka topics, read_committed: `spark.readStream.format("kafka_eos").option("subscribe", ...).load()`, or `read`.
    And exactly once: `df.writeStream.format("kafka_eos").option("pipeline", ...).option("topic", ...).start()`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kafka_eos"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source; OptionsError naming every problem with the options. Asks no broker."""
        from connector.options import SourceOptions
        from connector.spark.source import source_schema

        return source_schema(SourceOptions.parse(self.options).include_headers)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a streaming query."""
        from connector.options import SourceOptions
        from connector.spark.source import open_reader

        return open_reader(SourceOptions.parse(self.options, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of `df.write`: all rows or none. Takes the pipeline over; raises what stands in the way of the write."""
        from connector.spark.batch_sink import open_writer

        return open_writer(self.options, schema, overwrite)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        from connector.options import SourceOptions
        from connector.spark.batch_source import open_batch

        return open_batch(SourceOptions.parse(self.options, "batch"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer of one micro-batch, which is begun here unless its tasks have run already."""
        from connector.spark.sink import open_writer

        return open_writer(self.options, schema, overwrite=overwrite, planning=not self._was_sent)

    _was_sent = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Spark makes a data source where it plans a micro-batch, and sends one, pickled, to where it commits or aborts it.
        self.__dict__.update(state)
        self._was_sent = True
