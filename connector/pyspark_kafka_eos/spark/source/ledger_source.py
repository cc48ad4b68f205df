"""The ledger as a DataFrame: `spark.read.format("kafka_eos").option("ledger", "<pipeline>")`, or "*" for all.

Owns: the columns, and the row that a decision becomes.
Does not know: how the ledger's topic is read (`operations.history`).
Invariants:
- Nothing is written, fenced or waited for.
- A record that cannot be read is a row too, with the reason; one whose transaction has no end is shown as open.
- The columns mean what the names of `kafka-eos ledger --json` mean; times are timestamps.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.model import strict
from pyspark_kafka_eos.operations.history import LedgerEntry, newest_first, slot_of
from pyspark_kafka_eos.operations.known import require_known
from pyspark_kafka_eos.options import LedgerOptions, OptionValue, parse_ledger, report_ignored
from pyspark_kafka_eos.spark.refusals import sentence_first
from pyspark_kafka_eos.spark.source.source import OWN_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT, _INT, _LONG, _TIMESTAMP = StringType(), IntegerType(), LongType(), TimestampType()


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


_PART = _struct(topic=_TEXT, partition=_INT, first_offset=_LONG, records=_LONG)
_SLOT = _struct(
    slot=_INT, transactional_id=_TEXT, producer_id=_LONG, producer_epoch=_INT, transaction_version=_INT,
    two_phase=BooleanType(), records=_LONG, bytes=_LONG, digest=_TEXT, partitions=ArrayType(_PART),
)  # fmt: skip
LEDGER_SCHEMA = _struct(
    pipeline=_TEXT, status=_TEXT, query_id=_TEXT, batch_id=_LONG, decided=_TIMESTAMP, records=_LONG, bytes=_LONG,
    dead_letters=_LONG, repaired=_INT, connector_version=_TEXT, source_offsets=ArrayType(_TEXT), slots=ArrayType(_SLOT),
    warnings=ArrayType(_TEXT), problem=_TEXT, partition=_INT, offset=_LONG, written=_TIMESTAMP,
)  # fmt: skip
"""One row for each record of the ledger under a pipeline's name. `status`: decided, open or unreadable (with the reason
in `problem`; the decision's columns are null then). `partition`, `offset`, `written`: where and when the record was
written. `source_offsets`: Spark's offset-log line of each source, as JSON. `warnings`: those that were logged for the
batch.
"""


def open_ledger(options: Mapping[str, OptionValue], schema: StructType) -> LedgerSourceReader:
    """The reader of the ledger; OptionsError naming every problem with the options."""
    parsed = parse_ledger(options)
    if schema != LEDGER_SCHEMA:
        raise OptionsError(OWN_SCHEMA)
    return LedgerSourceReader(parsed)


class LedgerSourceReader(DataSourceReader):
    """One read of the ledger: a single task, because a pipeline's decisions are in one partition of a small topic."""

    def __init__(self, options: LedgerOptions) -> None:
        self.options = options

    @sentence_first
    def partitions(self) -> list[InputPartition]:
        """One part. UnknownPipeline where nothing of the pipeline is known, UnknownTopic where there is no ledger."""
        report_ignored(self.options)
        cluster = Cluster.shared(self.options.client)
        cluster.topic(self.options.topic)
        if self.options.pipeline is not None:
            require_known(cluster, self.options.topic, self.options.pipeline)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, those of a pipeline with the newest first. On an executor."""
        import pyarrow as pa

        columns = pa.schema(list(_arrow(LEDGER_SCHEMA)))
        cluster = Cluster.shared(self.options.client)
        for page in newest_first(cluster, self.options.topic, self.options.pipeline):
            if page:
                yield pa.RecordBatch.from_pylist([row_of(each) for each in page], schema=columns)


def row_of(entry: LedgerEntry) -> dict[str, Any]:
    """One record of the ledger, by column."""
    row: dict[str, Any] = {
        "pipeline": entry.pipeline,
        "status": entry.status,
        "problem": entry.problem or None,
        "partition": entry.where.partition,
        "offset": entry.offset,
        "written": _time(entry.written_ms),
    }
    found = entry.decision
    if found is None:
        return row
    return row | {
        "query_id": found.query_id,
        "batch_id": found.batch_id,
        "decided": _time(found.decided_ms),
        "records": found.records,
        "bytes": sum(seal.bytes for seal in found.seals),
        "dead_letters": found.dead_letters,
        "repaired": found.repaired,
        "connector_version": found.connector_version,
        "source_offsets": list(found.source_offsets),
        "slots": [slot_of(seal) for seal in found.seals],
        "warnings": list(found.warnings),
    }


def _arrow(kind: DataType) -> pa.DataType:
    """The Arrow type of a column. Spark's own function for it has another signature in each version."""
    import pyarrow as pa

    if isinstance(kind, StructType):
        return pa.struct([pa.field(each.name, _arrow(each.dataType)) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(_arrow(kind.elementType))
    plain: dict[DataType, Any] = {
        StringType(): pa.string(),
        IntegerType(): pa.int32(),
        LongType(): pa.int64(),
        BooleanType(): pa.bool_(),
        TimestampType(): pa.timestamp("us", tz="UTC"),
    }
    return plain[kind]


def _time(at_ms: int) -> datetime.datetime | None:
    """None for a time that no calendar has: any client may write records with any time."""
    if not 0 <= at_ms <= strict.LAST_MS:
        return None
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.timezone.utc)


__all__ = ["LEDGER_SCHEMA", "LedgerSourceReader", "open_ledger", "row_of"]
