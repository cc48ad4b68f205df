"""A packed batch that gets its identity later is the batch that would have been framed for it, byte for byte."""

from __future__ import annotations

import random

import crc32c
import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafka_eos.records import RecordColumns, Section, SectionWriter, frame, pack, scan, stamp
from pyspark_kafka_eos.records.hashing import joined_crc


def section() -> Section:
    values = pa.array([b"some value %d" % number for number in range(200)], pa.binary())
    writer = SectionWriter(1, 100_000, explicit_timestamps=False, digest_seeds=None)
    assert not list(
        writer.append(RecordColumns(None, values, None, None, 200), np.zeros(200, dtype=np.int32), 1_700_000_000_000)
    )
    (found,) = writer.flush()
    return found


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
def test_a_batch_that_is_stamped_later_is_the_one_framed_for_that_identity(compression: str) -> None:
    packed = pack(section(), transactional=True, compression=compression)
    before = bytes(packed.batch)

    stamped = stamp(packed, producer_id=2**40 + 7, producer_epoch=32_766, base_sequence=2**31 - 5)

    wanted = frame(
        section(),
        producer_id=2**40 + 7,
        producer_epoch=32_766,
        base_sequence=2**31 - 5,
        transactional=True,
        compression=compression,
    )
    assert bytes(stamped) == bytes(wanted) != before
    ((info, _),) = scan(bytes(stamped))
    assert (info.producer_id, info.producer_epoch, info.base_sequence) == (2**40 + 7, 32_766, 2**31 - 5)


def test_a_section_that_is_packed_again_leaves_the_earlier_batch_as_it_was() -> None:
    once = section()
    first = stamp(pack(once, transactional=True), producer_id=1, producer_epoch=0, base_sequence=0)
    kept = bytes(first)

    second = stamp(pack(once, transactional=True), producer_id=2, producer_epoch=0, base_sequence=7)

    assert bytes(first) == kept != bytes(second)


def test_a_batch_that_is_stamped_again_is_the_one_framed_for_the_second_identity() -> None:
    packed = pack(section(), transactional=True)
    stamp(packed, producer_id=1, producer_epoch=0, base_sequence=0)

    again = stamp(packed, producer_id=2, producer_epoch=5, base_sequence=7)

    wanted = frame(section(), producer_id=2, producer_epoch=5, base_sequence=7, transactional=True)
    assert bytes(again) == bytes(wanted)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 63, 64, 255, 1_000, 65_537, 3_000_001])
def test_the_crc_of_two_runs_of_bytes_follows_from_the_crc_of_each(size: int) -> None:
    chance = random.Random(size)
    for first in (b"", b"\0" * 40, chance.randbytes(40), chance.randbytes(1_001)):
        for second in (chance.randbytes(size), b"\0" * size, b"\xff" * size):
            assert joined_crc(crc32c.crc32c(first), crc32c.crc32c(second), size) == crc32c.crc32c(first + second)
