"""Any streaming source to Kafka, every micro-batch exactly once.

    kafka-eos job produce --conf-file produce.yaml

Owns: the query from the source that the file names to the records.
Does not know: how a batch is committed.

The source must return the same rows when a batch is repeated: files, Delta tables, Kafka and Spark's rate do;
a socket does not.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_kafka_eos.jobs.config import ProduceConfig
from pyspark_kafka_eos.jobs.to_kafka import to_kafka


def prepare(spark: SparkSession, config: ProduceConfig) -> DataStreamWriter:
    """The query, not yet started. Raises every error that can be found before it starts."""
    reader = spark.readStream.format(config.source.format).options(**config.source.options)
    if config.source.columns is not None:
        reader = reader.schema(config.source.columns)
    records = reader.load(config.source.path).selectExpr(*config.columns.expressions)
    return to_kafka(records, config)
