"""Digest format 1, which the ledger keeps: the same number for the same records for ever, another for any other."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafka_eos.records import (
    BATCH_OVERHEAD_BYTES,
    RecordColumns,
    SectionWriter,
    decode,
    digest_of,
    kernels,
)
from tests.pyspark_kafka_eos.records.record_rows import Row, batch_of, columns_of, framed, sections_of

MASK = 2**64 - 1
PI = (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89, 0x452821E638D01377)


def _fold(left: int, right: int) -> int:
    product = (left & MASK) * (right & MASK)
    return (product & MASK) ^ (product >> 64)


def _reference(data: bytes, seed: int) -> int:
    """Digest format 1 as the documentation of `hashing.hash_bytes` has it, written without looking at its loops."""
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) & ~15, 8)]
    left, right = seed ^ PI[0], seed ^ PI[1]
    for index in range(0, len(words), 2):
        whole_step = index // 4 * 32 + 32 <= len(data)
        if index % 4 == 0 or not whole_step:
            left = _fold(words[index] ^ PI[2], words[index + 1] ^ left)
        else:
            right = _fold(words[index] ^ PI[3], words[index + 1] ^ right)
    tail = data[len(data) & ~15 :]
    first = last = 0
    if len(tail) >= 8:
        first, last = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[-8:], "little")
    elif len(tail) >= 4:
        first, last = int.from_bytes(tail[:4], "little"), int.from_bytes(tail[-4:], "little")
    elif tail:
        first = tail[0] | tail[len(tail) // 2] << 8 | tail[-1] << 16
    right = _fold(first ^ PI[3], last ^ right)
    return _fold(left ^ len(data), right ^ PI[4])


def _content(value: bytes) -> bytes:
    """Key length to the end of a record without key and headers."""
    size = len(value) << 1
    length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    return b"\x01" + length + value + b"\0"


@pytest.mark.parametrize("size", [*range(100), 1000, 8000])
def test_the_digest_of_a_record_is_the_documented_hash_of_its_bytes(size: int) -> None:
    value = random.Random(size).randbytes(size)
    for seed in (0, 1, MASK, 2**63):
        (section,) = _sections([value], seed)
        assert section.digest == _reference(_content(value), seed)


@pytest.mark.parametrize("key", [None, b"", b"k", b"k" * 31, b"k" * 63, b"k" * 700])
@pytest.mark.parametrize("headers", [(), (("h", b"x" * 40),)])
def test_a_value_that_is_hashed_while_it_is_copied_has_the_documented_digest(
    key: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    """Every place of the first step in the value, and every rest behind the last one."""
    edge = kernels.HASHED_WHILE_COPIED_BYTES
    sizes = [None, *range(3), *range(edge - 70, edge + 70), 8192]
    rows = [Row(key, None if size is None else random.Random(size).randbytes(size), headers, 7) for size in sizes]
    for row in rows:
        (section,) = sections_of(columns_of([row]), [0], seed=9)
        batch = framed(section)
        # Behind the header: length, attributes, timestamp delta, offset delta; then what the digest covers.
        records = bytes(batch[BATCH_OVERHEAD_BYTES:])
        prefix = next(at for at in range(1, 6) if records[at - 1] < 0x80) + 3
        mixed = _fold(9 ^ PI[4], (7 & MASK) ^ PI[2])
        assert section.digest == _reference(records[prefix:], mixed) == digest_of(batch, 9, True)
        decoded = decode(batch)
        assert (decoded.key[0].as_py(), decoded.value[0].as_py()) == (row.key, row.value)
        assert ((decoded.headers is not None and decoded.headers[0].as_py()) or []) == [
            {"key": name, "value": value} for name, value in headers
        ]


@pytest.mark.parametrize(
    ("value", "seed", "digest"),
    [
        (b"", 0, 15275550665398507778),
        (b"exactly once", 7, 6723562412908287861),
        (bytes(range(100)), 2**63 + 1, 17565700599435644066),
    ],
)
def test_format_1_is_pinned(value: bytes, seed: int, digest: int) -> None:
    (section,) = _sections([value], seed)
    assert section.digest == digest


def test_a_timestamp_of_the_row_is_part_of_its_digest() -> None:
    (section,) = sections_of(columns_of([Row(None, b"v", (), -5)]), [0], seed=3)
    mixed = _fold(3 ^ PI[4], (-5 & MASK) ^ PI[2])
    assert section.digest == _reference(_content(b"v"), mixed)
    assert digest_of(framed(section), 3, True) == section.digest
    assert digest_of(framed(section), 3, False) != section.digest


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_order_partitions_and_batches_do_not_matter(codec: str) -> None:
    rows = [Row(b"k%d" % i, b"v" * (i % 50), (("h", None),) * (i % 3), i * 1000) for i in range(400)]
    whole = digest_of(batch_of(rows), 42, True)
    shuffled = random.Random(1).sample(rows, len(rows))
    sections = sections_of(columns_of(shuffled), [i % 3 for i in range(400)], partitions=3, size=700, seed=42)
    assert len(sections) > 10
    assert sum(section.digest for section in sections) & MASK == whole
    assert sum(digest_of(framed(section, codec), 42, True) for section in sections) & MASK == whole


def test_any_change_of_a_record_changes_the_digest() -> None:
    base = Row(b"key", b"value", (("a", b"1"), ("b", None)), 5)
    others = [
        base._replace(key=None), base._replace(key=b""), base._replace(key=b"kex"), base._replace(value=None),
        base._replace(key=b"keyv", value=b"alue"), base._replace(headers=()), base._replace(timestamp_ms=6),
        base._replace(headers=(("b", None), ("a", b"1"))), base._replace(headers=(("a", b"1"), ("b", b""))),
    ]  # fmt: skip
    digests = {digest_of(batch_of([row]), 1, True) for row in [base, *others]}
    assert len(digests) == len(others) + 1
    assert digest_of(batch_of([base, base]), 1, True) != digest_of(batch_of([base]), 1, True)
    assert digest_of(batch_of([base]), 2, True) != digest_of(batch_of([base]), 1, True)


def test_a_writer_without_seeds_makes_no_digests() -> None:
    (section,) = sections_of(columns_of([Row(None, b"v")]), [0], seed=None)
    assert section.digest == 0


def _sections(values: list[bytes], seed: int) -> list:  # type: ignore[type-arg]
    writer = SectionWriter(1, 100_000, explicit_timestamps=False, digest_seeds=np.array([seed], dtype=np.uint64))
    columns = RecordColumns(None, pa.array(values, pa.binary()), None, None, len(values))
    return [*writer.append(columns, np.zeros(len(values), dtype=np.int32), 1), *writer.flush()]
