"""What is appended to a partition's log, and what is refused with which of Kafka's codes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from embedded_kafka.log import decode_batch, parse_header
from embedded_kafka.settings.config import LogConfig
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.log.log_tools import (
    NOW,
    changed,
    client_batch,
    end,
    offsets_in,
    open_log,
    put,
    read_all,
    refused,
)

# Places in a batch's header.
LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, PRODUCER_EPOCH, SEQUENCE, COUNT = 8, 16, 17, 21, 23, 51, 53, 57


def test_offsets_follow_one_another_and_the_records_are_as_they_were_sent(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first, second = client_batch(3), client_batch(2, value=b"other")

    assert log.append(first, now_ms=NOW).base_offset == 0
    answer = log.append(memoryview(second), now_ms=NOW)

    assert (answer.base_offset, answer.last_offset, answer.log_append_time_ms) == (3, 4, -1)
    data = read_all(log)
    assert offsets_in(data) == [(0, 2), (3, 4)]
    assert data[16 : len(first)] == first[16:], "only base offset, length and leader epoch are the broker's"
    assert [record.value for record in decode_batch(data[len(first) :])] == [b"other"] * 2
    assert log.end_offset == log.last_stable_offset == 5


def test_a_batch_without_a_producer_id_is_written_without_checks_of_sequences(tmp_path: Path) -> None:
    """Rule: seed 000 §5.5 step 4 (no producer id: nothing to check)."""
    log = open_log(tmp_path)

    assert [put(log).base_offset for _ in range(3)] == [0, 1, 2]
    assert log.producers() == []


BATCH = client_batch(2, producer_id=4, sequence=0)
REFUSALS = {
    "nothing": (b"", Code.INVALID_RECORD),
    "cut": (BATCH[:-1], Code.INVALID_RECORD),
    "magic 0": (changed(BATCH, ">b", MAGIC, 0), Code.INVALID_RECORD),
    "magic 1": (changed(BATCH, ">b", MAGIC, 1), Code.INVALID_RECORD),
    "magic 3": (changed(BATCH, ">b", MAGIC, 3), Code.CORRUPT_MESSAGE),
    "negative length": (changed(BATCH, ">i", LENGTH, -1), Code.CORRUPT_MESSAGE),
    "length zero": (changed(BATCH, ">i", LENGTH, 0), Code.CORRUPT_MESSAGE),
    "huge length": (changed(BATCH, ">i", LENGTH, 2**31 - 1), Code.INVALID_RECORD),
    "shorter than a header": (changed(BATCH[:40], ">i", LENGTH, 28, mend_crc=False), Code.CORRUPT_MESSAGE),
    "two batches": (BATCH + BATCH, Code.INVALID_RECORD),
    "base offset": (changed(BATCH, ">q", 0, 7), Code.INVALID_RECORD),
    "wrong CRC": (changed(BATCH, ">I", CRC, 1, mend_crc=False), Code.CORRUPT_MESSAGE),
    "unknown codec": (changed(BATCH, ">h", ATTRIBUTES, 5), Code.UNSUPPORTED_COMPRESSION_TYPE),
    "control": (changed(BATCH, ">h", ATTRIBUTES, 0x20), Code.INVALID_RECORD),
    "negative range": (changed(BATCH, ">i", LAST_DELTA, -5), Code.INVALID_RECORD),
    "count beside the range": (changed(BATCH, ">i", COUNT, 3), Code.INVALID_RECORD),
    "no records": (changed(changed(BATCH, ">i", COUNT, 0), ">i", LAST_DELTA, -1), Code.INVALID_RECORD),
    "no room for its records": (
        changed(changed(BATCH, ">i", COUNT, 900), ">i", LAST_DELTA, 899),
        Code.INVALID_RECORD,
    ),
    "negative sequence": (changed(BATCH, ">i", SEQUENCE, -1), Code.INVALID_RECORD),
    "transaction of nobody": (client_batch(transactional=True), Code.INVALID_RECORD),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_malformed_batch_is_refused_with_kafkas_code_and_nothing_is_written(case: str, tmp_path: Path) -> None:
    batch, code = REFUSALS[case]
    log = open_log(tmp_path)

    with refused(code):
        log.append(batch, now_ms=NOW)

    assert (log.end_offset, log.size_bytes, log.producers()) == (0, 0, [])


def test_bytes_behind_the_batch_that_are_no_whole_batch_are_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    log.append(BATCH + BATCH[:30], now_ms=NOW)

    assert log.size_bytes == len(BATCH)


def test_limits_of_the_topic_are_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(max_message_bytes=len(BATCH), segment_bytes=len(BATCH)))
    log.append(BATCH, now_ms=NOW)

    with refused(Code.MESSAGE_TOO_LARGE):
        put(log, 3)
    log.reconfigure(LogConfig(max_message_bytes=10_000, segment_bytes=len(BATCH)))
    with refused(Code.RECORD_LIST_TOO_LARGE):
        put(log, 3)

    assert log.end_offset == 2


def test_log_append_time_replaces_the_producers_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(log_append_time=True))

    answer = log.append(client_batch(2, timestamp_ms=5), now_ms=NOW + 1)

    data = read_all(log)
    header = parse_header(data)
    assert answer.log_append_time_ms == NOW + 1
    assert header is not None
    assert (header.log_append_time, header.max_timestamp_ms) == (True, NOW + 1)
    assert [record.timestamp_ms for record in decode_batch(data)] == [NOW + 1] * 2


def test_a_producer_may_not_claim_log_append_time(tmp_path: Path) -> None:
    claim = changed(BATCH, ">h", ATTRIBUTES, 0x08)
    by_broker = open_log(tmp_path / "broker", LogConfig(log_append_time=True))
    by_producer = open_log(tmp_path / "producer")

    with refused(Code.INVALID_TIMESTAMP):
        by_broker.append(claim, now_ms=NOW)
    by_producer.append(claim, now_ms=NOW)

    header = parse_header(read_all(by_producer))
    assert header is not None and not header.log_append_time, "Kafka takes the claim off"


# ---- the idempotent producer


def test_a_duplicate_is_answered_with_its_old_offset_and_written_once(tmp_path: Path) -> None:
    """Rule: seed 000 §5.5 step 5; 004 How Does Idempotent Producer Work (a duplicate is a success)."""
    log = open_log(tmp_path)
    for sequence in range(5):
        put(log, producer_id=1, sequence=sequence)
    size = log.size_bytes

    answer = put(log, producer_id=1, sequence=2)

    assert answer.duplicate
    assert (answer.base_offset, answer.last_offset, answer.log_append_time_ms) == (2, 2, NOW)
    assert (log.end_offset, log.size_bytes) == (5, size)


def test_what_the_state_machine_refuses_carries_its_code_and_is_not_written(tmp_path: Path) -> None:
    """Rule: seed 000 §5.5 steps 6.2-6.6 (each refusal has its code)."""
    log = open_log(tmp_path, strict=True)
    with refused(Code.UNKNOWN_PRODUCER_ID):
        put(log, producer_id=1, sequence=3)
    put(log, producer_id=1, sequence=0, epoch=2)

    with refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER):
        put(log, producer_id=1, sequence=5, epoch=2)
    with refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER):
        put(log, producer_id=1, sequence=5, epoch=3)
    with refused(Code.INVALID_PRODUCER_EPOCH):
        put(log, producer_id=1, sequence=1, epoch=1)

    assert log.end_offset == 1


def test_a_gap_and_a_forgotten_duplicate_have_one_code_and_two_messages(tmp_path: Path) -> None:
    """Rule: seed 000 §6 (behind is told from ahead)."""
    log = open_log(tmp_path)
    for sequence in range(7):
        put(log, producer_id=1, sequence=sequence)

    with pytest.raises(Exception, match=r"OUT_OF_ORDER_SEQUENCE_NUMBER: .*BEHIND: already written"):
        put(log, producer_id=1, sequence=0)
    with pytest.raises(Exception, match=r"OUT_OF_ORDER_SEQUENCE_NUMBER: .*AHEAD: records before it are missing"):
        put(log, producer_id=1, sequence=9)


def test_producers_are_remembered_when_their_records_are_deleted(tmp_path: Path) -> None:
    """Rule: seed 001 prolonged producer state retention (state outlives the messages)."""
    log = open_log(tmp_path, LogConfig(retention_ms=-1, segment_bytes=200))
    for sequence in range(6):
        put(log, producer_id=1, sequence=sequence)
    log.delete_records(-1)
    log.close()

    log = open_log(tmp_path)

    assert put(log, producer_id=1, sequence=5).duplicate
    with refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER):
        put(log, producer_id=1, sequence=7)


def test_idle_producers_are_forgotten_and_may_then_start_anywhere(tmp_path: Path) -> None:
    """Rule: seed 001 prolonged producer state retention; 004 Broker Failure (state built anew)."""
    log = open_log(tmp_path, LogConfig(producer_id_expiration_ms=1000))
    put(log, producer_id=1, sequence=0)
    put(log, producer_id=2, sequence=0, transactional=True)

    assert log.expire_producers(NOW + 999) == 0
    assert log.expire_producers(NOW + 1000) == 1

    assert [producer.producer_id for producer in log.producers()] == [2], "an open transaction is kept"
    assert put(log, producer_id=1, sequence=77).base_offset == 2


# ---- transactions


def test_describe_producers_shows_epoch_sequence_and_open_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log)
    put(log, 3, producer_id=5, sequence=0, epoch=2, transactional=True)

    (opened,) = log.producers()
    end(log, 5, commit=True, epoch=3, coordinator_epoch=8)
    (ended,) = log.producers()

    assert (
        opened.epoch,
        opened.last_sequence,
        opened.coordinator_epoch,
        opened.transaction_start_offset,
    ) == (2, 2, -1, 1)
    assert (ended.epoch, ended.last_sequence, ended.coordinator_epoch, ended.transaction_start_offset) == (
        3,
        -1,
        8,
        -1,
    )


def test_one_producer_is_shown_and_whether_this_epoch_of_it_has_a_transaction_open(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, producer_id=5, sequence=0, epoch=2, transactional=True)

    assert log.producer(5) == log.producers()[0]
    assert log.producer(6) is None
    assert [log.has_open(5, epoch) for epoch in (1, 2, 3)] == [False, True, False]
    assert log.is_open(5) == 0


def test_a_log_append_time_batch_is_searched_from_the_start_of_the_log(tmp_path: Path) -> None:
    """Its records have one timestamp, so the first that is not deleted answers."""
    log = open_log(tmp_path, LogConfig(log_append_time=True))
    put(log, 5)
    log.delete_records(3)

    assert log.offset_for_timestamp(NOW - 1, read_committed=False) == (3, NOW)


def test_markers_of_older_epochs_and_coordinators_are_refused_and_not_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, producer_id=5, sequence=0, epoch=2, transactional=True)
    end(log, 5, commit=True, epoch=2, coordinator_epoch=8)

    with refused(Code.INVALID_PRODUCER_EPOCH):
        end(log, 5, commit=True, epoch=1, coordinator_epoch=8)
    with refused(Code.TRANSACTION_COORDINATOR_FENCED):
        end(log, 5, commit=True, epoch=2, coordinator_epoch=7)

    assert log.end_offset == 2


def test_a_marker_of_version_2_that_comes_again_is_written_again_and_ends_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, producer_id=5, sequence=0, epoch=2, transactional=True)
    for _ in range(2):
        log.append_marker(5, 3, commit=False, coordinator_epoch=0, now_ms=NOW, transaction_version=2)

    assert log.end_offset == 3
    assert log.last_stable_offset == 3
    assert len(log.read(0, 1 << 20, read_committed=True, at_least_one=True).aborted) == 1


def test_a_coordinators_records_are_one_batch_under_its_producers_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    assert log.append_internal([(b"a", b"1"), (b"b", None)], now_ms=NOW) == (0, 1)
    assert log.append_internal([(b"c", b"2")], now_ms=NOW, producer_id=3, producer_epoch=4, transactional=True) == (
        2,
        2,
    )
    with refused(Code.INVALID_PRODUCER_EPOCH):
        log.append_internal([(b"d", b"3")], now_ms=NOW, producer_id=3, producer_epoch=3, transactional=True)
    end(log, 3, commit=False, epoch=4)

    scanned = list(log.scan_batches())
    assert [(batch.producer_id, batch.transactional, batch.control_commit) for batch in scanned] == [
        (-1, False, None),
        (3, True, None),
        (3, True, False),
    ]
    found = [(record.offset, record.key, record.value) for record in log.scan_records()]
    assert found == [(0, b"a", b"1"), (1, b"b", None), (2, b"c", b"2")]


def test_flush_messages_is_how_often_the_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, LogConfig(flush_messages=3))
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(log.end_offset), fsync(descriptor)))

    for _ in range(7):
        put(log, 2)

    assert synced == [2, 6, 10], "before the batch that makes three records counts as written"
