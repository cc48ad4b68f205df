"""Record batches in the log: the header, a client's batch on its way to the log, the broker's own small batches.

Owns: the bytes of format v2 (KIP-98) on the broker's side.
Does not know: files, offsets of a log, producers' state, what a client may send (`validation` does).
Invariants:
- `decode_batch` returns the records that `encode_batch` was given.
- A client's records are never copied.

Plain Python, unlike the connector's packing of records: the import of numba takes 0.2 s of CPU, and only headers,
markers and the records of the internal topics are handled here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp, producer id,
producer epoch, base sequence, record count."""

HEADER_BYTES: Final = HEADER.size
LENGTH_ENDS_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_STARTS_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
MAGIC: Final = 2

CODEC_BITS: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
KEPT_WHEN_EMPTY: Final = _LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL
"""The attributes of a batch that a cleaner has emptied: no codec, no horizon."""

SMALLEST_RECORD_BYTES: Final = 7

_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")

Buffer = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    """The first 61 bytes of a batch. `size` is the whole batch in bytes. (A tuple, because a
    start reads millions.)"""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's name; shadows a tuple method that is not used

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_BITS

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the batch is a marker."""
        return bool(self.attributes & _CONTROL)

    @property
    def log_append_time(self) -> bool:
        """Whether the broker set the timestamps."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    def timestamp_ms(self, delta_ms: int) -> int:
        """The timestamp of a record whose distance from the base is `delta_ms`."""
        return self.max_timestamp_ms if self.log_append_time else self.base_timestamp_ms + delta_ms

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the batch's tombstones or its marker may be removed. A cleaner stores it in place of the base
        timestamp (KAFKA-8522)."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None


class InternalRecord(NamedTuple):
    """One record of an internal topic."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class EndMarker:
    """The end of a producer's transaction, from a control batch."""

    commit: bool
    coordinator_epoch: int


def claimed_header(view: Buffer, at: int = 0) -> BatchHeader | None:
    """The header at that place, unchecked; None where the bytes are too few for a header."""
    if len(view) - at < HEADER_BYTES:
        return None
    base, length, *rest = HEADER.unpack_from(view, at)
    return BatchHeader(base, length + LENGTH_ENDS_AT, *rest)


def parse_header(view: Buffer, at: int = 0) -> BatchHeader | None:
    """The header at that place, or None where this log cannot have written the bytes (too few, other magic,
    impossible numbers). Does not check the CRC. This log's leader epoch is always 0. A cleaned batch has
    fewer records than offsets."""
    if len(view) - at < HEADER_BYTES:
        return None
    base, length, *rest = HEADER.unpack_from(view, at)
    header = BatchHeader(base, length + LENGTH_ENDS_AT, *rest)
    if (
        header.magic != MAGIC
        or header.leader_epoch != 0
        or header.size < HEADER_BYTES
        or header.base_offset < 0
        or header.last_offset_delta < 0
        or not 0 <= header.count <= header.last_offset_delta + 1
    ):
        return None
    return header


def own_header(batch: bytearray) -> BatchHeader:
    """The header of a batch that the broker built itself."""
    header = parse_header(batch)
    assert header is not None, "a batch of our own making has a header"
    return header


def crc_is_right(header: BatchHeader, batch: memoryview) -> bool:
    """Whether the CRC matches the batch's bytes."""
    return bool(crc32c.crc32c(batch[CRC_STARTS_AT:]) == header.crc)


def placed(batch: memoryview, header: BatchHeader, base_offset: int) -> list[Buffer]:
    """The batch's bytes for the log at `base_offset`, with leader epoch 0; the records are not copied.

    The CRC covers neither field.
    """
    start = struct.pack(">qii", base_offset, header.size - LENGTH_ENDS_AT, 0)
    return [start, batch[MAGIC_AT:]]


def stamped(batch: memoryview, header: BatchHeader, base_offset: int, log_append_time_ms: int | None) -> list[Buffer]:
    """Like `placed`, with the broker's timestamp and a new CRC; None removes a client's claim to LogAppendTime."""
    head = bytearray(batch[:HEADER_BYTES])
    struct.pack_into(">qii", head, 0, base_offset, header.size - LENGTH_ENDS_AT, 0)
    if log_append_time_ms is None:
        struct.pack_into(">h", head, CRC_STARTS_AT, header.attributes & ~_LOG_APPEND_TIME)
    else:
        struct.pack_into(">h", head, CRC_STARTS_AT, header.attributes | _LOG_APPEND_TIME)
        struct.pack_into(">q", head, _MAX_TIMESTAMP_AT, log_append_time_ms)
    records = batch[HEADER_BYTES:]
    crc = crc32c.crc32c(records, crc32c.crc32c(head[CRC_STARTS_AT:]))
    struct.pack_into(">I", head, CRC_AT, crc)
    return [head, records]


