"""The class that Spark knows `format("kafka_eos")` by.

Owns: the name of the format, the moment at which its implementation is loaded.
Does not know: Kafka.
Invariants: importing loads nothing of the implementation.
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


class DefaultSource(DataSource):
    """Kafka topics, read_committed: `spark.readStream.format("kafka_eos").option("subscribe", ...).load()`, or `read`.
    And exactly once: `df.writeStream.format("kafka_eos").option("pipeline", ...).option("topic", ...).start()`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kafka_eos"

    def schema(self) -> StructType:
        """See `pyspark_kafka_eos.spark.opening.columns`."""
        from pyspark_kafka_eos.spark import opening

        return opening.columns(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """See `pyspark_kafka_eos.spark.opening.stream_reader`."""
        from pyspark_kafka_eos.spark import opening

        return opening.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See `pyspark_kafka_eos.spark.opening.batch_writer`."""
        from pyspark_kafka_eos.spark import opening

        return opening.batch_writer(self.options, schema, overwrite)

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `pyspark_kafka_eos.spark.opening.batch_reader`."""
        from pyspark_kafka_eos.spark import opening

        return opening.batch_reader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """See `pyspark_kafka_eos.spark.opening.stream_writer`. The batch is begun unless its tasks have run already."""
        from pyspark_kafka_eos.spark import opening

        return opening.stream_writer(self.options, schema, overwrite=overwrite, planning=not self._was_sent)

    _was_sent = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Spark creates a data source to plan a micro-batch, and sends one, pickled, to the process that
        # commits or aborts it.
        self.__dict__.update(state)
        self._was_sent = True
