"""The aborted transactions of a segment, in Kafka's format (`.txnindex`).

Owns: the transactions aborted by markers in this segment.
Does not know: batches, producers' state.
Invariants:
- Entries ascend by the markers' offsets.
- A sealed segment has the file even if it is empty, so that a lost file is detected. (Kafka creates the file
  with the first entry, and can read an empty one.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embedded_kafka.log.segments.index import EntryFile

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


@dataclass(frozen=True)
class AbortedTransaction:
    """One aborted transaction. `last_offset`: its marker's offset. `last_stable_offset`: the
    log's after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex:
    """The aborted transactions whose markers are in one segment."""

    def __init__(self, path: Path, *, grows: bool) -> None:
        self.entries = EntryFile(path, _ENTRY, grows=grows)

    def add(self, aborted: AbortedTransaction) -> None:
        """Add a transaction; its marker's offset is above all earlier ones."""
        self.entries.add(
            _VERSION,
            aborted.producer_id,
            aborted.first_offset,
            aborted.last_offset,
            aborted.last_stable_offset,
        )

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for _, producer_id, first, last, stable in _ENTRY.iter_unpack(self.entries.content()):
            yield AbortedTransaction(producer_id, first, last, stable)

    def plausible(self, base_offset: int, end_offset: int) -> bool:
        """Whether the file exists and every entry fits a segment with these offsets."""
        if not self.entries.whole():
            return False
        marker = base_offset - 1
        for version, _, first, last, stable in _ENTRY.iter_unpack(self.entries.content()):
            if version != _VERSION or not marker < last < end_offset or not 0 <= first < last or stable < 0:
                return False
            marker = last
        return True

    def overlapping(self, start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """The entries with records in [start, end), and whether later segments cannot have more of them."""
        found = []
        for aborted in self:
            if aborted.last_offset >= start and aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                return found, True
        return found, False
