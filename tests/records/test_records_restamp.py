"""A finished batch under another identity is the batch that would have been framed for it, byte for byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from connector.errors import InternalError
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


@pytest.mark.parametrize("cut", [1, 61, 10_000])
@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
def test_a_restamped_batch_is_the_one_framed_for_that_identity(compression: str, cut: int) -> None:
    first = frame(
        section(),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        transactional=True,
        compression=compression,
    )
    untouched = bytes(first)

    pieces = [first[start : start + cut] for start in range(0, len(first), cut)]
    stamped = restamp(pieces, producer_id=2**40 + 7, producer_epoch=32_766, base_sequence=2**31 - 5)

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


@pytest.mark.parametrize("lost", ["the end", "a piece", "nothing, but one came twice"])
def test_a_batch_that_is_not_whole_is_not_stamped(lost: str) -> None:
    whole = frame(section(), producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=True)
    pieces = [whole[:100], whole[100:200], whole[200:]]
    arrived = {
        "the end": pieces[:2],
        "a piece": [pieces[0], pieces[2]],
        "nothing, but one came twice": [*pieces[:2], *pieces[1:]],
    }[lost]

    with pytest.raises(InternalError, match="did not arrive as it was packed"):
        restamp(arrived, producer_id=1, producer_epoch=0, base_sequence=0)
