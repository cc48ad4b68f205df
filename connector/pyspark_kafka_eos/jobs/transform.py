"""Consume, transform, produce: Kafka to Kafka, every micro-batch with its source offsets exactly once.

    kafka-eos job transform --conf-file transform.yaml

Owns: the query from the source's records to the sink's by SQL expressions.
Does not know: how a batch is committed.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_kafka_eos.jobs.config import TransformConfig
from pyspark_kafka_eos.jobs.to_kafka import to_kafka


def prepare(spark: SparkSession, config: TransformConfig) -> DataStreamWriter:
    """The query, not yet started. Raises every error that can be found before it starts."""
    records = spark.readStream.format("kafka_eos").options(**config.source_options).load()
    return to_kafka(records.selectExpr(*config.columns.expressions), config)
