"""Compression of a batch's records: the codecs of Kafka's attributes bits, in the framing that Kafka's Java client
reads.

Owns: names and codes of the codecs, xerial's framing for snappy, LZ4 frames of independent blocks, the bound
on the unpacked size of a compressed batch.
Does not know: batches, records.
Invariants:
- Unpacking never allocates more than the bound (and a fraction).
- Bytes that cannot be unpacked raise CorruptBatch; whole ones that are too large raise BatchTooLarge.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_core.errors import BatchTooLarge, CorruptBatch
from kafka_core.values import DEFAULT_UNPACKED_BYTES

CODES: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Bits 0 to 2 of a batch's attributes."""

NAMES: Final = {code: name for name, code in CODES.items()}

MAX_UNPACKED_BYTES: Final = DEFAULT_UNPACKED_BYTES
"""The most that one batch may unpack to where the caller sets no other limit: one bomb must not fill a worker."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
"""snappy-java's own block size. Any size is legal; larger blocks pack hardly better."""

_SNAPPY_AT_MOST: Final = 64
"""Times that a block may unpack to: an element of three bytes copies at most 64. A larger claim is no snappy."""

_LZ4_BLOCK_BYTES: Final = 64 * 1024
"""Kafka's Java client writes this size. Its decoder requires independent blocks; pyarrow's own frames longer
than one block have linked blocks, LZ4's default."""

_LZ4_HEADER: Final = bytes([0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82])
"""Magic; version 1, independent blocks, no checksums; blocks up to 64 KB; xxHash byte of the two before it."""

_LEVELS: Final = {"gzip": 6, "zstd": 3}
"""The levels that Kafka's Java client uses by default (KIP-390), so batches keep their size when a job
migrates to this connector; pyarrow's own are 9, which takes several times as long, and 1."""

_LZ4_STORED: Final = 0x80000000
_FIRST_GUESS: Final = 4
"""Buffer for unpacking, as a multiple of the packed size; it doubles where that was too little."""


_LZ4_FAST: Final = 9
"""The level that Kafka's Java client has for lz4 by default, for which it takes LZ4's fast compressor; every other
level is one of LZ4's high compressor."""

_LZ4_HIGHEST: Final = 12
"""LZ4's own highest level. Higher ones, which Java's binding takes, mean this one."""


def compress(name: str, data: memoryview, level: int | None = None) -> bytes:
    """Pack the records of one batch. `level`: of gzip, lz4 or zstd as the Java client takes it (KIP-390), None
    for Kafka's default. ValueError for a name that Kafka does not have."""
    parts: list[bytes | memoryview]
    if name == "snappy":
        codec = pa.Codec("snappy")
        parts = [_XERIAL_HEADER]
        for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
            block = codec.compress(data[start : start + _XERIAL_BLOCK_BYTES], asbytes=True)
            parts += [struct.pack(">i", len(block)), block]
        return b"".join(parts)
    if name == "lz4":
        fast = level is None or level == _LZ4_FAST
        codec = pa.Codec("lz4_raw", compression_level=None if fast else min(level or 1, _LZ4_HIGHEST))
        parts = [_LZ4_HEADER]
        for start in range(0, len(data), _LZ4_BLOCK_BYTES):
            plain = data[start : start + _LZ4_BLOCK_BYTES]
            block = codec.compress(plain, asbytes=True)
            if len(block) < len(plain):
                parts += [struct.pack("<I", len(block)), block]
            else:
                parts += [struct.pack("<I", len(plain) | _LZ4_STORED), plain]
        return b"".join([*parts, bytes(4)])
    if name not in CODES or name == "none":
        raise ValueError(f"unknown compression {name!r}; Kafka has gzip, snappy, lz4 and zstd")
    chosen = _LEVELS[name] if level is None else level
    packed: bytes = pa.Codec(name, compression_level=chosen).compress(data, asbytes=True)
    return packed


def decompress(code: int, data: memoryview, max_bytes: int = MAX_UNPACKED_BYTES) -> memoryview:
    """Unpack the records of one batch; CorruptBatch where they are garbled, BatchTooLarge where they are larger than
    `max_bytes`.
    """
    try:
        if code == CODES["snappy"]:
            return _unpack_snappy(data, max_bytes)
        if code in NAMES and code != CODES["none"]:
            return _unpack_stream(NAMES[code], data, max_bytes)
    except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
        raise CorruptBatch(f"a batch cannot be decompressed: {error}", {"codec": NAMES[code]}) from error
    raise CorruptBatch("a batch has a compression codec that Kafka does not have", {"codec": code})


def too_large(max_bytes: int) -> BatchTooLarge:
    """The refusal of a batch that takes more memory than is allowed, unpacked or as columns."""
    return BatchTooLarge(
        f"a batch of records takes more than {max_bytes} bytes once it is unpacked, and max.unpacked.bytes allows no more; the batch is "
        "whole, and it was not used; raise max.unpacked.bytes where it is read (a worker needs three times as much memory)",
        {"limit_bytes": max_bytes},
    )


def _unpack_stream(name: str, data: memoryview, max_bytes: int) -> memoryview:
    unpacked: npt.NDArray[np.uint8] = np.empty(min(max_bytes, _FIRST_GUESS * len(data)) + 1, dtype=np.uint8)
    size = 0
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
        while count := stream.readinto(unpacked.data[size:]):
            size += count
            if size > max_bytes:
                raise too_large(max_bytes)
            if size == len(unpacked):
                grown: npt.NDArray[np.uint8] = np.empty(min(2 * size, max_bytes + 1), dtype=np.uint8)
                grown[:size] = unpacked
                unpacked = grown
    return unpacked.data[:size]


def _unpack_snappy(data: memoryview, max_bytes: int) -> memoryview:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unpack_snappy_block(data, max_bytes, max_bytes)
    parts: list[memoryview] = []
    size = 0
    position = 0
    while position < len(data):
        # A writer that appends repeats the header; the header's first bytes are not a valid length.
        if bytes(data[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(data):
            raise ValueError("xerial block without its length")
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length < 0 or length > len(data) - position:
            raise ValueError(f"xerial block of {length} bytes in {len(data) - position}")
        parts.append(_unpack_snappy_block(data[position : position + length], max_bytes - size, max_bytes))
        size += len(parts[-1])
        position += length
    return memoryview(b"".join(parts))


def _unpack_snappy_block(data: memoryview, room: int, max_bytes: int) -> memoryview:
    size = 0
    for index in range(5):
        if index == len(data):
            raise ValueError("snappy block without its length")
        size |= (data[index] & 0x7F) << (7 * index)
        if data[index] < 0x80:
            break
    if size > _SNAPPY_AT_MOST * len(data):
        raise ValueError(f"a snappy block of {len(data)} bytes claims to have {size}")
    if size > room:
        raise too_large(max_bytes)
    return memoryview(pa.Codec("snappy").decompress(data, decompressed_size=size))
