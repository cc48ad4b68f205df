"""The records inside a batch of any codec: unpacked, walked one by one, packed again.

Owns: the loading of the codecs, the walk over unpacked records.
Does not know: headers' other fields, which records are valid, which ones stay.
Invariants:
- Contents that cannot be unpacked or walked raise ValueError; where no codecs are installed, Refused.
- `packed` returns bytes that `unpacked` accepts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from embedded_kafka.log import records
from embedded_kafka.log.records import HEADER_BYTES, BatchHeader, Buffer
from embedded_kafka.settings import codecs
from kafka_core.protocol.error_codes import Code


class RecordPlace(NamedTuple):
    """A record's position among its batch's (unpacked) records, and the fields that decide about it."""

    start: int
    end: int
    fields_at: int
    """The position behind its length, attributes and timestamp: the bytes from here on stay
    the same in any batch."""
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool
    headers_at: int


def codecs_loaded() -> bool:
    """Whether the codecs are loaded, so a compressed batch can be unpacked at once."""
    return sys.modules.get(codecs.CODECS) is not None


def load_codecs() -> None:
    """Load the codecs, which takes a third of a second and therefore belongs in another thread.
    Refused(UNSUPPORTED_COMPRESSION_TYPE) where they are not installed."""
    # Not a top-level import, which would slow every start by that time.
    try:
        import kafka_core.compression  # noqa: F401
    except ImportError as error:
        raise codecs.missing(Code.UNSUPPORTED_COMPRESSION_TYPE, "unpacking or packing compressed records") from error


def unpacked(header: BatchHeader, batch: memoryview) -> bytes:
    """The records' bytes; ValueError where they cannot be unpacked, Refused as `load_codecs`."""
    if header.codec == 0:
        return bytes(batch[HEADER_BYTES:])
    load_codecs()
    from kafka_core.compression import decompress
    from kafka_core.errors import BatchTooLarge, CorruptBatch

    try:
        return bytes(decompress(header.codec, batch[HEADER_BYTES:]))
    except (BatchTooLarge, CorruptBatch) as error:
        raise ValueError(str(error)) from error


def packed(codec: int, content: bytes) -> Buffer:
    """The records' bytes in the encoding of a batch of that codec (0: unchanged). Refused as `load_codecs`."""
    if codec == 0:
        return content
    load_codecs()
    from kafka_core.compression import NAMES, compress

    return compress(NAMES[codec], memoryview(content))


def places(body: bytes, count: int) -> Iterator[RecordPlace]:
    """Each record; ValueError where one is malformed. Does not check the records' headers."""
    get = records.get_varint
    at = 0
    for _ in range(count):
        start = at
        length, at = get(body, at)
        end = at + length
        if length < records.SMALLEST_RECORD_BYTES - 1 or end > len(body):
            raise ValueError("a record does not fit into its batch")
        timestamp_delta, fields_at = get(body, at + 1)
        offset_delta, at = get(body, fields_at)
        size, at = get(body, at)
        key = None if size < 0 else body[at : at + size]
        value_size, at = get(body, at + max(0, size))
        at += max(0, value_size)
        yield RecordPlace(start, end, fields_at, timestamp_delta, offset_delta, key, value_size >= 0, at)
        at = end


def timestamps(batch: memoryview, header: BatchHeader, start_offset: int) -> Iterator[tuple[int, int]]:
    """(offset, timestamp in ms) of a batch's records, possibly with some before `start_offset`; ValueError
    for a malformed batch."""
    if header.log_append_time and header.count == header.last_offset_delta + 1:
        # Not from the first offset: appends do not check the record count that a compressed batch claims.
        for offset in range(max(header.base_offset, start_offset), header.last_offset + 1):
            yield offset, header.max_timestamp_ms
    elif header.codec == 0:
        for _, offset, timestamp_ms in records.walk(batch, header):
            yield offset, timestamp_ms
    else:
        for place in places(unpacked(header, batch), header.count):
            yield header.base_offset + place.offset_delta, header.timestamp_ms(place.timestamp_delta)


def whole_places(body: bytes, count: int) -> Iterator[RecordPlace]:
    """As `places`; ValueError also where a record's fields do not fill its length, or there are more records than
    `count`.
    """
    total = 0
    for place in places(body, count):
        if _headers_end(body, place) != place.end:
            raise ValueError("the fields of a record do not fill its length")
        total = place.end
        yield place
    if total != len(body):
        raise ValueError(f"the batch has more records than the {count} of its header")


def _headers_end(body: bytes, place: RecordPlace) -> int:
    """Where the record's headers end; -1 where they are malformed."""
    get = records.get_varint
    headers, at = get(body, place.headers_at)
    for _ in range(headers):
        name_bytes, at = get(body, at)
        header_bytes, at = get(body, at + max(name_bytes, 0))
        at += max(header_bytes, 0)
        if name_bytes < 0 or at > place.end:
            return -1
    return -1 if headers < 0 else at
