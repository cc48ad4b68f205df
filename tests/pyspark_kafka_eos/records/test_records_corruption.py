"""Bytes that nobody vouches for: every damage ends in CorruptBatch or in a right answer, never in a crash or in
memory.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib

import crc32c
import numpy as np
import pytest

from kafka_core.compression import compress, decompress
from kafka_core.errors import BatchTooLarge, CorruptBatch, UnsupportedVersion
from pyspark_kafka_eos.records import MarkerKind, control_marker, decode, decode_many, digest_of, scan
from tests.pyspark_kafka_eos.records.record_rows import Row, batch_of, rows_of

HEADER_BYTES = 61
ROWS = [Row(b"key%d" % i, b"value" * i, (("h", b"x"), ("g", None)), 1000 + i) for i in range(20)]


def resealed(batch: bytes | bytearray) -> bytes:
    """The batch with the CRC that belongs to it: what a broken or hostile peer would send."""
    fixed = bytearray(batch)
    fixed[17:21] = crc32c.crc32c(bytes(fixed[21:])).to_bytes(4, "big")
    return bytes(fixed)


def _with_records(records: bytes, count: int, codec: int = 0, last_offset_delta: int | None = None) -> bytes:
    delta = max(0, count - 1) if last_offset_delta is None else last_offset_delta
    header = struct.pack(
        ">qiibIhiqqqhii", 0, len(records) + 49, -1, 2, 0, codec, delta, 0, 0, -1, -1, -1, count
    )  # fmt: skip
    return resealed(header + records)


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _record(body: bytes) -> bytes:
    return _varint(len(body)) + body


EMPTY = b"\0\0\0\x01\x01\0"  # attributes, both deltas, null key, null value, no headers


def test_a_flip_of_any_byte_is_noticed_or_harmless() -> None:
    good = bytes(batch_of(ROWS))
    for at in range(len(good)):
        for mask in (0x01, 0x80, 0xFF):
            bad = bytearray(good)
            bad[at] ^= mask
            try:
                decoded = decode(bad)
            except (CorruptBatch, UnsupportedVersion):
                continue
            assert at < 8 or 12 <= at < 16, "only the base offset and the leader epoch are outside of the CRC"
            assert rows_of(decoded) == ROWS


def test_a_cut_at_any_byte_ends_the_walk_before_the_cut_batch() -> None:
    whole = bytes(batch_of(ROWS[:2]))
    for cut in range(len(whole)):
        found = list(scan(whole + whole[:cut]))
        assert [info.count for info, _ in found] == [2]
        if cut:
            with pytest.raises(CorruptBatch):
                decode(whole + whole[:cut])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_random_damage_under_a_valid_crc_is_refused_or_decodes_to_something(codec: str) -> None:
    chance = random.Random(5)
    good = bytes(batch_of(ROWS * 5, codec))
    refused = 0
    for _ in range(1500):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(21, len(bad))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        if bad == good:
            continue
        try:
            decoded = decode(resealed(bad))
        except CorruptBatch:
            refused += 1
            continue
        decoded.key.validate(full=True)
        decoded.value.validate(full=True)
        assert decoded.headers is not None
        decoded.headers.validate(full=True)
    assert refused > 100


@pytest.mark.parametrize(
    ("at", "field"), [(8, ">i"), (23, ">i"), (57, ">i"), (21, ">h"), (0, ">q")],
    ids=["length", "last offset delta", "count", "attributes", "base offset"],
)  # fmt: skip
@pytest.mark.parametrize("value", [-1, 0, 1, 2**31 - 1, -(2**31), 7])
def test_a_header_field_that_lies_is_refused_or_harmless(at: int, field: str, value: int) -> None:
    bad = bytearray(batch_of(ROWS))
    size = struct.calcsize(field)
    bad[at : at + size] = struct.pack(field, (value + 2**15) % 2**16 - 2**15 if size == 2 else value)
    bad = bytearray(resealed(bad))
    try:
        decoded = decode(bad)
    except CorruptBatch:
        return
    assert rows_of(decoded)[0].key == ROWS[0].key


@pytest.mark.parametrize(
    "records",
    [
        _varint(-1) + EMPTY,
        _varint(2**31 - 1) + EMPTY,
        _varint(0) + EMPTY,
        b"\xff" * 12,
        b"\x80" * 5 + b"\x01" + EMPTY,
        b"\xff\xff\xff\xff\x7f" + EMPTY,
        _record(b"\0\0\0" + _varint(-2) + b"\x01\0"),
        _record(b"\0\0\0" + _varint(2**31 - 1) + b"\x01\0"),
        _record(b"\0\0\0\x01" + _varint(3) + b"\0\0"),
        _record(b"\0\0\0\x01\x01" + _varint(-1)),
        _record(b"\0\0\0\x01\x01" + _varint(2**31 - 1)),
        _record(b"\0\0\0\x01\x01" + _varint(1) + b"\x01\x01"),
        _record(b"\0\0\0\x01\x01" + _varint(1) + _varint(1) + b"k" + _varint(5)),
        _record(b"\0\0" + _varint(1) + b"\x01\x01\0"),
        _record(b"\0\0" + _varint(-1) + b"\x01\x01\0"),
        _record(b"\0" + b"\x80" * 10 + b"\x01" + EMPTY),
        _record(EMPTY + b"more"),
        _record(EMPTY) + b"more",
        _record(EMPTY)[:-1],
    ],
    ids=str,
)  # fmt: skip
def test_a_record_that_lies_is_refused(records: bytes) -> None:
    padded = _with_records(records, 1)
    with pytest.raises(CorruptBatch):
        decode(padded)
    with pytest.raises(CorruptBatch):
        digest_of(padded, 0, False)


def test_a_count_that_lies_is_refused_before_memory_is_taken_for_it() -> None:
    for count in (0, 2, 2**31 - 1):
        with pytest.raises(CorruptBatch):
            decode(_with_records(_record(EMPTY), count, last_offset_delta=2**31 - 1))


def test_offsets_must_ascend_and_may_have_gaps() -> None:
    def at(offset: int) -> bytes:
        return _record(b"\0\0" + _varint(offset) + b"\x01\x01\0")

    assert decode(_with_records(at(1) + at(4), 2, last_offset_delta=5)).offset.tolist() == [1, 4]
    with pytest.raises(CorruptBatch):
        decode(_with_records(at(4) + at(4), 2, last_offset_delta=5))


def test_a_batch_that_compaction_emptied_is_read_as_no_rows() -> None:
    batch = _with_records(b"", 0, last_offset_delta=9)
    (found,) = scan(batch)
    assert (found[0].count, found[0].last_offset) == (0, 9)
    assert len(decode_many([found])) == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_the_formats_before_kafka_0_11_are_refused_by_name(magic: int) -> None:
    body = struct.pack(">bbqii", magic, 0, 0, -1, -1)
    message = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body + bytes(64)
    with pytest.raises(UnsupportedVersion) as refusal:
        list(scan(message))
    assert refusal.value.facts["magic"] == magic


def test_batches_before_a_bad_one_are_yielded_and_the_error_names_its_place() -> None:
    good = bytes(batch_of(ROWS))
    bad = bytearray(good)
    bad[-1] ^= 1
    walk = scan(good + bytes(bad))
    assert next(walk)[0].count == len(ROWS)
    with pytest.raises(CorruptBatch) as refusal:
        next(walk)
    assert refusal.value.facts["position"] == len(good)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compression_bomb_is_refused(codec: int) -> None:
    name = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}[codec]
    packed = compress(name, memoryview(bytes(10_000_000)))
    assert len(packed) < 600_000
    with pytest.raises(BatchTooLarge, match=r"more than 9999999 bytes .* raise max\.unpacked\.bytes"):
        decompress(codec, memoryview(packed), 9_999_999)
    assert len(decompress(codec, memoryview(packed), 10_000_000)) == 10_000_000
    with pytest.raises(BatchTooLarge) as refusal:
        decode(_with_records(packed, 1, codec), max_bytes=1_000_000)
    assert refusal.value.facts == {"limit_bytes": 1_000_000, "base_offset": 0}


@pytest.mark.parametrize("bomb", ["headers", "records"])
def test_a_small_batch_of_many_tiny_parts_takes_no_more_than_three_times_the_limit(bomb: str) -> None:
    limit = 8 * 1024 * 1024
    if bomb == "headers":
        count = 3_000_000
        body = b"\0\0\0\x01\x01" + _varint(count) + b"\0\x01" * count
        records, rows = _record(body), 1
    else:
        rows = 400_000
        records = b"".join(_record(b"\0\0" + _varint(number) + b"\x01\x01\0") for number in range(rows))
    assert len(records) < limit
    batch = _with_records(compress("zstd", memoryview(records)), rows, 4)
    assert len(batch) < 1_500_000
    assert len(decode(bytes(batch_of(ROWS)))) == len(ROWS)
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge, match="whole, and it was not used"):
            decode(batch, max_bytes=limit)
        assert tracemalloc.get_traced_memory()[1] < 3 * limit
    finally:
        tracemalloc.stop()
    # Who raises the limit reads it.
    decoded = decode(batch, max_bytes=16 * limit)
    assert len(decoded) == rows


def test_a_value_that_is_as_large_as_the_limit_is_read() -> None:
    size = 3_000_000
    body = b"\0\0\0\x01" + _varint(size) + bytes(size) + b"\0"
    records = _record(body)
    batch = _with_records(compress("zstd", memoryview(records)), 1, 4)

    assert decode(batch, max_bytes=len(records)).value[0].as_py() == bytes(size)
    with pytest.raises(BatchTooLarge):
        decode(batch, max_bytes=len(records) - 1)


def test_a_snappy_block_that_claims_gigabytes_is_refused_before_memory_is_taken() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff", b"\xff"):
        with pytest.raises(CorruptBatch):
            decompress(2, memoryview(claim))


def test_snappy_without_xerial_framing_is_read() -> None:
    import pyarrow as pa

    records = _record(EMPTY)
    packed = pa.Codec("snappy").compress(records, asbytes=True)
    assert len(decode(_with_records(packed, 1, 2))) == 1


def test_header_keys_that_are_not_utf8_are_read_as_java_reads_them() -> None:
    header = _varint(2) + b"\xff\xfe" + _varint(-1)
    decoded = decode(_with_records(_record(b"\0\0\0\x01\x01" + _varint(1) + header), 1))
    assert rows_of(decoded)[0].headers == (("\ufffd\ufffd", None),)


def test_the_brokers_timestamp_wins_where_the_log_says_so() -> None:
    batch = bytearray(batch_of(ROWS))
    batch[22] |= 0x08
    batch[35:43] = struct.pack(">q", 999_999)
    decoded = decode(resealed(batch))
    assert set(decoded.timestamp_ms.tolist()) == {999_999}
    assert decoded.log_append_time.all()


def test_a_batch_that_is_no_marker_is_not_read_as_one() -> None:
    (found,) = scan(batch_of(ROWS[:1]))
    with pytest.raises(CorruptBatch):
        control_marker(found)


def test_a_control_batch_that_compaction_has_emptied_says_nothing_and_is_stepped_over() -> None:
    batch = bytearray(_with_records(b"", 0))
    batch[22] |= 0x20
    (found,) = scan(resealed(batch))
    assert found[0].control
    assert found[0].count == 0
    assert control_marker(found).kind is MarkerKind.OTHER


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)  # fmt: skip
def test_the_checksum_is_crc_32c_of_rfc_3720(data: bytes, checksum: int) -> None:
    assert crc32c.crc32c(data) == checksum


def test_lz4_frames_have_independent_blocks_which_javas_client_demands() -> None:
    noise = np.random.default_rng(2).integers(0, 4, 200_000, dtype=np.uint8)
    packed = compress("lz4", memoryview(noise))
    version, independent = packed[4] >> 6, packed[4] >> 5 & 1
    assert (packed[:4], version, independent) == (b"\x04\x22\x4d\x18", 1, 1)
    assert bytes(decompress(3, memoryview(packed))) == noise.tobytes()
