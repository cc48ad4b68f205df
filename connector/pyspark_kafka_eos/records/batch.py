"""Reads record batches of format v2: finds them in a broker's answer, checks them, makes Arrow columns.

Owns: batch headers, CRC-32C, the order of checks on untrusted bytes, control markers, the records' digest.
Does not know: where the bytes come from, aborted transactions, topics.
Invariants:
- No part of a batch is used before its length, CRC, count and every record in it have been checked.
- Memory is sized by the bytes that are there, never by the value of a field. One batch takes three times the caller's
  limit at most: unpacked, its keys and values in columns, and what columns have beside those.

`sections` writes batches; the bytes of the header and of the records are those of KIP-98.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_core.compression import CODES, MAX_UNPACKED_BYTES, NAMES, decompress, too_large
from kafka_core.errors import BatchTooLarge, CorruptBatch, UnsupportedVersion
from pyspark_kafka_eos.records import decoding, jit
from pyspark_kafka_eos.records.byte_columns import ByteColumn, headers_of
from pyspark_kafka_eos.records.columns import address
from pyspark_kafka_eos.records.sections import (
    BATCH_OVERHEAD_BYTES,
    CRC_STARTS_AT,
    HEADER,
    LENGTH_FIELD_ENDS_AT,
    MAGIC,
    TRANSACTIONAL,
)

_MAGIC_AT: Final = 16
_CODEC_BITS: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20
_ALL_64_BITS: Final = 2**64 - 1
_SIGN_BIT: Final = 2**63

CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Bytes of rows passed on at once: large enough that the work per chunk is negligible, small beside a
worker's 512 MB even while a chunk exists as records, as columns and in Spark's socket."""

_ROW_BYTES: Final = 8 + 8 + 4 + 4 + 4 + 1
"""Of one record in columns: offset, time, the ends of key, value and headers, whose time it is."""

MAX_OWN_BYTES: Final = 64 * 1024 * 1024
"""The most that a batch takes, unpacked and in columns, which this package writes to its ledger or its turns. Half is
what a record there has at most; double only gives those more of a reader's memory who write there without a right."""

_HEADER_BYTES: Final = 4 + 4
"""Of one header: the ends of its key and of its value."""

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class BatchInfo:
    """The header of a batch. `length` is the whole batch in bytes, header included."""

    base_offset: int
    last_offset: int
    length: int
    leader_epoch: int
    compression: str
    transactional: bool
    control: bool
    log_append_time: bool
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int


Batch = tuple[BatchInfo, memoryview]
"""A batch as `scan` yields it: its header, and all of its bytes."""


@dataclass(frozen=True)
class DecodedBatch:
    """Records as columns: key and value (binary), headers (`HEADERS_TYPE`, null where there are none; None if not asked
    for), and per record timestamp, offset and whether the broker set the timestamp."""

    key: pa.Array
    value: pa.Array
    headers: pa.Array | None
    timestamp_ms: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    log_append_time: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.offset)

    def between(self, start: int, end: int) -> DecodedBatch:
        """The records with start <= offset < end, without copying; the offsets must ascend (one partition's do)."""
        first, last = (int(at) for at in np.searchsorted(self.offset, [start, end]))
        return self.rows(first, max(first, last))

    def rows(self, first: int, last: int) -> DecodedBatch:
        """The records at these places, without copying."""
        return DecodedBatch(
            key=self.key[first:last],
            value=self.value[first:last],
            headers=None if self.headers is None else self.headers[first:last],
            timestamp_ms=self.timestamp_ms[first:last],
            offset=self.offset[first:last],
            log_append_time=self.log_append_time[first:last],
        )


class MarkerKind(Enum):
    """The kind of a control batch. OTHER: kinds that do not concern transactions, and batches whose marker
    was removed."""

    ABORT = 0
    COMMIT = 1
    OTHER = -1


@dataclass(frozen=True)
class ControlMarker:
    """The end of a producer's transaction in this partition."""

    kind: MarkerKind
    coordinator_epoch: int


