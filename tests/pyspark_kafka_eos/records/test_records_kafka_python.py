"""What we write kafka-python reads, and what it writes we read (it is an implementation of its own, in plain
Python).
"""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from pyspark_kafka_eos.records import control_marker, decode, digest_of, scan
from pyspark_kafka_eos.records.batch import MarkerKind
from tests.pyspark_kafka_eos.records.record_rows import Row, batch_of, rows_of

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ROWS = [
    Row(
        None if i % 5 == 0 else b"key-%d" % i,
        None if i % 7 == 0 else b"value %d " % i * (i % 40),
        tuple((f"h{j % 2}", None if j == 1 else b"%d" % j) for j in range(i % 4)),
        1_700_000_000_000 + i * 13 % 101,
    )
    for i in range(2500)
]


def _built(rows: list[Row], codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, True, 4711, 3, 17, 10_000_000)
    for offset, row in enumerate(rows):
        builder.append(offset, row.timestamp_ms, row.key, row.value, list(row.headers))
    return bytes(builder.build())


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_our_batches(codec: str) -> None:
    theirs = DefaultRecordBatch(bytes(batch_of(ROWS, codec)))
    assert theirs.validate_crc()
    assert (theirs.compression_type, theirs.is_transactional, theirs.is_control_batch) == (
        CODECS[codec],
        True,
        False,
    )
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (4711, 3, 17)
    assert (theirs.base_offset, theirs.leader_epoch, theirs.records_count) == (0, -1, len(ROWS))
    assert (theirs.first_timestamp, theirs.max_timestamp) == (
        ROWS[0].timestamp_ms, max(row.timestamp_ms for row in ROWS)
    )  # fmt: skip
    read = list(theirs)
    assert [record.offset for record in read] == list(range(len(ROWS)))
    assert [Row(record.key, record.value, tuple(record.headers), record.timestamp) for record in read] == ROWS


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_kafka_pythons_batches(codec: str) -> None:
    batch = _built(ROWS, CODECS[codec])
    (info, _), *others = scan(batch)
    assert not others
    assert (info.compression, info.transactional, info.control, info.count) == (codec, True, False, len(ROWS))
    assert (info.producer_id, info.producer_epoch, info.base_sequence) == (4711, 3, 17)
    decoded = decode(batch)
    assert rows_of(decoded) == ROWS
    assert decoded.offset.tolist() == list(range(len(ROWS)))


def test_uncompressed_batches_of_both_are_the_same_bytes() -> None:
    ours, theirs = bytearray(batch_of(ROWS)), bytearray(_built(ROWS, 0))
    theirs[12:16] = ours[12:16]  # the leader epoch, which only a broker sets: we write -1, they write 0
    assert ours == theirs


def test_both_have_the_same_digest_under_any_compression() -> None:
    expected = digest_of(batch_of(ROWS), 99, True)
    assert {digest_of(_built(ROWS, codec), 99, True) for codec in CODECS.values()} == {expected}


@pytest.mark.parametrize(("kind", "marker"), [(0, MarkerKind.ABORT), (1, MarkerKind.COMMIT), (4, MarkerKind.OTHER)])
def test_control_batches_say_how_a_transaction_ended(kind: int, marker: MarkerKind) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, True, 4711, 3, -1, 1000)
    builder.append(0, 5, b"\0\0" + kind.to_bytes(2, "big"), b"\0\0" + (77).to_bytes(4, "big"), [])
    batch = _as_control(bytearray(builder.build()))
    (found,) = scan(batch)
    assert found[0].control
    assert DefaultRecordBatch(bytes(batch)).is_control_batch
    assert control_marker(found).kind is marker
    assert control_marker(found).coordinator_epoch == (-1 if marker is MarkerKind.OTHER else 77)


def _as_control(batch: bytearray) -> bytearray:
    import crc32c

    batch[22] |= 0x20
    batch[17:21] = crc32c.crc32c(batch[21:]).to_bytes(4, "big")
    return batch
