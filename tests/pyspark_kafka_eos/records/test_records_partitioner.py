"""Rows go where Java's client would send them, unless they name their own partition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from kafka_core.errors import InternalError, InvalidRow
from pyspark_kafka_eos.records import Partitioner, RecordColumns, encode_topics, murmur2_of


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_gives_the_vectors_of_kafkas_own_tests(key: str, hashed: int) -> None:
    assert murmur2_of(pa.array([None, key])).tolist() == [0, hashed]


def test_a_key_goes_to_its_positive_hash_modulo_the_partitions() -> None:
    keys = pa.array([b"%d" % i for i in range(500)] + [b""], pa.binary())
    expected = [(hashed & 0x7FFFFFFF) % 7 for hashed in murmur2_of(keys).tolist()]
    assert Partitioner([7], 0, 1000).assign(_rows(key=keys), 0, None).tolist() == expected


def test_kafka_python_hashes_keys_alike() -> None:
    keys = [bytes(range(255 - size, 255)) for size in range(60)]
    theirs = [murmur2(key) & 0xFFFFFFFF for key in keys]
    assert [hashed & 0xFFFFFFFF for hashed in murmur2_of(pa.array(keys)).tolist()] == theirs


def test_rows_without_a_key_fill_one_partition_before_the_next_has_its_turn() -> None:
    partitioner = Partitioner([3], 1, 1100)
    rows = _rows(value=pa.array([bytes(100)] * 35, pa.binary()))
    first = partitioner.assign(rows, 0, None).tolist()
    assert first == [1] * 10 + [2] * 10 + [0] * 10 + [1] * 5
    assert partitioner.assign(rows, 0, None).tolist()[:6] == [1] * 5 + [2], "it goes on where it was"


def test_the_same_rows_from_the_same_start_go_to_the_same_partitions() -> None:
    rows = _rows(value=pa.array([bytes(i % 90) for i in range(300)], pa.binary()))
    assert (Partitioner([4], 2, 500).assign(rows, 0, None) == Partitioner([4], 2, 500).assign(rows, 0, None)).all()


def test_a_partition_named_by_the_row_wins() -> None:
    rows = _rows(key=pa.array([b"a", b"a", None, b"a"], pa.binary()))
    by_key = Partitioner([5], 0, 100).assign(rows, 0, None).tolist()
    own = pa.array([9, 4, 0, None, 3], pa.int32())[1:]
    assert Partitioner([5], 0, 100).assign(rows, 0, own).tolist() == [4, 0, by_key[2], 3]


@pytest.mark.parametrize("partition", [-1, 5, 2**31 - 1])
def test_a_partition_that_the_topic_does_not_have_is_refused_and_nothing_moves(partition: int) -> None:
    partitioner = Partitioner([5], 0, 100)
    rows = _rows(value=pa.array([bytes(60)] * 4, pa.binary()))
    with pytest.raises(InvalidRow) as refusal:
        partitioner.assign(rows, 0, pa.array([None, None, None, partition], pa.int32()))
    assert refusal.value.facts == {"row": 3, "partition": partition, "partitions": 5, "topic_index": 0}
    assert partitioner.assign(rows, 0, None).tolist() == Partitioner([5], 0, 100).assign(rows, 0, None).tolist()


def test_every_topic_has_its_own_range_of_indexes_also_one_that_comes_later() -> None:
    partitioner = Partitioner([2, 3], 0, 10**6)
    assert partitioner.add_topic(4) == 2
    assert partitioner.num_partitions == 9
    rows = _rows(key=pa.array([None] * 3, pa.binary()))
    own = pa.array([1, 2, 3], pa.int32())
    assert partitioner.assign(rows, np.array([0, 1, 2], dtype=np.int32), own).tolist() == [1, 4, 8]


@pytest.mark.parametrize("topic", [-1, 1])
def test_a_topic_that_was_never_added_is_a_bug_and_says_so(topic: int) -> None:
    with pytest.raises(InternalError):
        Partitioner([2], 0, 100).assign(_rows(key=pa.array([b"k"])), np.array([topic], dtype=np.int32), None)


@pytest.mark.parametrize("encoded", [False, True])
def test_topic_names_become_indexes_and_null_stays_apart(encoded: bool) -> None:
    names = pa.array(["x", "b", "a", None, "b"])[1:]
    codes, found = encode_topics(names.dictionary_encode() if encoded else names)
    assert [found[code] if code >= 0 else None for code in codes.tolist()] == ["b", "a", None, "b"]


def _rows(key: pa.Array | None = None, value: pa.Array | None = None) -> RecordColumns:
    return RecordColumns(key, value, None, None, len(key if key is not None else value))