def scan(buffer: Buffer, *, check_crc: bool = True) -> Iterator[Batch]:
    """Walk the record set of a fetch response batch by batch.

    Stops without an error before a batch that is not complete: a broker may cut the last one. The caller
    judges a response that has bytes but yields no batch at all. CorruptBatch (fact `position`) and
    UnsupportedVersion (magic 0 and 1, before Kafka 0.11) are raised when the walk gets there; earlier batches
    have been yielded by then.
    """
    view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
    position = 0
    while len(view) - position > _MAGIC_AT:
        magic = view[position + _MAGIC_AT]
        if magic in (0, 1):
            raise UnsupportedVersion(
                "the log holds messages in the format from before Kafka 0.11 (magic 0 or 1), which has no transactions; "
                "rewrite the topic with a current client",
                {"magic": magic, "position": position},
            )
        length = int.from_bytes(view[position + 8 : position + LENGTH_FIELD_ENDS_AT], "big", signed=True)
        length += LENGTH_FIELD_ENDS_AT
        if magic != MAGIC or length < BATCH_OVERHEAD_BYTES:
            raise CorruptBatch(
                "the bytes at this position are not a record batch of format v2",
                {"position": position, "magic": magic, "length": length},
            )
        if length > len(view) - position:
            return
        batch = view[position : position + length]
        yield _header(batch, position, check_crc), batch
        position += length


def _header(batch: memoryview, position: int, check_crc: bool) -> BatchInfo:
    (
        base_offset, _, leader_epoch, _, checksum, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ) = HEADER.unpack_from(batch)  # fmt: skip
    where = {"base_offset": base_offset, "position": position}
    if check_crc:
        computed = crc32c.crc32c(batch[CRC_STARTS_AT:])
        if computed != checksum & 0xFFFFFFFF:
            raise CorruptBatch("a record batch has a wrong CRC", {**where, "crc": checksum, "computed": computed})
    codec = attributes & _CODEC_BITS
    last_offset = base_offset + last_offset_delta
    if codec not in NAMES:
        raise CorruptBatch("a batch has a compression codec that Kafka does not have", {**where, "codec": codec})
    if base_offset < 0 or last_offset_delta < 0 or last_offset >= _SIGN_BIT:
        raise CorruptBatch("a batch's offsets are impossible", {**where, "last_offset_delta": last_offset_delta})
    if count < 0 or count > last_offset_delta + 1:
        raise CorruptBatch("a batch's record count is impossible", {**where, "count": count})
    return BatchInfo(
        base_offset=base_offset,
        last_offset=last_offset,
        length=len(batch),
        leader_epoch=leader_epoch,
        compression=NAMES[codec],
        transactional=bool(attributes & TRANSACTIONAL),
        control=bool(attributes & _CONTROL),
        log_append_time=bool(attributes & _LOG_APPEND_TIME),
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )


def decode(
    buffer: Buffer | Batch, *, include_headers: bool = True, max_bytes: int = MAX_UNPACKED_BYTES
) -> DecodedBatch:
    """All records of a batch from `scan`, or of bytes that hold one or more, as columns.

    Raises CorruptBatch also where the last batch of the bytes is cut.
    """
    if isinstance(buffer, tuple):
        return decode_many([buffer], include_headers=include_headers, max_bytes=max_bytes)
    batches = list(scan(buffer))
    found = sum(info.length for info, _ in batches)
    if found != len(buffer):
        raise CorruptBatch("a record batch is cut short", {"position": found, "bytes": len(buffer)})
    return decode_many(batches, include_headers=include_headers, max_bytes=max_bytes)


def decode_many(
    batches: Iterable[Batch], *, include_headers: bool = True, max_bytes: int = MAX_UNPACKED_BYTES
) -> DecodedBatch:
    """The records of batches from `scan` as one set of columns, in their order.

    `max_bytes` bounds the unpacked size of one compressed batch, and what its columns take beside it: BatchTooLarge.
    All of them are unpacked at the same time, so pass no more than memory allows (or use `decode_chunks`). CorruptBatch
    names the batch by its base offset.
    """
    unpacked = [(info, _records(info, batch, max_bytes)) for info, batch in batches]
    return _columns(unpacked, include_headers, max_bytes)


