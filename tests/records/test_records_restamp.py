"""A finished batch under another identity is the batch that would have been framed for it, byte for byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from connector.records import RecordColumns, Section, SectionWriter, frame, restamp


def section() -> Section:
    values = pa.array([b"some value %d" % number for number in range(200)], pa.binary())
    writer = SectionWriter(1, 100_000, explicit_timestamps=False, digest_seeds=None)
    assert not list(
        writer.append(
            RecordColumns(None, values, None, None, 200), np.zeros(200, dtype=np.int32), 1_700_000_000_000
        )
    )
    (found,) = writer.flush()
    return found


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
def test_a_restamped_batch_is_the_one_framed_for_that_identity(compression: str) -> None:
    first = frame(
        section(),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        transactional=True,
        compression=compression,
    )
    untouched = bytes(first)

    stamped = restamp(first, producer_id=2**40 + 7, producer_epoch=32_766, base_sequence=2**31 - 5)

    wanted = frame(
        section(),
        producer_id=2**40 + 7,
        producer_epoch=32_766,
        base_sequence=2**31 - 5,
        transactional=True,
        compression=compression,
    )
    assert bytes(stamped) == bytes(wanted)
    assert bytes(first) == untouched != bytes(stamped)
