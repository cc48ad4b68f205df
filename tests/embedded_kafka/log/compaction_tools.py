"""Compacting a log in a test, and what a consumer makes of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from embedded_kafka.log import BatchHeader, PartitionLog, decode_batch, encode_batch, parse_header
from embedded_kafka.log.compacting.compaction import Compaction
from embedded_kafka.log.records import EndMarker, decode_marker
from embedded_kafka.settings.config import LogConfig
from tests.embedded_kafka.log.log_tools import NOW, open_log, read_committed

DELETE_RETENTION_MS = 1_000
COMPACTED = LogConfig(
    segment_bytes=400,
    index_interval_bytes=150,
    retention_ms=-1,
    compact=True,
    delete_retention_ms=DELETE_RETENTION_MS,
    min_cleanable_ratio=0.0,
)

Shown = list[tuple[int, bytes | None, bytes | None]]
"""(offset, key, value) of each record."""


def compacted_log(directory: Path, config: LogConfig = COMPACTED) -> PartitionLog:
    """A log with small segments."""
    return open_log(directory, config)


def write(
    log: PartitionLog,
    *records: tuple[bytes | None, bytes | None],
    timestamp_ms: int = NOW,
    producer_id: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    epoch: int | None = None,
) -> int:
    """Append records as one batch of a client; gives the first one's offset."""
    batch = encode_batch(
        records,
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=(0 if producer_id >= 0 else -1) if epoch is None else epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return log.append(bytes(batch), now_ms=timestamp_ms).base_offset


def seal(log: PartitionLog, key: bytes = b"filler") -> None:
    """Write until what is there now is in sealed segments: a batch that takes a segment of its own, and another."""
    for _ in range(2):
        write(log, (key, bytes(310)))


def compact(log: PartitionLog, now_ms: int = NOW, paused: Callable[[], None] | None = None) -> bool:
    """Have what is due cleaned, with a look at each pause; whether anything was."""
    compaction = log.compaction(now_ms)
    if compaction is None:
        return False
    run(log, compaction, paused)
    return True


def run(log: PartitionLog, compaction: Compaction, paused: Callable[[], None] | None = None) -> None:
    """Do all steps."""
    for work in compaction.steps():
        if work is not None:
            work()
        if paused is not None:
            paused()
    log.compacted(compaction)


def batches(log: PartitionLog, *, read_committed: bool = False, max_bytes: int = 300) -> list[bytes]:
    """Every batch that a reader is given, in small answers."""
    offset, found = log.log_start_offset, []
    while True:
        result = log.read(offset, max_bytes, read_committed=read_committed, at_least_one=True)
        if not len(result.records):
            return found
        assert result.next_offset > offset
        at = 0
        while at < len(result.records):
            header = parse_header(result.records, at)
            assert header is not None
            assert header.last_offset >= offset
            found.append(bytes(result.records[at : at + header.size]))
            offset = header.last_offset + 1
            at += header.size


def records(log: PartitionLog) -> Shown:
    """Every data record."""
    return [
        (record.offset, record.key, record.value)
        for batch in batches(log)
        if not _header(batch).control
        for record in decode_batch(batch)
    ]


def markers(log: PartitionLog) -> list[tuple[int, int, EndMarker | None]]:
    """(offset, producer, what it says) of each control batch; None where it is empty."""
    return [
        (_header(batch).base_offset, _header(batch).producer_id, decode_marker(batch))
        for batch in batches(log)
        if _header(batch).control
    ]


def latest(shown: Shown) -> dict[bytes | None, bytes]:
    """What a table made of the records holds."""
    table = {key: value for _, key, value in shown}
    return {key: value for key, value in table.items() if value is not None}


def committed(log: PartitionLog) -> Shown:
    """What a read_committed consumer shows."""
    return [(record.offset, record.key, record.value) for record in read_committed(log)]


def _header(batch: bytes) -> BatchHeader:
    header = parse_header(batch)
    assert header is not None
    return header
