"""What Spark finds by itself: `format("kafka_eos")`, registered because this module's name begins with `pyspark_`.

Owns: the name of the format and when its implementation is loaded.
Does not know: Kafka.
Invariants: importing is cheap, because Spark imports it in a Python worker whenever any Python data source is looked for.
"""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Kafka topics, read_committed: `spark.readStream.format("kafka_eos").option("subscribe", ...).load()`."""

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

        return open_reader(SourceOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of `df.write`: all rows or none. Takes the pipeline over; raises what stands in the way of the write."""
        from connector.spark.batch_sink import open_writer

        return open_writer(self.options, schema, overwrite)

    def reader(self, schema: StructType) -> NoReturn:
        """Refused: only streams are read."""
        from connector.errors import OptionsError

        raise OptionsError(
            "kafka_eos is read as a stream: use spark.readStream, with trigger(availableNow=True) to read what is "
            "there and stop"
        )
