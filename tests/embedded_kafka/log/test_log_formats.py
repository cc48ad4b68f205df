"""The bytes of the log's files, against Kafka's formats and against the client's own reader of batches."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import crc32c
import pytest

from embedded_kafka.log import decode_batch, encode_batch
from embedded_kafka.log.producer_state import ProducerStateEntry, RememberedBatch
from embedded_kafka.log.records import EndMarker, decode_marker, encode_marker, parse_header
from embedded_kafka.log.segments import snapshot
from embedded_kafka.log.segments.files import LogFile, OpenFiles
from embedded_kafka.settings.config import LogConfig
from kafka_core import runtime
from tests.embedded_kafka.log.log_tools import NOW, client_batch, end, open_log, put

ROWS = [(b"k", b"v"), (None, b"x" * 300), (b"", None), (None, None), (b"long" * 40, b"")]


def test_a_batch_of_the_broker_reads_as_it_was_written() -> None:
    batch = encode_batch(ROWS, timestamp_ms=NOW, base_offset=70, producer_id=5, producer_epoch=6, base_sequence=7)

    records = decode_batch(batch)

    assert [(record.key, record.value) for record in records] == ROWS
    assert [record.offset for record in records] == [70, 71, 72, 73, 74]
    assert {record.timestamp_ms for record in records} == {NOW}


def test_the_client_reads_the_brokers_batches_and_markers() -> None:
    from pyspark_kafka_eos.records import MarkerKind, control_marker, decode, scan

    batch = encode_batch(ROWS, timestamp_ms=NOW, base_offset=70, producer_id=5, producer_epoch=6, transactional=True)
    ((info, _),) = scan(batch)
    columns = decode(batch)
    assert (info.producer_id, info.producer_epoch, info.base_sequence, info.transactional) == (5, 6, -1, True)
    assert list(zip(columns.key.to_pylist(), columns.value.to_pylist(), strict=True)) == ROWS
    assert columns.offset.tolist() == [70, 71, 72, 73, 74]

    (marker,) = scan(encode_marker(5, 6, EndMarker(commit=False, coordinator_epoch=9), timestamp_ms=NOW))
    assert control_marker(marker).kind is MarkerKind.ABORT
    assert control_marker(marker).coordinator_epoch == 9


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_has_kafkas_bytes(commit: bool) -> None:
    """EndTransactionMarker: version 0, type; version 0, coordinator epoch."""
    batch = bytes(encode_marker(5, 6, EndMarker(commit, 0x01020304), timestamp_ms=NOW))

    header = parse_header(batch)
    (record,) = decode_batch(batch)

    assert header is not None and header.control and header.transactional and header.base_sequence == -1
    assert record.key == bytes([0, 0, 0, commit])
    assert record.value == bytes([0, 0, 1, 2, 3, 4])
    assert decode_marker(batch) == EndMarker(commit, 0x01020304)


def test_cut_and_garbled_records_are_a_value_error_and_never_more() -> None:
    batch = bytes(encode_batch(ROWS, timestamp_ms=NOW))

    for place in range(61, len(batch)):
        for flip in (0x01, 0x80, 0xFF):
            garbled = bytearray(batch)
            garbled[place] ^= flip
            try:
                decode_batch(garbled)
            except ValueError:
                continue


def test_a_snapshot_has_kafkas_bytes(tmp_path: Path) -> None:
    """ProducerSnapshot version 1: version, CRC of what follows it, entries of 46 bytes."""
    state = ProducerStateEntry(7, 2, 3, (RememberedBatch(9, 40, 4, 55),), 55, 36)
    path = tmp_path / "0.snapshot"

    snapshot.write(path, [state])

    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, 9, 40, 4, 55, 3, 36)
    assert path.read_bytes() == struct.pack(">hI", 1, crc32c.crc32c(body)) + body


STATES = [
    ProducerStateEntry(1, 0, -1, (RememberedBatch(3, 3, 3, 10),), 10, None),
    ProducerStateEntry(2, 5, 4, (), 99, None),
    ProducerStateEntry(3, 1, 0, tuple(RememberedBatch(n, 10 + n, 0, 20 + n) for n in range(5)), 24, 10),
    ProducerStateEntry(4, 1, 0, tuple(RememberedBatch(n, 30 + n, 0, 20 + n) for n in range(5)), 77, None),
    ProducerStateEntry(5, 1, 0, (RememberedBatch(-1, 50, 2, 20), RememberedBatch(-1, 60, 2, 20)), 20, 48),
]


def test_a_snapshot_gives_back_every_state_and_every_batch(tmp_path: Path) -> None:
    path = tmp_path / "0.snapshot"
    snapshot.write(path, STATES)

    assert snapshot.read(path, NOW) == STATES
    assert snapshot.read(tmp_path / "1.snapshot", NOW) is None


def test_a_snapshot_with_any_changed_or_missing_byte_is_none(tmp_path: Path) -> None:
    path = tmp_path / "0.snapshot"
    snapshot.write(path, STATES[:3])
    content = path.read_bytes()

    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        assert snapshot.read(path, NOW) is None
        path.write_bytes(content[:place])
        assert snapshot.read(path, NOW) is None


def test_the_files_of_a_sealed_segment_have_kafkas_bytes(tmp_path: Path) -> None:
    size = len(client_batch())
    config = LogConfig(segment_bytes=1_000, segment_ms=10**15, index_interval_bytes=size, retention_ms=-1)
    log = open_log(tmp_path, config)
    put(log, timestamp_ms=5)
    put(log, producer_id=8, sequence=0, transactional=True, timestamp_ms=9)
    put(log, timestamp_ms=7)
    end(log, 8, commit=False)
    while len(list(tmp_path.glob("*.log"))) == 1:
        put(log, timestamp_ms=6)

    names = [tmp_path / f"{0:020d}.{suffix}" for suffix in ("index", "timeindex", "txnindex")]
    index, times, aborted = (path.read_bytes() for path in names)

    # An entry for each batch that comes after more than the interval: the third, the fifth ...
    assert struct.unpack(">iI", index[:8]) == (2, 2 * size)
    assert struct.unpack(">qi", times[:12]) == (9, 1)
    assert struct.unpack(">qi", times[-12:]) == (NOW, 3), "the marker's"
    assert aborted == struct.pack(">hqqqq", 0, 8, 1, 3, 4)


# ---- open files


def test_no_more_files_than_allowed_are_open_and_all_can_be_used(tmp_path: Path) -> None:
    pool = OpenFiles(3)
    files = [LogFile(tmp_path / f"{n}", create=True, pool=pool) for n in range(8)]
    for _ in range(3):
        for number, file in enumerate(files):
            file.append([b"%d" % number, b"!"])

    assert len(pool) == 3
    assert [file.read(99, 2) for file in files] == [b"%d!%d!" % (n, n) for n in range(8)]
    for file in files:
        file.close()
    assert len(pool) == 0


def test_a_file_that_is_written_keeps_its_descriptor_when_another_broker_needs_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two brokers in threads of one process share the limit, and a write gives the other thread its turn."""
    pool = OpenFiles(1)
    ours, theirs = (LogFile(tmp_path / name, create=True, pool=pool) for name in ("ours", "theirs"))
    write_at = runtime.write_at

    def meanwhile(descriptor: int, buffers: Sequence[Any], at: int) -> int:
        monkeypatch.setattr(runtime, "write_at", write_at)
        theirs.append([b"of the other broker"])
        return write_at(descriptor, buffers, at)

    monkeypatch.setattr(runtime, "write_at", meanwhile)
    ours.append([b"ours"])

    assert (ours.path.read_bytes(), theirs.path.read_bytes()) == (b"ours", b"of the other broker")


def test_brokers_in_many_threads_write_and_read_their_own_files(tmp_path: Path) -> None:
    pool = OpenFiles(2)

    def broker(name: int) -> list[bytes]:
        files = [LogFile(tmp_path / f"{name}-{number}", create=True, pool=pool) for number in range(4)]
        for turn in range(100):
            for number, file in enumerate(files):
                file.append([b"%d:%d:%d," % (name, number, turn)])
        found = [file.read(99_999, 0) for file in files]
        for file in files:
            file.close()
        return found

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(broker, range(4)))

    assert found == [
        [b"".join(b"%d:%d:%d," % (name, number, turn) for turn in range(100)) for number in range(4)]
        for name in range(4)
    ]
    assert len(pool) == 0
