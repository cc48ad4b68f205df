"""Arrow's buffers of the binary columns that are being read, filled by the loops in `decoding`.

Owns: the buffers, and the headers as lists of structs.
Does not know: batches, how many bytes there are.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_kafka_eos.records.columns import HEADER_TYPE, HEADERS_TYPE, address

MAX_COLUMN_BYTES: Final = 2**31 - 1
"""Arrow's binary columns count their bytes in an int32."""


class ByteColumn:
    """The buffers of one binary column that is being filled."""

    def __init__(self, rows: int, size: int, nulls: int) -> None:
        if size > MAX_COLUMN_BYTES:
            raise ValueError(f"{size} bytes are too many for one Arrow column; decode fewer batches at once")
        self.rows = rows
        self.nulls = nulls
        self.ends = np.zeros(rows + 1, dtype=np.int32)
        self.data = np.empty(size, dtype=np.uint8)
        self.valid = np.zeros((rows + 7) // 8, dtype=np.uint8)

    def addresses(self) -> list[int]:
        """Of the ends, the bytes and the validity bitmap, 0 where nothing is null."""
        return [address(self.ends), address(self.data), address(self.valid) if self.nulls else 0]

    def array(self, kind: pa.DataType) -> pa.Array:
        """The column."""
        valid = pa.py_buffer(self.valid) if self.nulls else None
        buffers = [valid, pa.py_buffer(self.ends), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(kind, self.rows, buffers, self.nulls)


def headers_of(lists: ByteColumn, header_key: ByteColumn, header_value: ByteColumn) -> pa.Array:
    """The headers of all rows, as `HEADERS_TYPE`."""
    keys = header_key.array(pa.string())
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        # Not UTF-8: Java's client reads such keys with replacement characters, and so does this code.
        binary = header_key.array(pa.binary())
        keys = pa.array([name.decode("utf-8", "replace") for name in binary.to_pylist()], pa.string())
    entries = pa.StructArray.from_arrays([keys, header_value.array(pa.binary())], fields=list(HEADER_TYPE))
    buffers = [pa.py_buffer(lists.valid) if lists.nulls else None, pa.py_buffer(lists.ends)]
    return pa.Array.from_buffers(HEADERS_TYPE, lists.rows, buffers, lists.nulls, children=[entries])