def decode_chunks(
    batches: Iterable[Batch], *, include_headers: bool = True, max_bytes: int = MAX_UNPACKED_BYTES,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[DecodedBatch]:  # fmt: skip
    """Like `decode_many`, in pieces: a new one starts once the records before it fill `chunk_bytes` unpacked."""
    unpacked = ((info, _records(info, batch, max_bytes)) for info, batch in batches)
    return _in_pieces(unpacked, include_headers, max_bytes, chunk_bytes)


def decode_own(batches: Iterable[Batch], passing_over: Callable[[BatchInfo], object]) -> Iterator[DecodedBatch]:
    """Keys and values of what this package writes to its own topics, in pieces as of `decode_chunks`.

    `passing_over` is called with each batch that takes more than `MAX_OWN_BYTES`, which is left out. Others who may
    write to the topic would stop every reader with one such batch.
    """

    def small() -> Iterator[tuple[BatchInfo, memoryview]]:
        for info, batch in batches:
            try:
                records = _records(info, batch, MAX_OWN_BYTES)
            except BatchTooLarge:
                passing_over(info)
                continue
            if len(records) + info.count * _ROW_BYTES > MAX_OWN_BYTES:
                passing_over(info)
            else:
                yield info, records

    return _in_pieces(small(), False, MAX_UNPACKED_BYTES, CHUNK_BYTES)


def _in_pieces(
    batches: Iterable[tuple[BatchInfo, memoryview]], include_headers: bool, max_bytes: int, chunk_bytes: int
) -> Iterator[DecodedBatch]:
    pending: list[tuple[BatchInfo, memoryview]] = []
    size = 0
    for info, records in batches:
        if pending and size + len(records) > chunk_bytes:
            yield _columns(pending, include_headers, max_bytes)
            pending, size = [], 0
        pending.append((info, records))
        size += len(records)
    if pending:
        yield _columns(pending, include_headers, max_bytes)


def control_marker(batch: Batch) -> ControlMarker:
    """The marker of a control batch (KIP-98); CorruptBatch where the batch is not a control batch.

    OTHER for a control batch without records: the cleaner of compacted topics removes a marker once no record
    of its transaction is left, and keeps the batch for its producer's epoch.
    """
    info, _ = batch
    if info.control and info.count == 0:
        return ControlMarker(MarkerKind.OTHER, -1)
    decoded = decode_many([batch], include_headers=False)
    key = decoded.key[0].as_py() if info.control and len(decoded) == 1 else None
    value = decoded.value[0].as_py() if key is not None else None
    where = {"base_offset": info.base_offset}
    if key is None or len(key) < 4:
        raise CorruptBatch("a batch is not a control batch or its key is too short", where)
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in (MarkerKind.ABORT.value, MarkerKind.COMMIT.value):
        return ControlMarker(MarkerKind.OTHER, -1)
    if value is None or len(value) < 6:
        raise CorruptBatch("a transaction marker's value is too short", where)
    return ControlMarker(MarkerKind(kind), int.from_bytes(value[2:6], "big", signed=True))


def digest_of(
    batches: Buffer | Iterable[Batch],
    seed: int,
    with_timestamps: bool,
    *,
    max_bytes: int = MAX_UNPACKED_BYTES,
) -> int:
    """The digest (format 1) of whole batches as a `SectionWriter` with this seed would have made it.

    Equal for equal records, regardless of their order, batches, compression and producer. Control batches
    must not be among them.
    """
    jit.load()
    totals = np.zeros(decoding.TOTALS, dtype=np.int64)
    signed_seed = (seed & _ALL_64_BITS ^ _SIGN_BIT) - _SIGN_BIT
    for info, batch in scan(batches) if isinstance(batches, (bytes, bytearray, memoryview)) else batches:
        _judge(info, _records(info, batch, max_bytes), True, totals, 2 if with_timestamps else 1, signed_seed)
    return int(totals[decoding.DIGEST]) & _ALL_64_BITS


def _records(info: BatchInfo, batch: memoryview, max_bytes: int) -> memoryview:
    packed = batch[BATCH_OVERHEAD_BYTES:]
    code = CODES[info.compression]
    if code == 0 or info.count == 0:
        return packed
    try:
        return decompress(code, packed, max_bytes)
    except BatchTooLarge as error:
        raise BatchTooLarge(error.message, {**error.facts, "base_offset": info.base_offset}) from None


def _judge(
    info: BatchInfo, records: memoryview, with_headers: bool, totals: npt.NDArray[np.int64], digest: int = 0, seed: int = 0
) -> int:  # fmt: skip
    if info.count * decoding.SMALLEST_RECORD_BYTES > len(records):
        raise CorruptBatch(
            "a batch claims more records than it has room for",
            {"base_offset": info.base_offset, "count": info.count, "bytes": len(records)},
        )
    where = address(np.frombuffer(records, dtype=np.uint8)) if len(records) else 0
    fault, number = decoding.walk(
        where, len(records), info.count, info.last_offset - info.base_offset, info.base_timestamp_ms,
        int(with_headers), digest, seed, totals,
    )  # fmt: skip
    if fault != decoding.OK:
        raise CorruptBatch(
            f"a record batch is malformed: {decoding.FAULTS[fault]}",
            {"base_offset": info.base_offset, "record": number},
        )
    return where


def _beside_values(totals: npt.NDArray[np.int64]) -> int:
    """Bytes that columns take beside the keys, values and headers themselves, without their bitmaps."""
    return _ROW_BYTES * int(totals[decoding.RECORDS]) + _HEADER_BYTES * int(totals[decoding.HEADERS])


def _columns(batches: Sequence[tuple[BatchInfo, memoryview]], include_headers: bool, max_bytes: int) -> DecodedBatch:
    jit.expect(sum(info.count for info, _ in batches), plain=not include_headers)
    totals = np.zeros(decoding.TOTALS, dtype=np.int64)
    places: list[int] = []
    for info, records in batches:
        before = _beside_values(totals)
        places.append(_judge(info, records, include_headers, totals))
        # A header of two bytes, or a record of seven, takes several times as much in columns.
        if _beside_values(totals) - before > max_bytes:
            error = too_large(max_bytes)
            raise BatchTooLarge(error.message, {**error.facts, "base_offset": info.base_offset})
    sums = [int(total) for total in totals]
    rows = sums[decoding.RECORDS]
    offset = np.empty(rows, dtype=np.int64)
    timestamp_ms = np.empty(rows, dtype=np.int64)
    key = ByteColumn(rows, sums[decoding.KEY_BYTES], sums[decoding.NULL_KEYS])
    value = ByteColumn(rows, sums[decoding.VALUE_BYTES], sums[decoding.NULL_VALUES])
    lists = ByteColumn(rows if include_headers else 0, 0, sums[decoding.NO_HEADERS])
    header_key = ByteColumn(sums[decoding.HEADERS], sums[decoding.HEADER_KEY_BYTES], 0)
    header_value = ByteColumn(
        sums[decoding.HEADERS], sums[decoding.HEADER_VALUE_BYTES], sums[decoding.NULL_HEADER_VALUES]
    )
    list_ends, _, list_valid = lists.addresses()
    outputs = np.array(
        [
            address(offset), address(timestamp_ms), *key.addresses(), *value.addresses(), list_ends, list_valid,
            *header_key.addresses()[:2], *header_value.addresses(),
        ],
        dtype=np.int64,
    )  # fmt: skip
    cursors = np.zeros(decoding.TOTALS, dtype=np.int64)
    for (info, records), place in zip(batches, places, strict=True):
        timestamp = info.max_timestamp_ms if info.log_append_time else info.base_timestamp_ms
        decoding.fill(
            place, len(records), info.count, info.base_offset, timestamp, int(info.log_append_time),
            int(include_headers), address(outputs), cursors,
        )  # fmt: skip
    counts = [info.count for info, _ in batches]
    return DecodedBatch(
        key=key.array(pa.binary()),
        value=value.array(pa.binary()),
        headers=headers_of(lists, header_key, header_value) if include_headers else None,
        timestamp_ms=timestamp_ms,
        offset=offset,
        log_append_time=np.repeat(np.array([info.log_append_time for info, _ in batches], dtype=np.bool_), counts),
    )
