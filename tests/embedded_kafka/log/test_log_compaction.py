"""What a cleaner keeps of a compacted log, and what readers and a restart see of it.

Rule: Kafka's LogCleaner: the latest record of each key, offsets as they were, tombstones and markers for
delete.retention.ms, the last batch of each producer, nothing above the last stable offset.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import crc32c
import pytest

from embedded_kafka.log import PartitionLog, decode_batch, encode_batch, parse_header
from embedded_kafka.log.compacting.compaction import Compaction, LatestOffsets
from embedded_kafka.log.records import CRC_AT, CRC_STARTS_AT, HEADER_BYTES
from embedded_kafka.settings.config import LogConfig
from kafka_core.compression import CODES, compress
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.records import decode
from tests.embedded_kafka.log.compaction_tools import (
    COMPACTED,
    DELETE_RETENTION_MS,
    batches,
    committed,
    compact,
    compacted_log,
    latest,
    markers,
    records,
    run,
    seal,
    write,
)
from tests.embedded_kafka.log.log_tools import NOW, end, open_log, refused
from tests.embedded_kafka.log.test_log_recovery import crashed

LATER = NOW + DELETE_RETENTION_MS + 1


def of_keys(log: PartitionLog, *keys: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [record for record in records(log) if record[1] in keys]


def test_the_latest_record_of_each_key_stays_where_it_was(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(6):
        write(log, (b"a", b"a%d" % number), (b"b", b"b%d" % number))
    write(log, (b"a", b"last"))
    seal(log)
    assert compact(log)
    assert of_keys(log, b"a", b"b") == [(11, b"b", b"b5"), (12, b"a", b"last")]
    assert log.log_start_offset == 0


def test_a_log_without_compaction_keeps_every_record(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, compact=False))
    for number in range(6):
        write(log, (b"a", b"%d" % number))
    seal(log)
    before = records(log)
    assert not compact(log)
    assert records(log) == before


def test_the_active_segment_is_not_cleaned(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=1 << 20))
    for number in range(6):
        write(log, (b"a", b"%d" % number))
    assert not compact(log)
    assert len(records(log)) == 6


def test_a_tombstone_stays_for_its_time_from_the_first_cleaning_on_and_then_goes(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    write(log, (b"a", b"1"))
    write(log, (b"a", None))
    seal(log)
    assert compact(log)
    assert of_keys(log, b"a") == [(1, b"a", None)]
    for now_ms, left in ((LATER - 2, [(1, b"a", None)]), (LATER, [])):
        seal(log)
        assert compact(log, now_ms)
        assert of_keys(log, b"a") == left


def test_the_time_of_a_tombstone_is_kept_over_a_restart(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    write(log, (b"a", None), timestamp_ms=NOW - 70)
    seal(log)
    compact(log)
    log.close()
    log = compacted_log(tmp_path)
    (tombstone,) = (record for batch in batches(log) for record in decode_batch(batch) if record.key == b"a")
    assert tombstone.timestamp_ms == NOW - 70
    seal(log)
    compact(log, LATER)
    assert of_keys(log, b"a") == []


def test_a_record_without_a_key_goes(tmp_path: Path) -> None:
    """It was written before the topic was compacted."""
    log = compacted_log(tmp_path, replace(COMPACTED, compact=False))
    write(log, (None, b"nobody's"), (b"a", b"1"))
    log.reconfigure(COMPACTED)
    seal(log)
    compact(log)
    assert of_keys(log, b"a") == [(1, b"a", b"1")]
    assert (0, None, b"nobody's") not in records(log)


def test_aborted_records_go_and_do_not_take_older_ones_with_them(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    write(log, (b"a", b"committed"))
    write(log, (b"a", b"aborted"), producer_id=1, sequence=0, transactional=True)
    end(log, 1, commit=False)
    write(log, (b"c", b"of the next"), producer_id=1, sequence=1, transactional=True)
    end(log, 1, commit=True)
    seal(log)
    before = [record for record in committed(log) if record[1] != b"filler"]
    assert compact(log)
    assert of_keys(log, b"a", b"c") == before == [(0, b"a", b"committed"), (3, b"c", b"of the next")]
    assert [record for record in committed(log) if record[1] != b"filler"] == before


def test_a_marker_stays_while_records_of_its_transaction_do_and_then_for_the_time_of_a_tombstone(tmp_path: Path) -> None:  # fmt: skip
    log = compacted_log(tmp_path)
    write(log, (b"a", b"1"), producer_id=1, sequence=0, transactional=True)
    end(log, 1, commit=True)
    write(log, (b"b", b"1"), producer_id=1, sequence=1, transactional=True)
    end(log, 1, commit=True, epoch=1)
    seal(log)
    compact(log)
    assert [offset for offset, _, _ in markers(log)] == [1, 3], "records of both are left"
    write(log, (b"a", b"2"))
    seal(log)
    compact(log)
    assert [offset for offset, _, _ in markers(log)] == [1, 3], "this round took the first one's record"
    seal(log)
    compact(log)
    assert [offset for offset, _, _ in markers(log)] == [1, 3], "from now on it is kept for its time"
    seal(log)
    compact(log, LATER)
    assert [offset for offset, _, _ in markers(log)] == [3]


def test_what_is_aborted_is_still_told_while_a_reader_may_meet_it(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    write(log, (b"a", b"1"), producer_id=1, sequence=0, transactional=True)
    seal(log)
    end(log, 1, commit=False)
    seal(log)
    compact(log)
    # The producer's last batch is kept, without its records.
    assert log.read(0, 1 << 20, read_committed=True, at_least_one=True).aborted == [(1, 0)]
    assert (b"a", b"1") not in [record[1:] for record in records(log)]


def test_nothing_behind_the_last_stable_offset_is_cleaned(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    seal(log)
    open_since = write(log, (b"b", b"1"), producer_id=1, sequence=0, transactional=True)
    for number in range(3):
        write(log, (b"c", b"%d" % number))
    seal(log)
    compact(log)
    assert log.last_stable_offset == open_since
    assert of_keys(log, b"a", b"b", b"c") == [
        (1, b"a", b"2"),
        *((open_since + at, *record) for at, record in enumerate([(b"b", b"1"), *((b"c", b"%d" % n) for n in range(3))])),
    ]  # fmt: skip


def test_the_last_batch_of_a_producer_stays_so_that_its_sequence_is_known_after_a_restart(
    tmp_path: Path,
) -> None:
    log = compacted_log(tmp_path / "log")
    for sequence in range(3):
        write(log, (b"a", b"%d" % sequence), producer_id=7, sequence=sequence)
    write(log, (b"a", b"another's"))
    seal(log)
    compact(log)
    assert all(record[2] == b"another's" for record in of_keys(log, b"a"))
    crash = crashed(tmp_path / "log", tmp_path / "crash")
    for snapshot in crash.glob("*.snapshot"):
        snapshot.unlink()
    for index in crash.glob("*.txnindex"):
        index.unlink()
    again = compacted_log(crash)
    assert again.producers() == log.producers()
    repeated = again.append(bytes(_sequenced(2)), now_ms=NOW)
    assert (repeated.base_offset, repeated.duplicate) == (2, True)
    with refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER):
        again.append(bytes(_sequenced(7)), now_ms=NOW)


def _sequenced(sequence: int) -> bytearray:
    return encode_batch(
        [(b"a", b"%d" % sequence)], timestamp_ms=NOW, producer_id=7, producer_epoch=0, base_sequence=sequence
    )


@pytest.mark.parametrize("codec", [name for name in CODES if name != "none"])
def test_a_compressed_batch_is_cleaned_and_stays_compressed(tmp_path: Path, codec: str) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=4_000))
    many = [(b"k%d" % (number % 50), b"v%d" % number) for number in range(100)]
    plain = encode_batch(many, timestamp_ms=NOW)
    packed = bytearray(plain[:HEADER_BYTES]) + compress(codec, memoryview(plain)[HEADER_BYTES:])
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    struct.pack_into(">h", packed, CRC_STARTS_AT, CODES[codec])
    struct.pack_into(">I", packed, CRC_AT, crc32c.crc32c(bytes(packed[CRC_STARTS_AT:])))
    log.append(bytes(packed), now_ms=NOW)
    write(log, (b"x", bytes(3_900)))
    assert compact(log)
    header = parse_header(batches(log)[0])
    assert header is not None
    assert (header.base_offset, header.last_offset, header.count) == (0, 99, 50)
    assert header.codec == CODES[codec]
    columns = decode(memoryview(batches(log)[0]), include_headers=False)
    assert columns.offset.tolist() == list(range(50, 100))
    assert columns.key.to_pylist() == [b"k%d" % number for number in range(50)]


def test_records_that_cannot_be_unpacked_are_kept_as_they_are(tmp_path: Path) -> None:
    """They were written before the topic was compacted."""
    log = compacted_log(tmp_path, replace(COMPACTED, compact=False))
    garbled = bytearray(_sequenced(0))
    garbled[HEADER_BYTES] = 0x7E
    struct.pack_into(">I", garbled, CRC_AT, crc32c.crc32c(bytes(garbled[CRC_STARTS_AT:])))
    log.append(bytes(garbled), now_ms=NOW)
    log.reconfigure(COMPACTED)
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    seal(log)
    assert compact(log)
    assert batches(log)[0][CRC_AT:] == bytes(garbled[CRC_AT:])
    assert len(batches(log)[0]) == len(garbled)


def test_a_damaged_batch_ends_the_round_and_nothing_is_lost(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(4):
        write(log, (b"a", b"%d" % number))
    seal(log)
    file = tmp_path / f"{0:020d}.log"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with refused(Code.CORRUPT_MESSAGE):
        compact(log)
    assert file.read_bytes() == bytes(content)
    assert not (tmp_path / "cleaned").exists()


def test_what_is_younger_than_the_lag_is_left_alone(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, min_compaction_lag_ms=500))
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    seal(log)
    assert not compact(log, NOW + 499)
    assert compact(log, NOW + 501)
    assert of_keys(log, b"a") == [(1, b"a", b"2")]


def test_a_log_is_cleaned_when_enough_of_it_is_dirty_or_it_has_waited_too_long(tmp_path: Path) -> None:
    config = replace(COMPACTED, min_cleanable_ratio=0.9, max_compaction_lag_ms=500)
    log = compacted_log(tmp_path, config)
    write(log, (b"a", b"1"))
    seal(log, b"x")
    assert compact(log), "all of it is dirty"
    seal(log, b"y")
    assert not compact(log)
    assert compact(log, NOW + 501)


def test_a_round_with_more_keys_than_may_be_remembered_goes_as_far_as_they_reach(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(30):
        write(log, (b"k%d" % (number % 10), b"%d" % number))
    seal(log)
    rounds = 0
    while (due := log.compaction(NOW)) is not None:
        run(
            log,
            Compaction(tmp_path, log._segments, log._producers, COMPACTED, due.due, NOW, LatestOffsets(4)),
        )
        narrow = Compaction(tmp_path, log._segments, log._producers, COMPACTED, due.due, NOW, LatestOffsets(4))
        run(log, narrow)
        rounds += 1
        assert rounds < 30
    assert rounds > 1
    assert [record[2] for record in records(log) if record[1] != b"filler"] == [b"%d" % n for n in range(20, 30)]


def test_segments_that_have_become_small_are_joined(tmp_path: Path) -> None:
    def of_the_first_60() -> int:
        return sum(int(path.stem) < 60 for path in tmp_path.glob("*.log"))

    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=1_000))
    for number in range(60):
        write(log, (b"a", b"%d" % number))
    write(log, (b"z", bytes(900)))
    assert of_the_first_60() > 3
    for _ in range(4):
        compact(log)
        write(log, (b"z", bytes(900)))
    assert of_the_first_60() == 1
    assert of_keys(log, b"a") == [(59, b"a", b"59")]


def test_offsets_by_time_are_found_among_what_is_left(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(10):
        write(log, (b"a" if number % 2 else b"k%d" % number, b"v"), timestamp_ms=NOW + number)
    seal(log)
    compact(log)
    left = [(record.timestamp_ms, record.offset) for batch in batches(log) for record in decode_batch(batch)]
    for number in range(10):
        wanted = next((offset, ms) for ms, offset in left if ms >= NOW + number)
        assert log.offset_for_timestamp(NOW + number, read_committed=False) == wanted
    assert log.offset_of_max_timestamp(read_committed=False) == (9, NOW + 9)


def test_a_segment_that_is_removed_while_it_is_cleaned_does_not_come_back(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(12):
        write(log, (b"a", b"%d" % number))
    seal(log)
    compaction = log.compaction(NOW)
    assert compaction is not None
    steps = compaction.steps()
    for work in steps:
        if work is not None:
            work()
            break
    start = log.delete_records(10)
    assert list(steps) == []
    assert log.log_start_offset == start == 10
    assert of_keys(log, b"a") == [(10, b"a", b"10"), (11, b"a", b"11")]
    assert not (tmp_path / "cleaned").exists()


def test_a_segment_is_closed_by_a_record_that_is_later_than_its_first_by_more_than_segment_ms(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, LogConfig(retention_ms=-1, segment_ms=1_000))
    write(log, (b"a", b"1"), timestamp_ms=NOW)
    write(log, (b"a", b"2"), timestamp_ms=NOW + 1_000)
    assert len(list(tmp_path.glob("*.log"))) == 1
    write(log, (b"a", b"3"), timestamp_ms=NOW + 1_001)
    assert [path.stem for path in sorted(tmp_path.glob("*.log"))] == [f"{0:020d}", f"{2:020d}"]


def test_an_internal_topic_is_cleaned_before_its_segment_is_full(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=100 << 20, internal=True))
    for number in range(400):
        log.append_internal([(b"id", b"%d" % number + bytes(1_000))], now_ms=NOW)
    assert log.size_bytes > 256 * 1024
    assert compact(log)
    assert log.size_bytes < 2_000
    assert not compact(log)
    assert [record.offset for record in log.scan_records()] == [399]


# ---- whatever was written


class Writer:
    """Plain, idempotent and transactional producers that write few keys again and again, tombstones among them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._sequences: dict[tuple[int, int], int] = {}
        self._epochs = dict.fromkeys(range(5), 0)

    def play(self, log: PartitionLog, steps: int) -> None:
        for _ in range(steps):
            self._step(log)

    def _step(self, log: PartitionLog) -> None:
        rng = self.rng
        producer_id, kind = rng.randrange(5), rng.random()
        fresh = [
            (b"k%d" % rng.randrange(8), None if rng.random() < 0.2 else b"%d" % rng.randrange(10**6))
            for _ in range(rng.randint(1, 3))
        ]
        epoch = self._epochs[producer_id]
        if kind < 0.3:
            write(log, *fresh)
        elif kind < 0.75:
            sequence = self._sequences.get((producer_id, epoch), 0)
            write(
                log, *fresh, producer_id=producer_id, sequence=sequence, epoch=epoch,
                transactional=producer_id < 3,
            )  # fmt: skip
            self._sequences[producer_id, epoch] = sequence + len(fresh)
        elif producer_id < 3:
            self._epochs[producer_id] += rng.randint(0, 1)
            end(log, producer_id, commit=rng.random() < 0.5, epoch=self._epochs[producer_id])

    def end_all(self, log: PartitionLog) -> None:
        for producer_id in range(3):
            end(log, producer_id, commit=True, epoch=self._epochs[producer_id])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_readers_find_the_same_table_before_during_and_after_compaction(tmp_path: Path, seed: int) -> None:
    log, writer = compacted_log(tmp_path / "log"), Writer(seed)
    now_ms = NOW
    for _ in range(3):
        writer.play(log, 50)
        seal(log)
        before, table = records(log), latest(committed(log))

        pauses = itertools.count()

        def look(table: dict[bytes | None, bytes] = table, pauses: Iterator[int] = pauses) -> None:
            if next(pauses) % 10 == 0:
                assert latest(committed(log)) == table

        compact(log, now_ms, look)
        after = records(log)
        assert set(after) <= set(before), "a record was changed or moved"
        assert latest(committed(log)) == table
        now_ms += DELETE_RETENTION_MS // 2 + 1
        crash = compacted_log(crashed(tmp_path / "log", tmp_path / "crash"))
        assert (records(crash), committed(crash)) == (after, committed(log))
        assert crash.producers() == log.producers()
        assert (crash.end_offset, crash.last_stable_offset) == (log.end_offset, log.last_stable_offset)
        crash.close()
        again = compacted_log(tmp_path / "crash")
        assert (records(again), again.producers()) == (after, log.producers())
        again.abandon()
    writer.end_all(log)
    seal(log)
    for _ in range(4):
        seal(log)
        now_ms += DELETE_RETENTION_MS + 1
        table = latest(committed(log))
        compact(log, now_ms)
        assert latest(committed(log)) == table
    left = [key for _, key, _ in records(log) if key != b"filler"]
    assert len(left) == len(set(left)) <= 8
    assert all(value is not None for _, _, value in records(log))
