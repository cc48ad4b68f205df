"""Producers' state at one offset, as a file in Kafka's format (`.snapshot`, ProducerSnapshot version 1).

Owns: the bytes, their CRC.
Does not know: when a snapshot is taken.
Invariants:
- `read(write(x)) == x`.
- An incomplete file is read as missing, never as state.

Kafka's format has room for one batch of each producer, and Kafka keeps no more over a restart: a restarted
broker answers "out of order" to a client that re-sends four batches. The documents require five, so here a
producer has an entry for each batch, oldest first. Kafka can read such a file: of several entries for a
producer it keeps the last, which is the one it would have written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import crc32c

from embedded_kafka.log.producer_state import REMEMBERED_BATCHES, ProducerStateEntry, RememberedBatch
from embedded_kafka.log.segments.files import write_whole

_VERSION = 1
_HEAD = struct.Struct(">hIi")
_ENTRIES_AT = 6
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the
# transaction
_ENTRY = struct.Struct(">qhiqiqiq")


def write(path: Path, states: Iterable[ProducerStateEntry]) -> None:
    """Write the complete file to disk; OSError leaves the old file in place."""
    entries = bytearray()
    count = 0
    for state in states:
        # The last entry carries the producer's own timestamp, which is a marker's where one came after the last batch.
        timestamps = [*(batch.timestamp_ms for batch in state.batches[:-1]), state.last_timestamp_ms]
        batches = state.batches or (RememberedBatch(-1, -1, 0, -1),)
        if state.batches and state.batches[-1].timestamp_ms != state.last_timestamp_ms:
            batches = (*batches, batches[-1])
            timestamps.insert(-1, state.batches[-1].timestamp_ms)
        open_since = -1 if state.open_since is None else state.open_since
        for batch, timestamp_ms in zip(batches, timestamps, strict=True):
            entries += _ENTRY.pack(
                state.producer_id, state.epoch, batch.last_sequence, batch.last_offset, batch.offset_delta, timestamp_ms,
                state.coordinator_epoch, open_since,
            )  # fmt: skip
            count += 1
    content = bytearray(_HEAD.pack(_VERSION, 0, count)) + entries
    struct.pack_into(">I", content, 2, crc32c.crc32c(memoryview(content)[_ENTRIES_AT:]))
    write_whole(path, content)


def read(path: Path, now_ms: int) -> list[ProducerStateEntry] | None:
    """The states in the file, each last seen at `now_ms`; None where the file is missing or incomplete."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _HEAD.size:
        return None
    version, crc, count = _HEAD.unpack_from(content)
    if version != _VERSION or len(content) != _HEAD.size + count * _ENTRY.size:
        return None
    if crc != crc32c.crc32c(memoryview(content)[_ENTRIES_AT:]):
        return None
    states: dict[int, ProducerStateEntry] = {}
    for entry in _ENTRY.iter_unpack(content[_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, open_since = entry
        batches = states[producer_id].batches if producer_id in states else ()
        batch = RememberedBatch(last_sequence, last_offset, delta, timestamp_ms)
        if last_offset < 0:
            batches = ()
        elif not batches or batches[-1] != replace(batch, timestamp_ms=batches[-1].timestamp_ms):
            batches = (*batches, batch)[-REMEMBERED_BATCHES:]
        states[producer_id] = ProducerStateEntry(
            producer_id,
            epoch,
            coordinator_epoch,
            batches,
            timestamp_ms,
            None if open_since < 0 else open_since,
            now_ms,
        )
    return list(states.values())
