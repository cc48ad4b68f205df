"""The schema, the readers and the writers that `format("kafka_eos")` gives Spark for its options.

Owns: which of them the options ask for.
Does not know: how they read and write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.types import StructType

from pyspark_kafka_eos.options import SourceOptions, asks_for_ledger, parse_ledger, refuse_stream
from pyspark_kafka_eos.options.login.in_clear import refuse_in_clear
from pyspark_kafka_eos.spark.refusals import sentence_first
from pyspark_kafka_eos.spark.workers import make_ready

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter

Options = Mapping[str, str]


@sentence_first
def columns(options: Options) -> StructType:
    """The columns of Spark's Kafka source, or of the ledger where the options ask for it; OptionsError naming every
    problem with the options. Asks no broker.
    """
    from pyspark_kafka_eos.spark.source.source import source_schema

    refuse_in_clear(options)
    if asks_for_ledger(options):
        from pyspark_kafka_eos.spark.source.ledger_source import LEDGER_SCHEMA

        parse_ledger(options)
        return LEDGER_SCHEMA
    return source_schema(SourceOptions.parse(options).include_headers)


@sentence_first
def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    """The reader of a streaming query."""
    from pyspark_kafka_eos.spark.source.source import open_reader

    refuse_in_clear(options)
    if asks_for_ledger(options):
        refuse_stream()
    return open_reader(SourceOptions.parse(options, "stream"), schema)


@sentence_first
def batch_reader(options: Options, schema: StructType) -> DataSourceReader:
    """The reader of a batch query, of records or of the ledger."""
    from pyspark_kafka_eos.spark.source.batch_source import open_batch

    refuse_in_clear(options)
    if asks_for_ledger(options):
        from pyspark_kafka_eos.spark.source.ledger_source import open_ledger

        return open_ledger(options, schema)
    return open_batch(SourceOptions.parse(options, "batch"), schema)


@sentence_first
def batch_writer(options: Options, schema: StructType, overwrite: bool) -> DataSourceWriter:
    """The writer of `df.write`: all rows or none. Takes the pipeline over; raises if anything prevents the write."""
    from pyspark_kafka_eos.spark.sink.batch_sink import open_writer

    refuse_in_clear(options)
    return open_writer(options, schema, overwrite)


@sentence_first
def stream_writer(options: Options, schema: StructType, *, overwrite: bool, planning: bool) -> DataSourceStreamWriter:
    """The writer of one micro-batch. Begins the batch where Spark plans it, `planning`."""
    from pyspark_kafka_eos.spark.sink.sink import open_writer

    refuse_in_clear(options)
    # Spark has two workers on the driver for each batch, the same ones for all batches.
    make_ready()
    return open_writer(options, schema, overwrite=overwrite, planning=planning)
