"""The batch source: `spark.read.format("kafka_eos")` reads a range of Kafka topics as it is now.

Owns: the ranges that a batch reads, from the beginning to the end that its options name, and their division
into tasks.
Does not know: streams, checkpoints, the Fetch protocol.
Invariants:
- Planning fixes the ranges, so records written later belong to the next query.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.reading.fetcher import OffsetRange
from pyspark_kafka_eos.options import SourceOptions, report_ignored
from pyspark_kafka_eos.spark.offset_json import Position
from pyspark_kafka_eos.spark.refusals import each_sentence_first, sentence_first
from pyspark_kafka_eos.spark.source.source import KafkaPartition, read_range, refuse_other_schema
from pyspark_kafka_eos.spark.source.source_logs import logs_of, with_ids
from pyspark_kafka_eos.spark.source.source_offsets import split
from pyspark_kafka_eos.spark.source.source_view import SourceView

if TYPE_CHECKING:
    import pyarrow as pa


def open_batch(options: SourceOptions, schema: StructType) -> KafkaBatchReader:
    """The reader of a batch query; OptionsError where the user gave a schema other than the source's."""
    refuse_other_schema(options, schema)
    return KafkaBatchReader(options)


class KafkaBatchReader(DataSourceReader):
    """One batch query's reader: planned on the driver, copied into the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @sentence_first
    def partitions(self) -> list[InputPartition]:
        """The ranges to read, split by minPartitions and maxRecordsPerPartition. OptionsError where the query would end
        before it begins, DataLoss where the named offsets are gone, RetriableError where an open transaction
        is in the way. Raises before anything is read."""
        report_ignored(self.options)
        view = SourceView(self.options)
        begin = view.beginning()
        end = view.ending(begin)
        ranges: list[OffsetRange] = []
        # The next query reads a partition that was added between the two requests.
        for where in sorted(begin.keys() & end.keys()):
            if begin[where] > end[where]:
                raise OptionsError(
                    f"The resolved start offset {begin[where]} is greater than the resolved end offset {end[where]} for "
                    f"topic {where.topic} partition {where.partition}; nothing was read; move the start back or the end on",
                    {"partition": str(where), "start": begin[where], "end": end[where]},
                )
            if begin[where] < end[where]:
                ranges.append(OffsetRange(where, begin[where], end[where]))
        pieces = split(ranges, self.options.min_partitions, self.options.max_records_per_partition)
        last = {each.where: each.end for each in pieces}
        logs = with_ids(view.offsets.cluster, last, logs_of(last, view.logs.ends, Position({})))
        return [KafkaPartition(replace(each, log=logs.get(each.where))) for each in pieces]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The visible records of one range, on an executor."""
        if not isinstance(partition, KafkaPartition):  # PySpark passes None for a plan without partitions
            return iter(())
        return each_sentence_first(read_range(self.options, partition.offsets))
