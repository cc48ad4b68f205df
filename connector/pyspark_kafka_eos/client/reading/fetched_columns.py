"""Fetched batches as the columns of Spark's Kafka source.

Owns: the output schema, and the rows of one range in it.
Does not know: requests, which batches are visible.
Invariants:
- Rows outside the range are never returned.
- No row of a malformed batch is returned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from kafka_core.errors import BatchTooLarge, CorruptBatch
from kafka_core.values import DEFAULT_UNPACKED_BYTES, TopicPartition
from pyspark_kafka_eos.client.reading.fetch_progress import OffsetRange
from pyspark_kafka_eos.records import HEADERS_TYPE, Batch, DecodedBatch, decode_chunks, microseconds

ROWS_AT_ONCE = 256 * 1024
"""Rows passed on at once: the columns that are made for each row (topic, partition, times) then take some 10 MB. Chunks
of records are smaller unless the records are tiny.
"""

log = logging.getLogger(__name__)


def record_schema(include_headers: bool) -> pa.Schema:
    """The output columns: those of Spark's Kafka source."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, pa.field("headers", HEADERS_TYPE)] if include_headers else fields)


def columns_of(
    offsets: OffsetRange,
    batches: Iterable[Batch],
    schema: pa.Schema,
    max_unpacked_bytes: int = DEFAULT_UNPACKED_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The rows of these batches that are in the range. `schema`: from `record_schema`."""
    include_headers = "headers" in schema.names
    try:
        for decoded in decode_chunks(batches, include_headers=include_headers, max_bytes=max_unpacked_bytes):
            within = decoded.between(offsets.start, offsets.end)
            for first in range(0, len(within), ROWS_AT_ONCE):
                yield _batch(offsets.where, within.rows(first, first + ROWS_AT_ONCE), schema)
    except (BatchTooLarge, CorruptBatch) as error:
        raise type(error)(f"{offsets.where}: {error.message}; no record of this batch was used", error.facts) from error


def _batch(where: TopicPartition, records: DecodedBatch, schema: pa.Schema) -> pa.RecordBatch:
    rows = len(records)
    times, out_of_reach = microseconds(records.timestamp_ms)
    if out_of_reach:
        log.warning(
            "%s from offset %d on: %d timestamps are out of range and replaced by the nearest possible one",
            where, records.offset[0], out_of_reach,
        )  # fmt: skip
    columns = [
        records.key,
        records.value,
        pa.repeat(pa.scalar(where.topic, pa.string()), rows),
        pa.array(np.full(rows, where.partition, dtype=np.int32)),
        pa.array(records.offset),
        pa.array(times).cast(pa.timestamp("us", tz="UTC")),
        pa.array(records.log_append_time.astype(np.int32)),
    ]
    if records.headers is not None:
        columns.append(records.headers)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
