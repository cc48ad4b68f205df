"""A disk that takes no more, or only a part: played by the limit that the system sets to a file's size.

A write that crosses the limit is cut short there, the next one fails: what a full disk does, without being root.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded_kafka.settings.config import LogConfig
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.log.log_tools import (
    KEPT,
    NOW,
    client_batch,
    end,
    offsets_in,
    open_log,
    put,
    read_all,
    refused,
    show,
)

FIRST = f"{0:020d}.log"


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """(Python ignores SIGXFSZ, so the write fails and the process lives.)"""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 60, 61, 5_000])
def test_a_full_disk_is_an_error_to_the_client_leaves_no_partial_batch_and_passes(room: int, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, producer_id=1, sequence=0)
    before = show(log)
    size = log.size_bytes
    batch = client_batch(2, producer_id=1, sequence=1, transactional=True, value=b"x" * 3_000)

    with no_file_larger_than(size + room), refused(Code.KAFKA_STORAGE_ERROR):
        log.append(batch, now_ms=NOW)

    assert (tmp_path / FIRST).stat().st_size == size
    assert show(log) == before
    assert log.append(batch, now_ms=NOW).base_offset == 1
    log.abandon()
    assert [base for base, _ in offsets_in(read_all(open_log(tmp_path)))] == [0, 1]


def test_a_marker_that_finds_no_room_leaves_the_transaction_open(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, producer_id=1, sequence=0, transactional=True)

    with no_file_larger_than(log.size_bytes + 20), refused(Code.KAFKA_STORAGE_ERROR):
        end(log, 1, commit=False)
    assert log.last_stable_offset == 0

    assert end(log, 1, commit=False) == 1
    assert log.last_stable_offset == 2


def test_a_segment_that_cannot_be_sealed_goes_on_later(tmp_path: Path) -> None:
    """The new segment is begun only once the old one's indexes and the snapshot are on disk."""
    config = LogConfig(segment_bytes=1_000, index_interval_bytes=1, retention_ms=-1)
    log = open_log(tmp_path, config)
    sequence = 0
    while log.size_bytes < 920:
        put(log, producer_id=1, sequence=sequence)
        sequence += 1

    with no_file_larger_than(0), refused(Code.KAFKA_STORAGE_ERROR):
        put(log, producer_id=1, sequence=sequence)
    assert len(list(tmp_path.glob("*.log"))) == 1
    assert not list(tmp_path.glob("*.new"))
    put(log, producer_id=1, sequence=sequence)

    assert len(list(tmp_path.glob("*.log"))) == 2
    before = show(log)
    log.abandon()
    assert show(open_log(tmp_path, config)) == before


def test_a_close_on_a_full_disk_only_makes_the_next_start_longer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    for sequence in range(3):
        put(log, producer_id=1, sequence=sequence)
    before = show(log)

    with no_file_larger_than(10):
        log.close()

    assert "not closed cleanly" in caplog.text
    assert show(open_log(tmp_path, KEPT)) == before


def test_records_cannot_be_deleted_while_the_new_start_cannot_be_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 3)

    with no_file_larger_than(0), refused(Code.KAFKA_STORAGE_ERROR):
        log.delete_records(2)
    assert log.log_start_offset == 0

    assert log.delete_records(2) == 2
