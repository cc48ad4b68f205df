"""What a reader gets: whole batches, committed ones only where it asks for those, offsets by timestamp."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from embedded_kafka.settings.config import LogConfig
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.log.log_tools import (
    KEPT,
    NOW,
    changed,
    client_batch,
    end,
    offsets_in,
    open_log,
    put,
    read_all,
    refused,
    visible,
)


def test_a_reader_gets_the_whole_batch_that_holds_its_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 3)
    put(log, 4)

    result = log.read(5, 10_000, read_committed=False, at_least_one=False)

    assert offsets_in(result.records) == [(3, 6)]
    assert result.next_offset == 7


def test_batches_are_never_cut_and_the_first_comes_whatever_its_size_if_asked_for(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    size = len(client_batch())
    for _ in range(4):
        put(log)

    def bases(max_bytes: int, *, at_least_one: bool) -> list[int]:
        result = log.read(1, max_bytes, read_committed=False, at_least_one=at_least_one)
        return [base for base, _ in offsets_in(result.records)]

    assert bases(2 * size, at_least_one=False) == [1, 2]
    assert bases(3 * size - 1, at_least_one=False) == [1, 2]
    assert bases(size - 1, at_least_one=False) == []
    assert bases(0, at_least_one=True) == [1]


def test_offsets_outside_the_log_are_refused_and_its_end_is_empty(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 3)
    log.delete_records(1)

    for offset in (-1, 0, 4):
        with refused(Code.OFFSET_OUT_OF_RANGE):
            log.read(offset, 100, read_committed=False, at_least_one=True)
    for committed in (True, False):
        assert len(log.read(3, 100, read_committed=committed, at_least_one=True).records) == 0


def test_reading_goes_on_over_segments_and_index_entries(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=5_000, index_interval_bytes=300, retention_ms=-1))
    rng = random.Random(1)
    while log.end_offset < 400:
        put(log, rng.randint(1, 9), value=b"x" * rng.randint(0, 200))
    expected = offsets_in(read_all(log))
    assert len(list(tmp_path.glob("*.log"))) > 5

    for offset in rng.sample(range(log.end_offset), 200):
        result = log.read(offset, 1, read_committed=False, at_least_one=True)
        ((first, last),) = offsets_in(result.records)
        assert first <= offset <= last
        assert (first, last) in expected
    assert expected[-1][1] == log.end_offset - 1


# ---- transactions


def test_read_committed_ends_at_the_oldest_open_transaction(tmp_path: Path) -> None:
    """Rule: seed 003 consumer configs; 004 isolation.level (up to the last stable offset, else everything)."""
    log = open_log(tmp_path)
    put(log, 2)
    put(log, producer_id=1, sequence=0, transactional=True)
    put(log, producer_id=2, sequence=0, transactional=True)
    put(log)

    assert log.last_stable_offset == 2
    assert visible(log) == [0, 1]
    assert len(offsets_in(read_all(log))) == 4
    assert len(log.read(2, 100, read_committed=True, at_least_one=True).records) == 0

    end(log, 1, commit=True)
    assert log.last_stable_offset == 3
    end(log, 2, commit=False)
    assert log.last_stable_offset == log.end_offset == 7
    assert visible(log) == [0, 1, 2, 4]


def test_aborted_transactions_are_listed_and_committed_ones_are_not(tmp_path: Path) -> None:
    """Rule: seed 003 EndTxnRequest, consumer configs (the reader gets the aborted transactions with the records)."""
    log = open_log(tmp_path)
    for producer_id in (1, 2, 3):
        put(log, 2, producer_id=producer_id, sequence=0, transactional=True)
    end(log, 2, commit=False)
    end(log, 1, commit=True)
    end(log, 3, commit=False)

    committed = log.read(0, 10_000, read_committed=True, at_least_one=True)
    uncommitted = log.read(0, 10_000, read_committed=False, at_least_one=True)

    assert committed.aborted == [(2, 2), (3, 4)]
    assert uncommitted.aborted == []
    assert bytes(committed.records) == bytes(uncommitted.records)
    assert visible(log) == [0, 1]


def test_one_producers_aborted_and_committed_transactions_are_told_apart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(6):
        put(log, producer_id=1, sequence=number, transactional=True)
        end(log, 1, commit=number % 2 == 0)

    assert visible(log) == [0, 4, 8]
    late = log.read(6, 10_000, read_committed=True, at_least_one=True)
    assert late.aborted == [(1, 6), (1, 10)], "those that ended before the offset are no concern of this reader"


def test_an_aborted_transaction_is_listed_wherever_between_its_ends_a_reader_begins(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=400, retention_ms=-1))
    put(log, producer_id=1, sequence=0, transactional=True)
    for _ in range(20):
        put(log)
    end(log, 1, commit=False)
    put(log)
    assert len(list(tmp_path.glob("*.log"))) > 3

    for offset in range(22):
        assert (1, 0) in log.read(offset, 1, read_committed=True, at_least_one=True).aborted
    assert log.read(22, 1, read_committed=True, at_least_one=True).aborted == []


@pytest.mark.parametrize("seed", range(15))
def test_interleaved_transactions_show_what_was_committed_and_nothing_else(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = open_log(tmp_path, LogConfig(segment_bytes=1_500, index_interval_bytes=200, retention_ms=-1))
    sequences = dict.fromkeys(range(5), 0)
    opened: dict[int, list[int]] = {}
    committed: set[int] = set()
    plain: set[int] = set()
    for _ in range(150):
        producer_id = rng.randrange(5)
        kind = rng.random()
        if kind < 0.15:
            plain.update(range(log.end_offset, log.end_offset + 2))
            put(log, 2)
        elif kind < 0.75:
            count = rng.randint(1, 3)
            base = put(
                log, count, producer_id=producer_id, sequence=sequences[producer_id], transactional=True
            ).base_offset
            sequences[producer_id] += count
            opened.setdefault(producer_id, []).extend(range(base, base + count))
        elif producer_id in opened:
            commit = rng.random() < 0.5
            end(log, producer_id, commit=commit)
            offsets = opened.pop(producer_id)
            committed.update(offsets if commit else ())
    stable = min((offsets[0] for offsets in opened.values()), default=log.end_offset)

    assert log.last_stable_offset == stable
    assert visible(log) == sorted(offset for offset in committed | plain if offset < stable)


# ---- damage


def test_a_batch_that_changed_on_the_disk_is_never_served(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        put(log)
    size = len(client_batch())
    path = tmp_path / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[2 * size - 3] ^= 1
    path.write_bytes(content)

    before = log.read(0, 10_000, read_committed=False, at_least_one=True)
    assert offsets_in(before.records) == [(0, 0)]
    with refused(Code.CORRUPT_MESSAGE):
        log.read(1, 10_000, read_committed=False, at_least_one=True)


# ---- offsets by timestamp


@pytest.mark.parametrize("segment_bytes", [1 << 20, 600])
def test_the_first_record_that_is_not_older_is_found_by_its_timestamp(segment_bytes: int, tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=100, retention_ms=-1)
    log = open_log(tmp_path, config)
    rng = random.Random(4)
    times: list[int] = []
    for _ in range(60):
        time = rng.randint(0, 500)
        times += [time] * 2
        put(log, 2, timestamp_ms=time)

    for again in (log, None):
        if again is None:
            log.close()
            log = open_log(tmp_path, config)
        for wanted in range(0, 510, 7):
            expected = next(((n, time) for n, time in enumerate(times) if time >= wanted), None)
            assert log.offset_for_timestamp(wanted, read_committed=False) == expected
        assert log.offset_of_max_timestamp(read_committed=False) == (times.index(max(times)), max(times))


def test_records_before_the_start_and_behind_the_stable_offset_are_not_found(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 3, timestamp_ms=100)
    put(log, producer_id=1, sequence=0, transactional=True, timestamp_ms=200)
    log.delete_records(2)

    assert log.offset_for_timestamp(50, read_committed=False) == (2, 100)
    assert log.offset_for_timestamp(150, read_committed=False) == (3, 200)
    assert log.offset_for_timestamp(150, read_committed=True) is None
    assert log.offset_for_timestamp(201, read_committed=False) is None
    assert log.offset_of_max_timestamp(read_committed=False) == (3, 200)
    assert log.offset_of_max_timestamp(read_committed=True) is None


def test_an_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path, KEPT)

    assert log.offset_for_timestamp(0, read_committed=False) is None
    assert log.offset_of_max_timestamp(read_committed=False) is None


def test_records_in_compressed_batches_are_found_by_timestamp(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, timestamp_ms=10)
    plain = client_batch(3, timestamp_ms=20)
    packed = plain[:61] + gzip.compress(plain[61:])
    packed = changed(changed(packed, ">i", 8, len(packed) - 12), ">h", 21, 1)
    log.append(packed, now_ms=NOW)

    assert log.offset_for_timestamp(15, read_committed=False) == (1, 20)
    assert log.offset_of_max_timestamp(read_committed=False) == (1, 20)


def test_a_batch_whose_records_nobody_can_unpack_answers_as_a_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    garbage = changed(client_batch(2, timestamp_ms=70), ">b", 61, 127)
    log.append(garbage, now_ms=NOW)

    assert log.offset_for_timestamp(60, read_committed=False) == (0, 70)
