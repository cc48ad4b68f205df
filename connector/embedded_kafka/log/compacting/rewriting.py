"""Batches that have lost records: rebuilt from the remaining records, or emptied.

Owns: the bytes of a rewritten batch.
Does not know: which records stay.
Invariants:
- Remaining records keep their offsets, sequences, producer and timestamps.
- The batch keeps its first and last offset and sequence, so producers' state can still be rebuilt from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedded_kafka.log import records
from embedded_kafka.log.contents import RecordPlace, packed
from embedded_kafka.log.records import HEADER_BYTES, BatchHeader

_NO_TIMESTAMP = -1


def only_key(batch: memoryview) -> tuple[bytes | None, bool]:
    """(key, whether it has a value) of the only record of an uncompressed batch, the form of nearly
    all coordinator batches."""
    get = records.get_varint
    _, at = get(batch, HEADER_BYTES)
    _, at = get(batch, at + 1)
    _, at = get(batch, at)
    size, at = get(batch, at)
    end = at + max(0, size)
    return None if size < 0 else bytes(batch[at:end]), get(batch, end)[0] >= 0


def rebuilt(header: BatchHeader, body: bytes, kept: Sequence[RecordPlace], horizon_ms: int | None) -> bytes:
    """The batch with these of its records. `horizon_ms`: when its tombstones or its marker may be
    removed, if newly set."""
    if horizon_ms is None:
        base_ms, attributes = header.base_timestamp_ms, header.attributes
        content = b"".join([body[place.start : place.end] for place in kept])
    else:
        # The horizon replaces the base timestamp, so the records' distances from it change.
        base_ms, attributes = horizon_ms, header.attributes | records.DELETE_HORIZON
        moved = header.base_timestamp_ms - horizon_ms
        content = b"".join([_at_distance(body, place, place.timestamp_delta + moved) for place in kept])
    highest_ms = header.max_timestamp_ms
    if not header.log_append_time:
        highest_ms = header.base_timestamp_ms + max(place.timestamp_delta for place in kept)
    header = header._replace(
        attributes=attributes, base_timestamp_ms=base_ms, max_timestamp_ms=highest_ms, count=len(kept)
    )
    return bytes(records.framed(header, packed(header.codec, content)))


def emptied(header: BatchHeader) -> bytes:
    """The batch without records; the header keeps the offsets and sequences that its producer had reached."""
    attributes = header.attributes & records.KEPT_WHEN_EMPTY
    return bytes(records.framed(header._replace(attributes=attributes, base_timestamp_ms=_NO_TIMESTAMP, count=0), b""))


def _at_distance(body: bytes, place: RecordPlace, timestamp_delta: int) -> bytes:
    _, attributes_at = records.get_varint(body, place.start)
    content = bytearray(body[attributes_at : attributes_at + 1])
    records.put_varint(content, timestamp_delta)
    content += body[place.fields_at : place.end]
    record = bytearray()
    records.put_varint(record, len(content))
    return bytes(record + content)
