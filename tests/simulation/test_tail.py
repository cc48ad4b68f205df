"""The reader of committed records that the judge trusts, over files written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_kafka.log import records as format_v2
from embedded_kafka.log.records import EndMarker
from tests.simulation.tail import Partition, Tail

A, B = 7, 8
"""Two producers."""


class Log:
    """A segment file that grows."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "out-0" / "0.log"
        self.path.parent.mkdir()
        self.path.touch()
        self.end = 0

    def write(self, producer: int, *values: str) -> None:
        """Records of the producer's open transaction, under epoch 0."""
        batch = format_v2.encode_batch(
            [(None, value.encode()) for value in values],
            timestamp_ms=0, base_offset=self.end, producer_id=producer, producer_epoch=0, transactional=True,
        )  # fmt: skip
        self._add(batch, len(values))

    def end_of(self, producer: int, *, commit: bool) -> None:
        """A marker."""
        marker = EndMarker(commit, 0)
        self._add(format_v2.encode_marker(producer, 0, marker, timestamp_ms=0, base_offset=self.end), 1)

    def _add(self, batch: object, count: int) -> None:
        with self.path.open("ab") as file:
            file.write(bytes(batch))  # type: ignore[call-overload]
        self.end += count


def given(partition: Partition, log: Log) -> list[str]:
    """What is given since the last look."""
    return [entry.record for news in partition.take(log.path) for entry in news.given]


def test_a_record_is_given_once_when_its_transaction_is_committed(tmp_path: Path) -> None:
    log, partition = Log(tmp_path), Partition("out", 0)
    log.write(A, "a0", "a1")
    assert given(partition, log) == []
    log.end_of(A, commit=True)
    assert given(partition, log) == ["a0", "a1"]
    assert given(partition, log) == []


def test_what_is_aborted_is_never_given(tmp_path: Path) -> None:
    log, partition = Log(tmp_path), Partition("out", 0)
    log.write(A, "a0")
    log.write(B, "b0")
    log.end_of(A, commit=False)
    log.end_of(B, commit=True)
    assert given(partition, log) == ["b0"]


def test_an_older_open_transaction_holds_back_what_is_committed_behind_it(tmp_path: Path) -> None:
    log, partition = Log(tmp_path), Partition("out", 0)
    log.write(A, "a0")
    log.write(B, "b0")
    log.end_of(B, commit=True)
    assert given(partition, log) == []
    assert partition.stable == 0
    log.end_of(A, commit=True)
    assert given(partition, log) == ["a0", "b0"]


def test_half_a_batch_is_not_read_until_it_is_whole(tmp_path: Path) -> None:
    log, partition = Log(tmp_path), Partition("out", 0)
    log.write(A, "a0")
    log.end_of(A, commit=True)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-3])
    assert given(partition, log) == []
    log.path.write_bytes(whole)
    assert given(partition, log) == ["a0"]


def test_a_log_that_lost_what_was_read_is_refused(tmp_path: Path) -> None:
    log, tail = Log(tmp_path), Tail()
    log.write(A, "a0")
    assert len(list(tail.take(log.path))) == 1
    log.path.write_bytes(b"")
    with pytest.raises(ValueError, match="lost bytes"):
        list(tail.take(log.path))
