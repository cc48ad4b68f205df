"""A few records are packed and read by Python alone, with the results of machine code."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.records import (
    SectionWriter,
    decode,
    decode_many,
    decoding,
    hashing,
    jit,
    kernels,
    memory,
    murmur2_of,
    scan,
)
from tests.pyspark_kafka_eos.records.record_rows import Row, batch_of, columns_of, sections_of
from tests.pyspark_kafka_eos.records.test_records_corruption import resealed
from tests.pyspark_kafka_eos.records.test_records_warm import run

ALL = [
    each for module in (kernels, decoding, hashing) for each in vars(module).values() if isinstance(each, jit.Kernel)
]
CHANGED = 400


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """A switch between Python and machine code."""
    jit.load()
    made = {each: each.compiled for each in ALL}

    def switch(on: bool) -> None:
        for each in ALL:
            # Also rows with headers, which Python does not take by itself.
            monkeypatch.setattr(each, "_compiled", each.function if on else made[each])

    with np.errstate(over="ignore"):
        yield switch


def some_rows(chance: random.Random, largest: int = 1_500) -> list[Row]:
    def some(most: int) -> bytes | None:
        return chance.choice([None, b"", chance.randbytes(chance.randrange(most))])

    # Within 2^62 of each other both ways, and beyond: a delta that does not fit wraps in both.
    times = [0, 1_700_000_000_000, -5, 2**62, -(2**62), 2**63 - 1, -(2**63)]
    return [
        Row(
            some(largest // 20 + 1),
            some(largest),
            tuple((f"h{n}", some(largest // 40 + 2)) for n in range(chance.randrange(3))),
            chance.choice(times) if chance.random() < 0.2 else chance.randrange(2**41),
        )
        for _ in range(chance.randrange(1, 32))
    ]


def packed(rows: list[Row], seed: int) -> list[tuple[int, int, int, int, int, bytes]]:
    partitions = [at % 3 for at in range(len(rows))]
    return [
        (
            each.partition,
            each.count,
            each.base_timestamp_ms,
            each.max_timestamp_ms,
            each.digest,
            bytes(each.records),
        )
        for each in sections_of(columns_of(rows), partitions, partitions=3, size=3_000, seed=seed)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_packed_by_python_to_the_same_bytes_and_digests(
    interpreted: Callable[[bool], None], seed: int
) -> None:
    rows = some_rows(random.Random(seed))
    found = []
    for on in (True, False):
        interpreted(on)
        found.append((packed(rows, 2**63 + seed), murmur2_of(columns_of(rows).key).tolist()))
    assert found[0] == found[1]


def outcome(batch: bytes, headers: bool) -> Any:
    """What a reader gets of a batch, or the error."""
    try:
        decoded = decode(batch, include_headers=headers)
        columns = [decoded.key, decoded.value, decoded.headers]
        return (
            [None if column is None else column.to_pylist() for column in columns],
            decoded.offset.tolist(),
            decoded.timestamp_ms.tolist(),
        )
    except (ExactlyOnceError, ValueError) as error:
        return repr(error)


@pytest.mark.parametrize("seed", range(6))
def test_bytes_are_read_by_python_to_the_same_rows_or_the_same_refusal(
    interpreted: Callable[[bool], None], seed: int
) -> None:
    chance = random.Random(seed)
    interpreted(False)
    good = bytes(batch_of(some_rows(chance, 20)))
    refused = 0
    for number in range(CHANGED):
        batch = bytearray(good)
        for _ in range(number and chance.randrange(1, 4)):
            batch[chance.randrange(61, len(batch))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        changed = resealed(batch)
        found = []
        for on in (True, False):
            interpreted(on)
            found.append([outcome(changed, headers) for headers in (False, True)])
        assert found[0] == found[1]
        refused += isinstance(found[0][1], str)
    assert 20 < refused < CHANGED


def test_words_are_the_same_for_python_and_for_machine_code() -> None:
    from numba import njit

    known = memory.intrinsics()
    load8, fold = known[memory.load8], known[memory.fold]
    compiled = njit(lambda at, other: (load8(at), fold(load8(at), other)))
    for bits in (0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF):
        word = np.array([bits], dtype=np.uint64)
        at = word.ctypes.data
        for other in (0, -1, 2**63 - 1, -(2**63), 0x13198A2E03707344):
            assert compiled(at, other) == (memory.load8(at), memory.fold(memory.load8(at), other))


ALONE = """
import sys
from pyspark_kafka_eos.client.writing.appending import lone_batch
from pyspark_kafka_eos.commit.drivers import driver_for
from pyspark_kafka_eos.records import decode, pack, stamp, murmur2_of
from pyspark_kafka_eos.client.writing.appending import one_record
batch = stamp(pack(one_record(b"key", b"v" * 5_000), transactional=True, compression="gzip"),
              producer_id=1, producer_epoch=0, base_sequence=0)
