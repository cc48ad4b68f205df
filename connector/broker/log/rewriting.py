"""Batches that have lost records: built anew from what is left, or emptied.

Owns: the bytes of a rewritten batch, the walk over records of any codec.
Does not know: which records stay.
Invariants: offsets, sequences, producer and timestamps of what stays are as before, and so are the batch's first and last offset and
sequence: producers' state can still be rebuilt from it.
"""

from __future__ import annotations

import importlib
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c

from connector.broker.log import records
from connector.broker.log.records import HEADER, HEADER_BYTES, BatchHeader

_NO_TIMESTAMP = -1
_CODECS = "connector.records.compression"


class Place(NamedTuple):
    """Where a record stands among its batch's (unpacked) records, and what decides about it."""

    start: int
    end: int
    fields_at: int
    """Behind its length, its attributes and its timestamp: the same bytes wherever the record goes."""
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def codecs_loaded() -> bool:
    """Whether a compressed batch can be unpacked at once."""
    return _CODECS in sys.modules


def load_codecs() -> None:
    """Load them: a third of a second, which another thread had better spend."""
    importlib.import_module(_CODECS)


def unpacked(batch: memoryview, header: BatchHeader) -> bytes:
    """The records' bytes; ValueError where they cannot be unpacked."""
    if header.codec == 0:
        return bytes(batch[HEADER_BYTES:])
    # As in `records.timestamps`: at the top it would make every start slower.
    from connector.errors import CorruptBatch
    from connector.records.compression import decompress

    try:
        return bytes(decompress(header.codec, batch[HEADER_BYTES:]))
    except CorruptBatch as error:
        raise ValueError(str(error)) from error


def places(body: bytes, count: int) -> Iterator[Place]:
    """Each record; ValueError where they are malformed."""
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
        value_size, _ = get(body, at + max(0, size))
        yield Place(start, end, fields_at, timestamp_delta, offset_delta, key, value_size >= 0)
        at = end


def only_key(batch: memoryview) -> tuple[bytes | None, bool]:
    """(key, whether there is a value) of the only record of an uncompressed batch, as nearly all of the coordinators' are."""
    get = records.get_varint
    _, at = get(batch, HEADER_BYTES)
    _, at = get(batch, at + 1)
    _, at = get(batch, at)
    size, at = get(batch, at)
    end = at + max(0, size)
    return None if size < 0 else bytes(batch[at:end]), get(batch, end)[0] >= 0


def rebuilt(header: BatchHeader, body: bytes, kept: Sequence[Place], horizon_ms: int | None) -> bytes:
    """The batch with these of its records. `horizon_ms`: when its tombstones or its marker may go, where that is newly set."""
    if horizon_ms is None:
        base_ms, attributes = header.base_timestamp_ms, header.attributes
        content = b"".join([body[place.start : place.end] for place in kept])
    else:
        # The horizon stands where the base of the timestamps was, so the distances from it change.
        base_ms, attributes = horizon_ms, header.attributes | records.DELETE_HORIZON
        moved = header.base_timestamp_ms - horizon_ms
        content = b"".join([_at_distance(body, place, place.timestamp_delta + moved) for place in kept])
    highest_ms = header.max_timestamp_ms
    if not header.log_append_time:
        highest_ms = header.base_timestamp_ms + max(place.timestamp_delta for place in kept)
    if header.codec:
        from connector.records.compression import NAMES, compress

        content = compress(NAMES[header.codec], memoryview(content))
    return _framed(header, attributes, base_ms, highest_ms, len(kept), content)


def emptied(header: BatchHeader) -> bytes:
    """The batch without records: what is left says which offsets and sequences its producer had come to."""
    attributes = header.attributes & records.KEPT_WHEN_EMPTY
    return _framed(header, attributes, _NO_TIMESTAMP, header.max_timestamp_ms, 0, b"")


def _at_distance(body: bytes, place: Place, timestamp_delta: int) -> bytes:
    _, attributes_at = records.get_varint(body, place.start)
    content = bytearray(body[attributes_at : attributes_at + 1])
    records.put_varint(content, timestamp_delta)
    content += body[place.fields_at : place.end]
    record = bytearray()
    records.put_varint(record, len(content))
    return bytes(record + content)


def _framed(header: BatchHeader, attributes: int, base_ms: int, highest_ms: int, count: int, content: bytes) -> bytes:  # fmt: skip
    batch = bytearray(HEADER_BYTES) + content
    HEADER.pack_into(
        batch, 0, header.base_offset, len(batch) - records.LENGTH_ENDS_AT, header.leader_epoch, header.magic, 0, attributes,
        header.last_offset_delta, base_ms, highest_ms, header.producer_id, header.producer_epoch, header.base_sequence, count,
    )  # fmt: skip
    struct.pack_into(">I", batch, records.CRC_AT, crc32c.crc32c(memoryview(batch)[records.CRC_STARTS_AT :]))
    return bytes(batch)
