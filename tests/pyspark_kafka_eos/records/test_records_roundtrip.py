"""Rows go through record batches unchanged, whatever they hold and however their columns lie in memory."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_core.errors import InvalidRow, RecordTooLarge
from pyspark_kafka_eos.records import (
    BATCH_OVERHEAD_BYTES,
    HEADERS_TYPE,
    RecordColumns,
    SectionWriter,
    decode,
    decode_chunks,
    decode_many,
    decode_own,
    frame,
    scan,
)
from tests.pyspark_kafka_eos.records.record_rows import (
    Row,
    batch_of,
    columns_of,
    framed,
    rows_of,
    sections_of,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
INT64 = st.integers(-(2**63), 2**63 - 1)

fields = st.one_of(st.none(), st.binary(max_size=200), st.sampled_from([b"", b"x" * 63, b"x" * 64, b"x" * 8192]))
header_lists = st.lists(st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=20))), max_size=5)
rows_strategy = st.lists(st.builds(Row, fields, fields, header_lists.map(tuple), INT64), min_size=1, max_size=60)


@settings(max_examples=60)
@given(rows=rows_strategy, codec=st.sampled_from(CODECS), data=st.data())
def test_any_rows_come_back_from_their_partitions_in_their_order(
    rows: list[Row], codec: str, data: st.DataObject
) -> None:
    partition = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    sections = sections_of(columns_of(rows), partition, partitions=3, size=20_000)
    for wanted in range(3):
        read = [
            row
            for section in sections
            if section.partition == wanted
            for row in rows_of(decode(framed(section, codec)))
        ]
        assert read == [row for row, at in zip(rows, partition, strict=True) if at == wanted]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_every_binary_and_string_type_and_any_slice_of_it_is_written(kind: pa.DataType) -> None:
    rows = [Row(b"k%d" % i if i % 3 else None, b"v" * i if i % 4 else None, (("h", b"%d" % i),)) for i in range(40)]
    whole = columns_of(rows, kind)
    assert whole.key is not None and whole.value is not None and whole.headers is not None
    part = RecordColumns(whole.key[5:37], whole.value[5:37], whole.headers[5:37], np.zeros(32, dtype=np.int64), 32)
    (section,) = sections_of(part, [0] * 32)
    assert rows_of(decode(framed(section))) == rows[5:37]


def test_large_lists_null_lists_and_sliced_header_structs_are_written() -> None:
    entries = pa.StructArray.from_arrays(
        [
            pa.array(["cut", "a", "b", "a", "hidden", "c"]),
            pa.array([b"", b"1", None, b"3", b"4", b""], pa.binary()),
        ],
        names=["key", "value"],
    )[1:]
    offsets = pa.array([0, 2, 3, 4, 5], pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, entries, mask=pa.array([False, False, True, False]))
    columns = RecordColumns(None, None, lists, np.zeros(4, dtype=np.int64), 4)
    (section,) = sections_of(columns, [0] * 4)
    assert [row.headers for row in rows_of(decode(framed(section)))] == [
        (("a", b"1"), ("b", None)), (("a", b"3"),), (), (("c", b""),)
    ]  # fmt: skip


def test_a_header_without_a_key_is_refused_naming_its_row_and_nothing_is_packed() -> None:
    headers = pa.array([None, [{"key": "k", "value": b""}], [{"key": None, "value": b""}]], HEADERS_TYPE)
    writer = SectionWriter(1, 1000, explicit_timestamps=False, digest_seeds=None)
    with pytest.raises(InvalidRow) as refusal:
        writer.append(RecordColumns(None, None, headers, None, 3), np.zeros(3, dtype=np.int32), 0)
    assert refusal.value.facts["row"] == 2
    assert list(writer.flush()) == []


def test_no_rows_make_no_section() -> None:
    assert sections_of(columns_of([]), []) == []


def test_rows_of_many_appends_share_a_section_and_keep_their_stamps() -> None:
    writer = SectionWriter(1, 10_000, explicit_timestamps=False, digest_seeds=None)
    for now_ms in (1000, 1007, 990):
        assert list(writer.append(_values(b"v"), np.zeros(1, dtype=np.int32), now_ms)) == []
    (section,) = writer.flush()
    assert (section.base_timestamp_ms, section.max_timestamp_ms, section.count) == (1000, 1007, 3)
    assert decode(framed(section)).timestamp_ms.tolist() == [1000, 1007, 990]


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=50), limit=st.integers(320, 700))
def test_no_batch_is_longer_than_the_limit_and_its_header(sizes: list[int], limit: int) -> None:
    rows = [Row(None, b"x" * size) for size in sizes]
    sections = sections_of(columns_of(rows), [0] * len(rows), size=limit)
    for section in sections:
        for codec in CODECS:
            assert len(framed(section, codec)) <= limit + BATCH_OVERHEAD_BYTES
    for section, following in itertools.pairwise(sections):
        first = next(iter(rows_of(decode(framed(following)))))
        assert len(section.records) + len(first.value or b"") + 10 > limit, "the section had room for one more"


def test_a_record_of_exactly_the_limit_fits_and_one_byte_more_is_refused_before_anything_is_packed() -> None:
    size = len(sections_of(_stamped(b"x" * 500), [0])[0].records)
    assert len(sections_of(_stamped(b"x" * 500), [0], size=size)) == 1
    writer = SectionWriter(1, size - 1, explicit_timestamps=True, digest_seeds=None)
    with pytest.raises(RecordTooLarge) as refusal:
        writer.append(columns_of([Row(None, b"ok"), Row(None, b"x" * 500)]), np.zeros(2, dtype=np.int32), 0)
    assert refusal.value.facts == {
        "row": 1, "partition": 0,
        "size_bytes": size + BATCH_OVERHEAD_BYTES, "limit_bytes": size - 1 + BATCH_OVERHEAD_BYTES,
    }  # fmt: skip
    assert list(writer.flush()) == []
    assert pickle.loads(pickle.dumps(refusal.value)) == refusal.value


def test_a_record_that_only_fits_compressed_leaves_alone_and_in_its_place() -> None:
    rows = [Row(None, b"a"), Row(None, b"x" * 5000), Row(None, b"b"), Row(None, b"c")]
    sections = sections_of(columns_of(rows), [0] * 4, size=1000, hard_limit_bytes=10_000)
    assert [(section.count, section.row) for section in sections] == [(1, None), (1, 1), (2, None)]
    batches = [framed(section, "zstd") for section in sections]
    assert [row for batch in batches for row in rows_of(decode(batch))] == rows
    assert len(batches[1]) < 1000


def test_a_record_that_does_not_fit_compressed_either_is_refused_with_its_row() -> None:
    noise = np.random.default_rng(1).integers(0, 256, 5000, dtype=np.uint8).tobytes()
    (section,) = sections_of(columns_of([Row(None, noise)]), [0], size=1000, hard_limit_bytes=10_000)
    with pytest.raises(RecordTooLarge) as refusal:
        frame(
            section, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True, compression="zstd",
            max_batch_bytes=1061,
        )  # fmt: skip
    assert (refusal.value.facts["row"], refusal.value.facts["limit_bytes"]) == (0, 1061)


def test_partitions_added_later_take_rows_and_the_older_keep_theirs() -> None:
    writer = SectionWriter(1, 1000, explicit_timestamps=False, digest_seeds=np.array([1], dtype=np.uint64))
    list(writer.append(_values(b"old"), np.array([0], dtype=np.int32), 0))
    writer.grow(2, np.array([2, 3], dtype=np.uint64))
    list(writer.append(_values(b"new"), np.array([2], dtype=np.int32), 0))
    found = {section.partition: rows_of(decode(framed(section)))[0].value for section in writer.flush()}
    assert found == {0: b"old", 2: b"new"}


def test_framing_a_section_again_leaves_the_first_batch_as_it_was() -> None:
    (section,) = sections_of(_stamped(b"v"), [0])
    first = framed(section)
    before = bytes(first)
    second = frame(section, producer_id=4711, producer_epoch=4, base_sequence=0, transactional=True)
    assert bytes(first) == before
    assert next(scan(second))[0].producer_epoch == 4


def test_a_section_survives_pickle() -> None:
    (section,) = sections_of(_stamped(b"v"), [0])
    assert bytes(framed(pickle.loads(pickle.dumps(section)))) == bytes(framed(section))


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_compression_would_enlarge_go_uncompressed(codec: str) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 1000, dtype=np.uint8).tobytes()
    batch = batch_of([Row(None, noise)], codec)
    assert next(scan(batch))[0].compression == "none"
    assert rows_of(decode(batch)) == [Row(None, noise)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_many_compressed_blocks_come_back(codec: str) -> None:
    rows = [Row(b"%d" % i, b"some text %d " % i * 20) for i in range(3000)]
    batch = batch_of(rows, codec)
    assert next(scan(batch))[0].compression == codec
    assert rows_of(decode(batch)) == rows


def test_many_batches_become_one_set_of_columns_and_chunks_hold_the_same() -> None:
    rows = [Row(b"k", b"v" * i, (("h", b"%d" % i),) if i % 2 else ()) for i in range(200)]
    sections = sections_of(columns_of(rows), [0] * 200, size=1000)
    record_set = b"".join(framed(section, CODECS[i % 5]) for i, section in enumerate(sections))
    batches = list(scan(record_set))
    assert len(batches) == len(sections) > 10
    assert rows_of(decode_many(batches)) == rows
    chunks = list(decode_chunks(batches, chunk_bytes=3000))
    assert len(chunks) > 3
    assert [row for chunk in chunks for row in rows_of(chunk)] == rows


def test_of_our_own_topics_a_batch_that_is_too_large_unpacked_or_in_columns_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyspark_kafka_eos.records.batch.MAX_OWN_BYTES", 2_000)
    large, many = [Row(b"k", bytes(2_001))], [Row(None, None)] * 100
    sets = [[Row(b"first", b"1")], large, many, [Row(b"last", b"2")]]
    batches = [each for rows in sets for each in scan(batch_of(rows, "zstd"))]
    assert len(batches) == 4
    passed: list[int] = []

    pieces = list(decode_own(batches, lambda info: passed.append(info.count)))

    assert [row.key for piece in pieces for row in rows_of(piece)] == [b"first", b"last"]
    assert passed == [1, 100]


def test_headers_that_nobody_wants_are_skipped() -> None:
    rows = [Row(b"k", b"v", (("h", b"1"),)), Row(None, b"w")]
    decoded = decode(batch_of(rows), include_headers=False)
    assert decoded.headers is None
    assert [(row.key, row.value) for row in rows_of(decoded)] == [(b"k", b"v"), (None, b"w")]


def test_no_batches_decode_to_no_rows() -> None:
    decoded = decode(b"")
    assert len(decoded) == 0 and decoded.headers is not None and decoded.headers.type == HEADERS_TYPE


def test_rows_between_two_offsets_are_cut_out() -> None:
    decoded = decode(batch_of([Row(None, b"%d" % i) for i in range(10)]))
    assert [row.value for row in rows_of(decoded.between(3, 5))] == [b"3", b"4"]
    assert len(decoded.between(8, 3)) == 0


def _values(*values: bytes) -> RecordColumns:
    return RecordColumns(None, pa.array(values, pa.binary()), None, None, len(values))


def _stamped(value: bytes) -> RecordColumns:
    return columns_of([Row(None, value)])
