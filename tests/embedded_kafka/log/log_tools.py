"""Batches as a client makes them, and what a log shows of itself, for the tests of the log."""

from __future__ import annotations

import struct
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import crc32c
import pytest

from embedded_kafka.log import (
    ActiveProducer,
    Appended,
    PartitionLog,
    decode_batch,
    encode_batch,
    parse_header,
)
from embedded_kafka.log.records import CRC_AT, CRC_STARTS_AT, InternalRecord, decode_marker
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import LogConfig
from kafka_core.protocol.error_codes import Code

NOW = 1_700_000_000_000

KEPT = LogConfig(retention_ms=-1)


def client_batch(
    count: int = 1,
    *,
    sequence: int = -1,
    producer_id: int = -1,
    epoch: int = -1,
    transactional: bool = False,
    timestamp_ms: int = NOW,
    value: bytes = b"value",
) -> bytes:
    """A batch as a producer sends it: base offset 0."""
    if producer_id >= 0 and epoch < 0:
        epoch = 0
    return bytes(
        encode_batch(
            [(b"key", value)] * count,
            timestamp_ms=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def changed(batch: bytes, layout: str, at: int, value: int, *, mend_crc: bool = True) -> bytes:
    """The batch with one field changed, and by default a CRC that fits."""
    result = bytearray(batch)
    struct.pack_into(layout, result, at, value)
    if mend_crc:
        struct.pack_into(">I", result, CRC_AT, crc32c.crc32c(bytes(result[CRC_STARTS_AT:])))
    return bytes(result)


def open_log(directory: Path, config: LogConfig = KEPT, *, now_ms: int = NOW, strict: bool = False) -> PartitionLog:
    """The log in the directory."""
    return PartitionLog.open(directory, config, now_ms=now_ms, strict_first_sequence=strict)


def put(log: PartitionLog, count: int = 1, **fields: int | bool | bytes) -> Appended:
    """Append a client's batch."""
    return log.append(client_batch(count, **fields), now_ms=NOW)  # type: ignore[arg-type]


def end(log: PartitionLog, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    """Write a marker."""
    return log.append_marker(producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=NOW)


def refused(code: Code) -> AbstractContextManager[object]:
    """As pytest.raises, for a refusal with this code."""
    return pytest.raises(Refused, match=f"^{code.name}: ")


def read_all(log: PartitionLog, *, read_committed: bool = False) -> bytes:
    """All bytes that a reader gets, read in small pieces."""
    offset, data = log.log_start_offset, b""
    while True:
        result = log.read(offset, 300, read_committed=read_committed, at_least_one=True)
        if not len(result.records):
            return data
        data += bytes(result.records)
        offset = result.next_offset


def offsets_in(data: bytes | memoryview) -> list[tuple[int, int]]:
    """(base offset, last offset) of every batch."""
    found, at = [], 0
    while at < len(data):
        header = parse_header(data, at)
        assert header is not None
        found.append((header.base_offset, header.last_offset))
        at += header.size
    return found


def visible(log: PartitionLog) -> list[int]:
    """The offsets that a read_committed consumer shows."""
    return [record.offset for record in read_committed(log)]


def read_committed(log: PartitionLog) -> list[InternalRecord]:
    """What a read_committed consumer shows: filtered by the lists of aborted transactions, as KIP-98 says."""
    offset, shown = log.log_start_offset, list[InternalRecord]()
    while True:
        result = log.read(offset, 300, read_committed=True, at_least_one=True)
        if not len(result.records):
            return shown
        pending = sorted(result.aborted, key=lambda entry: entry[1])
        aborting: set[int] = set()
        at = 0
        while at < len(result.records):
            header = parse_header(result.records, at)
            assert header is not None
            batch = result.records[at : at + header.size]
            while pending and pending[0][1] <= header.last_offset:
                aborting.add(pending.pop(0)[0])
            if header.control:
                marker = decode_marker(batch)
                if marker is not None and not marker.commit:
                    aborting.discard(header.producer_id)
            elif header.producer_id not in aborting or not header.transactional:
                shown += decode_batch(batch)
            at += header.size
        offset = result.next_offset


@dataclass(frozen=True)
class Shown:
    """Everything that can be seen of a log from outside."""

    start: int
    end: int
    stable: int
    data: bytes
    visible: tuple[int, ...]
    aborted: tuple[tuple[int, int], ...]
    producers: tuple[ActiveProducer, ...]
    newest: tuple[int, int] | None


def show(log: PartitionLog) -> Shown:
    """What the log shows now."""
    everything = log.read(log.log_start_offset, 1 << 30, read_committed=True, at_least_one=True)
    return Shown(
        log.log_start_offset,
        log.end_offset,
        log.last_stable_offset,
        read_all(log),
        tuple(visible(log)),
        tuple(everything.aborted),
        tuple(sorted(log.producers(), key=lambda producer: producer.producer_id)),
        log.offset_of_max_timestamp(read_committed=False),
    )


def segment_files(directory: Path) -> list[str]:
    """The names of the files, without those of the mark."""
    return sorted(path.name for path in directory.iterdir() if path.suffix != ".json")