def framed(header: BatchHeader, content: Buffer) -> bytearray:
    """A whole batch: this header's fields before these (packed) records, with a new size and CRC."""
    batch = bytearray(HEADER_BYTES)
    batch += content
    claims = header._replace(size=len(batch) - LENGTH_ENDS_AT, crc=0)  # the field counts from behind itself
    HEADER.pack_into(batch, 0, *claims)
    struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(memoryview(batch)[CRC_STARTS_AT:]))
    return batch


# ---- the broker's own batches: uncompressed, without headers


def encode_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = 0,
) -> bytearray:
    """A whole uncompressed batch of (key, value); all records have the same timestamp."""
    if not records:
        raise ValueError("a batch needs at least one record")
    content = bytearray()
    for delta, (key, value) in enumerate(records):
        body = bytearray(b"\x00\x00")  # attributes; timestamp delta 0
        put_varint(body, delta)
        for part in (key, value):
            put_varint(body, -1 if part is None else len(part))
            body += part or b""
        body.append(0)  # no headers
        put_varint(content, len(body))
        content += body
    attributes = _TRANSACTIONAL * transactional | _CONTROL * control
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC, 0, attributes, len(records) - 1, timestamp_ms, timestamp_ms, producer_id,
        producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    return framed(header, content)


def encode_marker(
    producer_id: int, producer_epoch: int, marker: EndMarker, *, timestamp_ms: int, base_offset: int = 0
) -> bytearray:
    """A control batch with the end of a transaction (Kafka's EndTransactionMarker, version 0)."""
    key = _MARKER_KEY.pack(0, 1 if marker.commit else 0)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return encode_batch(
        [(key, value)],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def decode_batch(batch: Buffer) -> list[InternalRecord]:
    """The records of an uncompressed batch whose CRC was right; ValueError where it is malformed or compressed."""
    view = memoryview(batch)
    header = parse_header(view)
    if header is None:
        raise ValueError("the bytes are not a complete uncompressed record batch")
    return decode_records(header, view)


def decode_records(header: BatchHeader, batch: Buffer) -> list[InternalRecord]:
    """As `decode_batch`, where the header is known."""
    if header.codec or header.size > len(batch):
        raise ValueError("the bytes are not a complete uncompressed record batch")
    # A start decodes millions of batches, and single bytes of `bytes` are read faster than those of a view.
    body = bytes(batch)
    records = []
    for at, offset, timestamp_ms in walk(body, header):
        key, at = _take(body, at)
        value, at = _take(body, at)
        records.append(InternalRecord(offset, timestamp_ms, key, value))
    return records


def decode_marker(batch: Buffer) -> EndMarker | None:
    """The marker in a control batch; None for kinds that do not end a transaction, and where a cleaner emptied it.

    ValueError where it is malformed.
    """
    decoded = decode_batch(batch)
    if not decoded:
        return None
    (record,) = decoded
    if record.key is None or len(record.key) < _MARKER_KEY.size:
        raise ValueError("a control record's key is too short")
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (0, 1):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise ValueError("a transaction marker's value is too short")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return EndMarker(kind == 1, coordinator_epoch)


def walk(view: Buffer, header: BatchHeader) -> Iterator[tuple[int, int, int]]:
    """(position of the key's length, offset, timestamp) of each record."""
    at = HEADER_BYTES
    for _ in range(header.count):
        length, at = get_varint(view, at)
        end = at + length
        if length < SMALLEST_RECORD_BYTES - 1 or end > header.size:
            raise ValueError("a record does not fit into its batch")
        timestamp_delta, place = get_varint(view, at + 1)
        offset_delta, place = get_varint(view, place)
        yield place, header.base_offset + offset_delta, header.timestamp_ms(timestamp_delta)
        at = end


def _take(view: Buffer, at: int) -> tuple[bytes | None, int]:
    length, at = get_varint(view, at)
    if length < 0:
        return None, at
    if at + length > len(view):
        raise ValueError("a key or value does not fit into its batch")
    return bytes(view[at : at + length]), at + length


def put_varint(out: bytearray, value: int) -> None:
    """Append a number in the records' encoding: zigzag, seven bits a byte."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def get_varint(view: Buffer, at: int) -> tuple[int, int]:
    """(the number at that position, the position behind it); ValueError where it is truncated."""
    if at < len(view) and (first := view[at]) < 0x80:
        return (first >> 1) ^ -(first & 1), at + 1
    value = shift = 0
    while True:
        if at >= len(view) or shift > 63:
            raise ValueError("a number in a record is truncated or too long")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
