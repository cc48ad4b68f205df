"""What a log forgets: by age, by size, on request."""

from __future__ import annotations

from pathlib import Path

from embedded_kafka.log import PartitionLog
from embedded_kafka.settings.config import LogConfig
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.log.log_tools import (
    NOW,
    client_batch,
    end,
    offsets_in,
    open_log,
    put,
    read_all,
    refused,
)

SIZE = len(client_batch())


def filled(directory: Path, config: LogConfig, batches: int = 6) -> PartitionLog:
    """Two batches a segment, each a second younger than the one before."""
    log = open_log(directory, config)
    for number in range(batches):
        put(log, timestamp_ms=NOW + 1000 * number)
    return log


def config(retention_ms: int = -1, retention_bytes: int = -1) -> LogConfig:
    return LogConfig(segment_bytes=2 * SIZE, retention_ms=retention_ms, retention_bytes=retention_bytes)


def test_segments_whose_newest_record_is_too_old_go(tmp_path: Path) -> None:
    log = filled(tmp_path, config(retention_ms=10_000))

    assert log.retention(NOW + 11_000) == 0
    assert log.retention(NOW + 11_001) == 1

    assert (log.log_start_offset, log.end_offset) == (2, 6)
    with refused(Code.OFFSET_OUT_OF_RANGE):
        log.read(1, 100, read_committed=False, at_least_one=True)


def test_a_log_that_is_all_too_old_is_empty_and_goes_on_with_its_offsets(tmp_path: Path) -> None:
    log = filled(tmp_path, config(retention_ms=10_000))
    put(log, producer_id=1, sequence=0)

    assert log.retention(NOW + 10**9) == 4
    assert log.retention(NOW + 10**9) == 0
    log.close()
    log = open_log(tmp_path, config())

    assert (log.log_start_offset, log.end_offset, log.size_bytes) == (7, 7, 0)
    assert put(log, producer_id=1, sequence=0).duplicate
    assert put(log).base_offset == 7


def test_the_oldest_segments_go_while_the_log_is_larger_than_allowed(tmp_path: Path) -> None:
    log = filled(tmp_path, config(retention_bytes=3 * SIZE))

    assert log.retention(NOW) == 1

    assert log.log_start_offset == 2
    assert log.size_bytes == 4 * SIZE, "without another segment it would be smaller than allowed"


def test_without_limits_nothing_goes(tmp_path: Path) -> None:
    log = filled(tmp_path, config())

    assert log.retention(NOW + 10**12) == 0
    log.reconfigure(config(retention_bytes=0))
    assert log.retention(NOW) == 3


def test_deleted_records_stay_deleted_over_restarts(tmp_path: Path) -> None:
    for clean in (True, False):
        directory = tmp_path / str(clean)
        log = filled(directory, config())
        assert log.delete_records(3) == 3
        assert log.delete_records(1) == 3, "the start never goes back"
        if clean:
            log.close()
        else:
            log.abandon()

        log = open_log(directory, config())

        assert log.log_start_offset == 3
        assert offsets_in(read_all(log))[0] == (3, 3)
        assert len(list(directory.glob("*.log"))) == 2, "segments with deleted records only are gone"


def test_everything_may_be_deleted_and_nothing_beyond(tmp_path: Path) -> None:
    log = filled(tmp_path, config())

    for beyond in (7, -2):
        with refused(Code.OFFSET_OUT_OF_RANGE):
            log.delete_records(beyond)
    assert log.delete_records(-1) == 6

    assert read_all(log) == b""


def test_a_transaction_whose_first_records_are_deleted_still_holds_the_stable_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, config())
    put(log, producer_id=1, sequence=0, transactional=True)
    for _ in range(5):
        put(log)
    log.delete_records(4)

    assert log.last_stable_offset == 4
    end(log, 1, commit=True)
    assert log.last_stable_offset == 7