assert decode(bytes(batch), include_headers=False).value[0].as_py() == b"v" * 5_000
assert decode(bytes(lone_batch(b"key", None)), include_headers=False).key[0].as_py() == b"key"
print("numba" in sys.modules)
"""


@pytest.mark.processes
def test_a_process_that_only_writes_and_reads_the_ledger_never_loads_numba(tmp_path: Path) -> None:
    ended = run(tmp_path, "-c", ALONE)
    assert (ended.returncode, ended.stdout.strip()) == (0, "False"), ended.stderr


def test_more_than_a_few_records_are_left_to_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for each in ALL:
        monkeypatch.setattr(each, "function", _noted(calls, each.function))

    def compiled(code: Any) -> None:
        for each in ALL:
            monkeypatch.setattr(each, "_compiled", code)

    compiled(None)
    monkeypatch.setattr(jit, "load", lambda: compiled(lambda *arguments: (0, kernels.BAD_ARRAY)))
    monkeypatch.setattr(jit, "_portions", jit.ONCE)

    murmur2_of(columns_of([Row(b"key", b"")] * jit.FEW).key)
    assert calls == ["hash_keys"]
    with pytest.raises(ExactlyOnceError):
        murmur2_of(columns_of([Row(b"key", b"")] * (jit.FEW + 1)).key)
    assert calls == ["hash_keys"]

    for headers, taken in (((), ["measure"]), ((("h", b""),), [])):
        calls.clear()
        compiled(None)
        writer = SectionWriter(1, 1_000, explicit_timestamps=True, digest_seeds=None)
        with pytest.raises(ExactlyOnceError):
            list(writer.append(columns_of([Row(None, b"v" * 2_000, headers)]), np.zeros(1, dtype=np.int32), 0))
        assert calls == taken


@pytest.mark.parametrize(("batches", "loads"), [(jit.FEW, 0), (jit.FEW + 1, 1)])
def test_many_batches_of_one_record_are_left_to_machine_code(
    monkeypatch: pytest.MonkeyPatch, batches: int, loads: int
) -> None:
    (one,) = scan(batch_of([Row(b"key", b"value")]))
    calls: list[int] = []
    monkeypatch.setattr(jit, "load", lambda: calls.append(1))
    monkeypatch.setattr(jit, "_portions", jit.ONCE)

    assert len(decode_many([one] * batches, include_headers=False)) == batches

    assert len(calls) == loads


def test_a_ledger_that_is_read_once_is_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on reads the decisions since the last compaction; it would load numba for them and never use it
    again.
    """
    (one,) = scan(batch_of([Row(b"key", b"value")]))
    calls: list[int] = []
    monkeypatch.setattr(jit, "load", lambda: calls.append(1))
    monkeypatch.setattr(jit, "_portions", 0)

    for _ in range(jit.ONCE // 500):
        decode_many([one] * 500, include_headers=False)
    assert calls == []

    decode_many([one] * (jit.FEW + 1), include_headers=False)
    assert calls == [1]


def test_more_records_than_python_may_have_in_all_are_compiled_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(jit, "load", lambda: calls.append(1))
    monkeypatch.setattr(jit, "_portions", 0)

    jit.expect(jit.ONCE + 1)

    assert calls == [1]


def _noted(calls: list[str], function: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        calls.append(function.__name__)
        return function(*arguments)

    return noted


BETWEEN = """
from pyspark_kafka_eos.records import decoding, hashing, jit, kernels
wanted, cached = hashing.joined_crc.function(1, 2, 3), jit._cached
def between(*arguments):
    assert hashing.joined_crc(1, 2, 3) == wanted
    return cached(*arguments)
jit._cached = between
jit.load()
print(hashing.joined_crc(1, 2, 3) == wanted)
"""


@pytest.mark.processes
def test_a_loop_that_is_called_while_another_thread_loads_numba_answers(tmp_path: Path) -> None:
    """With scope=batch one thread packs and another puts checksums on what it packed."""
    ended = run(tmp_path, "-c", BETWEEN)  # with an empty cache, so that it is compiled
    assert (ended.returncode, ended.stdout.strip()) == (0, "True"), ended.stderr
