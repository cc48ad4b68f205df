"""The rows of an Arrow batch as fields of Kafka records, described for kernels that read them in place.

Owns: which Arrow types a key, a value and headers may have, and the description of their memory.
Does not know: the record format, partitions, Spark.
Invariants: `RowsInMemory` holds a reference to every Arrow buffer whose address it returns.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_core.errors import InvalidRow
from pyspark_kafka_eos.records import kernels

Int64s = npt.NDArray[np.int64]

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_TYPE))


@dataclass(frozen=True)
class RecordColumns:
    """The rows of one Arrow batch, column by column; a column that is None is null in every row.

    `key` and `value`: string, binary or their large_ forms (any other type that Arrow casts to binary works, slower);
    slices are fine. `headers`: list<struct<key: string, value: binary>>, a null list is the same as an empty one.
    `timestamp_ms`: int64, or None where the records are stamped when they are packed.
    """

    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None
    timestamp_ms: npt.NDArray[np.int64] | None
    num_rows: int

    def __post_init__(self) -> None:
        for name in ("key", "value", "headers", "timestamp_ms"):
            column = getattr(self, name)
            if column is not None and len(column) != self.num_rows:
                raise ValueError(f"the column {name} has {len(column)} rows, the batch has {self.num_rows}")

    @property
    def has_headers(self) -> bool:
        """Whether any row has a list of headers."""
        return self.headers is not None and self.headers.null_count < len(self.headers)

    @functools.cached_property
    def in_memory(self) -> RowsInMemory:
        """The kernels' view of these rows, laid out once and shared; InvalidRow for malformed headers."""
        return RowsInMemory.from_columns(self)


@dataclass
class RowsInMemory:
    """The kernels' view of one set of rows (`kernels.ROWS_FIELDS` words), and its memory's owners."""

    words: Int64s
    alive: list[object] = field(default_factory=list)

    @staticmethod
    def from_columns(columns: RecordColumns) -> RowsInMemory:
        """Lay the columns out. Nothing is copied but 32-bit offsets; InvalidRow where headers are malformed."""
        rows = RowsInMemory(np.zeros(kernels.ROWS_FIELDS, dtype=np.int64))
        rows._put_bytes(kernels.KEY, columns.key)
        rows._put_bytes(kernels.VALUE, columns.value)
        rows._put_headers(columns.headers if columns.has_headers else None)
        if columns.timestamp_ms is not None:
            rows.words[kernels.TIMESTAMPS] = rows.address_of(columns.timestamp_ms, np.int64)
        return rows

    @property
    def at(self) -> int:
        """Address of the words."""
        return address(self.words)

    def address_of(self, values: npt.NDArray[np.int64] | npt.NDArray[np.int32], dtype: type) -> int:
        """Address of the values as a contiguous array of this type, alive as long as these rows are."""
        packed: npt.NDArray[np.int64] | npt.NDArray[np.int32] = np.ascontiguousarray(values, dtype=dtype)
        self.alive.append(packed)
        return address(packed)

    def _put(self, at: int, column: pa.Array, data: pa.Buffer | None, data_size: int, wide: bool) -> None:
        validity, offsets = column.buffers()[:2]
        dtype = np.int64 if wide else np.int32
        if len(column) == 0:
            ends: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        else:
            every = np.frombuffer(offsets, dtype=dtype, count=column.offset + len(column) + 1)
            ends = np.ascontiguousarray(every[column.offset :], dtype=np.int64)
        self.alive += [column, ends]
        nullable = validity is not None and column.null_count > 0
        self.words[at + kernels.VALIDITY] = validity.address if nullable else kernels.NO_NULLS
        self.words[at + kernels.FIRST_BIT] = column.offset
        self.words[at + kernels.OFFSETS] = address(ends)
        self.words[at + kernels.DATA] = 0 if data is None else data.address
        self.words[at + kernels.DATA_SIZE] = data_size

    def _put_bytes(self, at: int, column: pa.Array | None) -> None:
        if column is None:
            self.words[at + kernels.VALIDITY] = kernels.ALL_NULL
            return
        column = as_bytes(column)
        data = column.buffers()[2]
        wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
        self._put(at, column, data, 0 if data is None else data.size, wide)

    def _put_headers(self, headers: pa.Array | None) -> None:
        if headers is None:
            for at in (kernels.HEADER_LISTS, kernels.HEADER_KEY, kernels.HEADER_VALUE):
                self.words[at + kernels.VALIDITY] = kernels.ALL_NULL
            return
        wide = pa.types.is_large_list(headers.type)
        if not (wide or pa.types.is_list(headers.type)) or not pa.types.is_struct(headers.type.value_type):
            raise TypeError(f"headers must be list<struct<key: string, value: binary>>, not {headers.type}")
        entries = headers.values
        _refuse_null_header_keys(headers)
        self._put(kernels.HEADER_LISTS, headers, None, len(entries), wide)
        self._put_bytes(kernels.HEADER_KEY, entries.field("key"))
        self._put_bytes(kernels.HEADER_VALUE, entries.field("value"))


def address(values: npt.NDArray[np.int64] | npt.NDArray[np.int32] | npt.NDArray[np.uint8]) -> int:
    """Address of the array's first element; the caller keeps the array alive."""
    return int(values.__array_interface__["data"][0])


def as_bytes(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as an array that has offsets and bytes (binary or string, large or not)."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if (
        pa.types.is_binary(kind) or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    ):  # fmt: skip
        return column
    if pa.types.is_dictionary(kind):
        return as_bytes(column.dictionary_decode())
    return column.cast(pa.large_binary())


def _refuse_null_header_keys(headers: pa.Array) -> None:
    entries = headers.flatten()  # only those of lists that are not null
    keys = entries.field("key")
    if entries.null_count == 0 and keys.null_count == 0:
        return
    missing = pc.or_(pc.is_null(entries), pc.is_null(keys))
    row = headers_row(headers, pc.index(missing, True).as_py())
    raise InvalidRow("a record header has no key; Kafka's headers have a key and may have a null value", {"row": row})


def headers_row(headers: pa.Array, entry: int) -> int:
    """The row to whose list the n-th entry of the flattened lists belongs."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    return int(np.searchsorted(np.cumsum(counts), entry, side="right"))
