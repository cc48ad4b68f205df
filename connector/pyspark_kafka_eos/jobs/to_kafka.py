"""The end of every job that writes to Kafka: `format("kafka_eos")`, checked before the query starts.

Owns: the checks before the start, and the choice between the connector's two entry points.
Does not know: the content of the records; the query's name, checkpoint and trigger.
Invariants:
- With either entry point, an error that can be found before the start is raised before there is a query.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_kafka_eos.jobs.config import WritesKafka
from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter


def to_kafka(records: DataFrame, config: WritesKafka) -> DataStreamWriter:
    """The query that writes `records`, not yet started. Raises the errors that its first micro-batch would
    raise (options, brokers, rights, topics); nothing is written then."""
    writer = ExactlyOnceWriter(config.sink_options)
    writer.validate(records.sparkSession)
    if writer.options.scope == "batch" or not writer.options.transactional:
        # foreachBatch repeats a batch in one transaction at once after a failed task; by format the query
        # would stop first.
        return records.writeStream.foreachBatch(writer)
    return records.writeStream.format("kafka_eos").options(**config.sink_options)
