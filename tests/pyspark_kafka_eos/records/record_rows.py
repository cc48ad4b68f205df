"""Plain Python rows, their Arrow columns and back: what the tests of records/ compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_kafka_eos.records import HEADERS_TYPE, DecodedBatch, RecordColumns, Section, SectionWriter, frame

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """One record."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0


def columns_of(rows: Sequence[Row], kind: pa.DataType | None = None) -> RecordColumns:
    """The rows as Arrow columns."""
    kind = kind or pa.binary()
    headers = [[{"key": key, "value": value} for key, value in row.headers] if row.headers else None for row in rows]
    return RecordColumns(
        key=pa.array([row.key for row in rows], kind),
        value=pa.array([row.value for row in rows], kind),
        headers=pa.array(headers, HEADERS_TYPE),
        timestamp_ms=np.array([row.timestamp_ms for row in rows], dtype=np.int64),
        num_rows=len(rows),
    )


def rows_of(decoded: DecodedBatch) -> list[Row]:
    """Decoded columns as rows."""
    headers = decoded.headers.to_pylist() if decoded.headers is not None else [None] * len(decoded)
    return [
        Row(key, value, tuple((entry["key"], entry["value"]) for entry in entries or ()), timestamp)
        for key, value, entries, timestamp in zip(
            decoded.key.to_pylist(),
            decoded.value.to_pylist(),
            headers,
            decoded.timestamp_ms.tolist(),
            strict=True,
        )
    ]


def sections_of(
    columns: RecordColumns, partition: Sequence[int], partitions: int = 1, size: int = 100_000, seed: int | None = 0,
    hard_limit_bytes: int | None = None,
) -> list[Section]:  # fmt: skip
    """Everything that a writer makes of these columns."""
    seeds = None if seed is None else np.full(partitions, seed, dtype=np.uint64)
    writer = SectionWriter(
        partitions, size, explicit_timestamps=True, digest_seeds=seeds, hard_limit_bytes=hard_limit_bytes
    )
    return [*writer.append(columns, np.array(partition, dtype=np.int32), 0), *writer.flush()]


def batch_of(rows: Sequence[Row], compression: str = "none") -> memoryview:
    """The rows as one batch."""
    (section,) = sections_of(columns_of(rows), [0] * len(rows), size=100_000_000)
    return framed(section, compression)


def framed(section: Section, compression: str = "none") -> memoryview:
    """The section as a batch of some transactional producer."""
    return frame(
        section,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        transactional=True,
        compression=compression,
    )
