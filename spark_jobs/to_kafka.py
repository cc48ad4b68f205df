"""The end of every job that writes to Kafka: `format("kafka_eos")`, checked before the query starts.

Owns: the checks before the start, and which of the connector's two ways in the options need.
Does not know: what the records are; the query's name, checkpoint and trigger.
Invariants: whichever way is taken, what is wrong before the start is raised before there is a query.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from connector import ExactlyOnceWriter
from spark_jobs.config import WritesKafka


def to_kafka(records: DataFrame, config: WritesKafka) -> DataStreamWriter:
    """The query that writes `records`, not yet started. Raises what its first micro-batch would: of options, brokers,
    rights, topics; nothing is written then."""
    writer = ExactlyOnceWriter(config.sink_options)
    writer.validate(records.sparkSession)
    if writer.options.scope == "batch" or not writer.options.transactional:
        # Here a batch in one transaction whose task failed is done again at once; by format the query would stop first.
        return records.writeStream.foreachBatch(writer)
    return records.writeStream.format("kafka_eos").options(**config.sink_options)
