"""The sparse indexes of a segment: offset -> position and timestamp -> offset, in Kafka's format.

Owns: `.index` (8 bytes an entry) and `.timeindex` (12 bytes an entry).
Does not know: batches.
Invariants:
- Entries ascend.
- The active segment's index is in memory, and becomes a file when the segment is sealed or the log is closed.
  After a crash that segment is scanned anyway.
- A wrong index may cost time, but never yields wrong data: a reader checks the batch at an entry's position.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from embedded_kafka.log.segments.files import LogFile, write_whole


class EntryFile:
    """Entries of one size, in memory while they grow, in a file afterwards."""

    def __init__(self, path: Path, layout: struct.Struct, *, grows: bool) -> None:
        self.path = path
        self._layout = layout
        self._grown: bytearray | None = bytearray() if grows else None
        self._file: LogFile | None = None

    def __len__(self) -> int:
        size = len(self._grown) if self._grown is not None else self._opened().size
        return size // self._layout.size

    def __getitem__(self, number: int) -> tuple[int, ...]:
        at = number * self._layout.size
        if self._grown is not None:
            return self._layout.unpack_from(self._grown, at)
        return self._layout.unpack(self._opened().read(self._layout.size, at))

    def add(self, *entry: int) -> None:
        """Append an entry; only while the segment is active."""
        assert self._grown is not None, "the segment is sealed"
        self._grown += self._layout.pack(*entry)

    def content(self) -> bytes:
        """All entries in the file's format."""
        return bytes(self._grown) if self._grown is not None else self.path.read_bytes()

    def save(self) -> None:
        """Write the complete file to disk, and keep growing in memory. OSError leaves everything as it was."""
        if self._grown is not None:
            write_whole(self.path, self._grown)

    def deactivate(self) -> None:
        """Read from the file from now on; `save` has to come before."""
        self._grown = None

    def activate(self) -> None:
        """Load the file into memory, to keep growing."""
        self._grown = bytearray(self.path.read_bytes())
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Remove the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def whole(self) -> bool:
        """Whether the file exists and contains only complete entries."""
        return self.path.is_file() and self.path.stat().st_size % self._layout.size == 0

    def first_where(self, holds: Callable[[tuple[int, ...]], bool]) -> int:
        """Number of the first entry for which `holds` is true; the length where there is none. For all later
        entries `holds` must be true as well."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if holds(self[middle]):
                high = middle
            else:
                low = middle + 1
        return low

    def _opened(self) -> LogFile:
        if self._file is None:
            self._file = LogFile(self.path)
        return self._file


class OffsetIndex:
    """Last offset of a batch -> the position where the batch begins."""

    def __init__(self, path: Path, base_offset: int, *, grows: bool) -> None:
        self.entries = EntryFile(path, struct.Struct(">iI"), grows=grows)
        self._base = base_offset

    def add(self, last_offset: int, position: int) -> None:
        """The batch that ends with this offset begins at this position."""
        self.entries.add(last_offset - self._base, position)

    def floor(self, offset: int) -> tuple[int, int]:
        """(last offset, position) of a batch at or before the one with this offset; (base offset - 1, 0)
        if the index has none."""
        number = self.entries.first_where(lambda entry: entry[0] > offset - self._base)
        return self._entry(number - 1) if number else (self._base - 1, 0)

    def offset_behind(self, position: int) -> int | None:
        """The offset of the first entry at or behind a position."""
        number = self.entries.first_where(lambda entry: entry[1] >= position)
        return self._entry(number)[0] if number < len(self.entries) else None

    def last(self) -> tuple[int, int] | None:
        """The last entry."""
        return self._entry(len(self.entries) - 1) if len(self.entries) else None

    def _entry(self, number: int) -> tuple[int, int]:
        relative, position = self.entries[number]
        return self._base + relative, position


class TimeIndex:
    """The highest timestamp so far -> the last offset of the first batch that has it."""

    def __init__(self, path: Path, base_offset: int, *, grows: bool) -> None:
        self.entries = EntryFile(path, struct.Struct(">qi"), grows=grows)
        self._base = base_offset

    def add(self, timestamp_ms: int, offset: int) -> None:
        """Up to this offset no timestamp is higher. No effect where the timestamp is not above the last entry's."""
        last = self.last()
        if last is None or timestamp_ms > last[0]:
            self.entries.add(timestamp_ms, offset - self._base)

    def floor(self, timestamp_ms: int) -> int:
        """An offset up to which no timestamp is above this one; without an entry, the base offset."""
        number = self.entries.first_where(lambda entry: entry[0] > timestamp_ms)
        return self._entry(number - 1)[1] if number else self._base

    def first(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first entry."""
        return self._entry(0) if len(self.entries) else None

    def last(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry."""
        return self._entry(len(self.entries) - 1) if len(self.entries) else None

    def _entry(self, number: int) -> tuple[int, int]:
        timestamp_ms, relative = self.entries[number]
        return timestamp_ms, self._base + relative
