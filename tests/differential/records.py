"""Record batches as a script needs them: by kafka-python's writer, also damaged ones, and what a fetched log says in
words.

Owns: layouts of batches that no correct client sends.
Does not know: our own codec, which the embedded broker may share; brokers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka.errors import KafkaError
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.util import calc_crc32c

FIRST_TIMESTAMP_MS = 1_600_000_000_000
"""Of a script's records: far enough from now that a broker's own times are told apart from it."""

_LENGTH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _LAST_DELTA_AT, _COUNT_AT = 8, 16, 17, 21, 23, 57
_BEFORE_LENGTH_COUNTS = 12
_HEADER_BYTES = 61


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int

    def later(self, by: int) -> Identity:
        """The same producer some epochs on, or before."""
        return Identity(self.producer_id, self.epoch + by)


NOBODY = Identity(-1, -1)


def batch(
    *values: bytes,
    who: Identity = NOBODY,
    sequence: int = -1,
    transactional: bool = False,
    codec: int = 0,
    timestamps: Sequence[int] = (),
    keys: Sequence[bytes | None] = (),
) -> bytes:
    """A batch of the values, the i-th record i ms after FIRST_TIMESTAMP_MS unless `timestamps` says otherwise; no keys
    unless given.
    """
    builder = DefaultRecordBatchBuilder(2, codec, transactional, *who, sequence, 1 << 24)
    for index, value in enumerate(values):
        at = timestamps[index] if timestamps else FIRST_TIMESTAMP_MS + index
        key = keys[index] if keys else None
        builder.append(index, timestamp=at, key=key, value=value, headers=[])
    return bytes(builder.build())


def keyed(
    pairs: Sequence[tuple[str, str | None]], *, timestamp_ms: int, who: Identity = NOBODY, sequence: int = -1,
    transactional: bool = False, codec: int = 0,
) -> bytes:  # fmt: skip
    """A batch of records with keys; a value of None is a tombstone."""
    builder = DefaultRecordBatchBuilder(2, codec, transactional, *who, sequence, 1 << 24)
    for index, (key, value) in enumerate(pairs):
        content = None if value is None else value.encode()
        builder.append(index, timestamp=timestamp_ms, key=key.encode(), value=content, headers=[])
    return bytes(builder.build())


def empty_batch(who: Identity = NOBODY, sequence: int = -1) -> bytes:
    """A header that announces no record."""
    whole = bytearray(batch(b"x", who=who, sequence=sequence)[:_HEADER_BYTES])
    struct.pack_into(">i", whole, _LENGTH_AT, _HEADER_BYTES - _BEFORE_LENGTH_COUNTS)
    struct.pack_into(">i", whole, _LAST_DELTA_AT, -1)
    struct.pack_into(">i", whole, _COUNT_AT, 0)
    return _with_crc(whole)


def old_batch(value: bytes) -> bytes:
    """A message set of magic 1."""
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 16)
    builder.append(0, timestamp=FIRST_TIMESTAMP_MS, key=None, value=value)
    return bytes(builder.build())


def with_bad_crc(whole: bytes) -> bytes:
    """One bit of the checksum is wrong."""
    changed = bytearray(whole)
    changed[_CRC_AT] ^= 1
    return bytes(changed)


def with_count(whole: bytes, count: int) -> bytes:
    """The header announces that many records; the checksum is right."""
    changed = bytearray(whole)
    struct.pack_into(">i", changed, _COUNT_AT, count)
    return _with_crc(changed)


def with_last_delta(whole: bytes, delta: int) -> bytes:
    """The header says that the last record has this offset delta; the checksum is right."""
    changed = bytearray(whole)
    struct.pack_into(">i", changed, _LAST_DELTA_AT, delta)
    return _with_crc(changed)


def with_attributes(whole: bytes, flags: int) -> bytes:
    """Some attribute bits are set in addition; the checksum is right."""
    changed = bytearray(whole)
    (before,) = struct.unpack_from(">h", changed, _ATTRIBUTES_AT)
    struct.pack_into(">h", changed, _ATTRIBUTES_AT, before | flags)
    return _with_crc(changed)


def with_magic(whole: bytes, magic: int) -> bytes:
    """The header claims another format; the checksum does not cover that."""
    changed = bytearray(whole)
    changed[_MAGIC_AT] = magic & 0xFF
    return bytes(changed)


def with_length(whole: bytes, length: int) -> bytes:
    """The header claims another length; the checksum does not cover that."""
    changed = bytearray(whole)
    struct.pack_into(">i", changed, _LENGTH_AT, length)
    return bytes(changed)


def read(log: bytes | None) -> list[dict[str, Any]]:
    """What stands in a fetched log: one entry a whole batch. A batch that the fetch's limit cut is left out."""
    return [_in_words(each) for each in whole_batches(log)]


def whole_batches(log: bytes | None) -> list[DefaultRecordBatch]:
    """The batches of a fetched log, but for one that the fetch's limit cut."""
    found = []
    at = 0
    data = bytes(log or b"")
    while at + _HEADER_BYTES <= len(data):
        (length,) = struct.unpack_from(">i", data, at + _LENGTH_AT)
        size = length + _BEFORE_LENGTH_COUNTS
        if at + size > len(data):
            break
        found.append(DefaultRecordBatch(data[at : at + size]))
        at += size
    return found


def _in_words(one: DefaultRecordBatch) -> dict[str, Any]:
    assert one.validate_crc(), f"the batch at offset {one.base_offset} is damaged"
    said = {
        "offsets": [one.base_offset, one.last_offset],
        "producer_id": one.producer_id,
        "epoch": one.producer_epoch,
        "sequence": one.base_sequence,
    }
    if one.is_control_batch:
        said["marker"] = "/".join("commit" if record.commit else "abort" for record in one)
        return said
    said["transactional"] = one.is_transactional
    said["codec"] = one.compression_type
    said["max_timestamp"] = one.max_timestamp
    said["timestamp_type"] = one.timestamp_type
    try:
        said["values"] = [bytes(record.value[:16]).decode() for record in one if record.value is not None]
    except (OSError, ValueError, IndexError, struct.error, KafkaError) as error:
        said["values"] = f"unreadable: {type(error).__name__}"
    return said


def _with_crc(changed: bytearray) -> bytes:
    struct.pack_into(">I", changed, _CRC_AT, calc_crc32c(memoryview(changed)[_ATTRIBUTES_AT:]))
    return bytes(changed)
