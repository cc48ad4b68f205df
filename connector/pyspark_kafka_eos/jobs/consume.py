"""Committed records of Kafka to files, each exactly once.

    kafka-eos job consume --conf-file consume.yaml

Owns: the query from Kafka's records to the columns of the files.
Does not know: which files belong to which batch: Spark's file sink records that in `_spark_metadata` beside
them.

This job needs no Kafka transaction, because it writes nothing to Kafka. The source shows only committed
records, a repeated batch has the same records, and the file sink adds a batch to its list of files once. Read
the files with Spark, or by that list: it does not contain the files that a killed batch left in the
directory.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_kafka_eos.jobs.config import ConsumeConfig


def prepare(spark: SparkSession, config: ConsumeConfig) -> DataStreamWriter:
    """The query, not yet started."""
    records = spark.readStream.format("kafka_eos").options(**config.source_options).load()
    files = (
        records.selectExpr(*config.expressions)
        .writeStream.format(config.files.format)
        .options(**config.files.options)
        .option("path", config.files.path)
    )
    return files.partitionBy(*config.files.partition_by) if config.files.partition_by else files
