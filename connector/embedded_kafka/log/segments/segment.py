"""One segment of a log: the file of batches, its indexes, and look-ups in it.

Owns: the names of the files, when an index gets an entry, walking from batch to batch.
Does not know: producers, transactions beyond the index of aborted ones, what may be appended.
Invariants:
- A batch is returned only after its length, CRC and offsets have been checked.
- A sealed segment has all its files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from embedded_kafka.log import records
from embedded_kafka.log.records import HEADER_BYTES, BatchHeader, Buffer
from embedded_kafka.log.segments.aborted import AbortedIndex
from embedded_kafka.log.segments.files import LogFile, sync_directory, sync_file
from embedded_kafka.log.segments.index import OffsetIndex, TimeIndex
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code

_CHUNK_BYTES: Final = 1024 * 1024
"""Bytes per read of a scan: the largest usual batch. Half would read such batches twice; double gains nothing."""

_WINDOW_BYTES: Final = 4096
"""Bytes per read of a search for headers: the usual distance between two entries of the index."""

_REMEMBERED_PLACES: Final = 64
"""Readers per segment that find their next batch without a search; further ones search, in some 50 microseconds."""

_BEHIND: Final = (-1, 0)
"""The result of a walk over a cleaned segment that has no batch left from an offset on."""

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""The indexes store an offset's distance from the segment's base in four bytes."""


def file_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """The file of a segment, or of a snapshot at that offset."""
    return directory / f"{base_offset:020d}{suffix}"


class Segment:
    """The segment from `base_offset` on. `end_offset` is the offset behind its last batch, or
    the next segment's base.

    `gaps`: a cleaner may have removed batches, so offsets may be missing anywhere. Otherwise a
    missing offset is damage.
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        create: bool = False,
        sealed: bool = False,
        gaps: bool = False,
    ) -> None:
        self.directory = directory
        self.gaps = gaps
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.log = LogFile(file_path(directory, base_offset, ".log"), create=create)
        self._first_ms: int | None = None
        self._make_indexes(grows=not sealed)

    def _make_indexes(self, *, grows: bool) -> None:
        self.index = OffsetIndex(file_path(self.directory, self.base_offset, ".index"), self.base_offset, grows=grows)
        self.times = TimeIndex(file_path(self.directory, self.base_offset, ".timeindex"), self.base_offset, grows=grows)
        self.aborted = AbortedIndex(file_path(self.directory, self.base_offset, ".txnindex"), grows=grows)
        self._entry_files = (self.index.entries, self.times.entries, self.aborted.entries)
        self._bytes_since_entry = 0
        self._highest: tuple[int, int] | None = None
        self._places: dict[int, int] = {}

    def newest_ms(self) -> int:
        """The highest timestamp; if no record has one, the time of the file's last write."""
        highest = self.highest_timestamp
        return self.log.path.stat().st_mtime_ns // 1_000_000 if highest is None else highest[0]

    def first_ms(self) -> int | None:
        """The timestamp of the first batch; None without a batch, -1 where the batch has none."""
        if self._first_ms is None and self.log.size:
            header = records.parse_header(self.log.read(HEADER_BYTES, 0))
            self._first_ms = -1 if header is None else header.max_timestamp_ms
        return self._first_ms

    @property
    def highest_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, last offset of the first batch that has it) of the whole segment."""
        if self._highest is None:
            self._highest = self.times.last()
        return self._highest

    # ---- growing

    def append(self, buffers: list[Buffer], *, sync: bool) -> int:
        """Write a batch; returns its position. The caller calls `note` once its own state has the batch.
        OSError: nothing was written."""
        position = self.log.size
        self.log.append(buffers, sync=sync)
        return position

    def note(self, last_offset: int, max_timestamp_ms: int, size: int, position: int, interval_bytes: int) -> None:
        """Add the batch at this position to the indexes."""
        if max_timestamp_ms >= 0 and (self._highest is None or max_timestamp_ms > self._highest[0]):
            self._highest = (max_timestamp_ms, last_offset)
        if self._bytes_since_entry > interval_bytes:
            self.index.add(last_offset, position)
            if self._highest is not None:
                self.times.add(*self._highest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        self.end_offset = last_offset + 1

    def start_over(self) -> None:
        """Clear the indexes, to rebuild them from the batches."""
        for entries in self._entry_files:
            entries.close()
        self._make_indexes(grows=True)
        self.end_offset = self.base_offset

    def save(self) -> None:
        """Save the whole segment to its files on disk; it may keep growing. OSError: the caller may retry."""
        self.log.sync()
        self._save_indexes()

    def save_apart(self) -> None:
        """As `save`, without the descriptors that the log's thread shares, so another thread may call it."""
        sync_file(self.log.path)
        self._save_indexes()

    def _save_indexes(self) -> None:
        if self._highest is not None:
            self.times.add(*self._highest)
        for entries in self._entry_files:
            entries.save()
        sync_directory(self.directory)

    def deactivate(self) -> None:
        """End appending; `save` has to come before."""
        for entries in self._entry_files:
            entries.deactivate()

    def activate(self) -> None:
        """Continue the segment after a clean end of the broker."""
        for entries in self._entry_files:
            entries.activate()
        last = self.index.last()
        self._bytes_since_entry = self.log.size - (0 if last is None else last[1])
        self._highest = self.times.last()

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        for entries in self._entry_files:
            entries.close()

    def remove(self) -> None:
        """Remove the segment from the disk. The batches go first, because recovery removes indexes without
        batches. OSError: the segment is unchanged."""
        self.log.close()
        self.log.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for entries in self._entry_files:
                entries.remove()
            file_path(self.directory, self.base_offset, ".snapshot").unlink(missing_ok=True)

    # ---- checking the files of an earlier process

    def plausible(self, end_offset: int) -> bool:
        """Whether a sealed segment's files look right, up to the next segment's first offset.

        Checks the headers of the batches behind the last entry of the index; earlier batches are
        checked when they are read.
        """
        if not all(entries.whole() for entries in self._entry_files):
            return False
        if not self.aborted.plausible(self.base_offset, end_offset):
            return False
        first, newest = self.times.first(), self.times.last()
        if first and newest and (newest[0] < first[0] or not self.base_offset <= newest[1] < end_offset):
            return False
        last, position = self.index.last() or (self.base_offset - 1, 0)
        reached = None if self.index.last() else self.base_offset
        while position < self.log.size:
            header = records.parse_header(self.log.read(HEADER_BYTES, position))
            if header is None or not self._follows(header, reached):
                return False
            if reached is None and header.last_offset != last:
                return False
            reached = header.last_offset + 1
            position += header.size
        whole = position == self.log.size
        if not whole or reached is None:
            return False
        return reached == end_offset or (self.gaps and reached < end_offset)

    # ---- finding

    def batches(self, position: int, expected: int | None = None) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes) of each batch from a position on.

        Ends before the first batch that is incomplete, has a wrong CRC, or does not follow `expected`
        (default: the first batch may have any offset, the later ones must follow). The caller compares the
        actual with the expected end.
        """
        data, data_at = memoryview(b""), position
        end = self.log.size
        while position < end:
            at = position - data_at
            if len(data) - at < HEADER_BYTES:
                data, data_at, at = memoryview(self.log.read(_CHUNK_BYTES, position)), position, 0
            header = records.parse_header(data, at)
            if header is None or position + header.size > end or not self._follows(header, expected):
                return
            if at + header.size > len(data):
                wanted = max(_CHUNK_BYTES, header.size)
                data, data_at, at = memoryview(self.log.read(wanted, position)), position, 0
            batch = data[at : at + header.size]
            if len(batch) < header.size or not records.crc_is_right(header, batch):
                return
            yield position, header, batch
            expected = header.last_offset + 1
            position += header.size

    def serve(self, offset: int, max_bytes: int, limit: int, *, at_least_one: bool) -> tuple[memoryview, int, int]:
        """(bytes of whole batches, their position, the offset behind them) from the batch with `offset` on, before
        `limit`.

        The offset behind is the segment's end where a cleaner left no batch from `offset` on.
        Refused(CORRUPT_MESSAGE) where the first batch is damaged.
        """
        place = self.position_of(offset)
        if place is None:
            return memoryview(b""), self.log.size, self.end_offset
        position, first_size = place
        if first_size > max_bytes and not at_least_one:
            return memoryview(b""), position, offset
        data = memoryview(self.log.read(max(max_bytes, first_size), position))
        end, expected = 0, None
        while True:
            header = records.parse_header(data, end)
            if header is None or not self._follows(header, expected):
                break
            if header.base_offset >= limit:
                if expected is None:
                    return memoryview(b""), position, offset
                break
            batch = data[end : end + header.size]
            if len(batch) < header.size or not records.crc_is_right(header, batch):
                break
            end += header.size
            expected = header.last_offset + 1
        if expected is None:
            raise self.corrupt(offset)
        self._remember_place(expected, position + end)
        return data[:end], position, expected

    def position_of(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the batch with this offset, or of the next one where a cleaner removed it;
        None behind the last one.

        Refused(CORRUPT_MESSAGE) where the bytes on the way are not batches.
        """
        known = self._places.get(offset)
        if known is not None:
            found = self._follow(offset, known)
            if found is not None:
                return None if found is _BEHIND else found
        if offset >= self.end_offset:
            return None
        last, position = self.index.floor(offset)
        found = self._follow(offset, position, last if position else None) or self._follow(offset, 0)
        if found is None:
            raise self.corrupt(offset)
        return None if found is _BEHIND else found

    def _follows(self, header: BatchHeader, expected: int | None) -> bool:
        """Whether the batch is valid where `expected` is the next offset; None: any batch is."""
        if expected is None or header.base_offset == expected:
            return True
        return self.gaps and header.base_offset > expected

    def _remember_place(self, offset: int, position: int) -> None:
        # A reader usually continues with the offset behind its last batch.
        if len(self._places) >= _REMEMBERED_PLACES:
            self._places.clear()
        self._places[offset] = position

    def _follow(self, offset: int, position: int, last: int | None = None) -> tuple[int, int] | None:
        """Walk along the headers from a position to the batch with this offset, or the next;
        None where the walk fails.

        `last`: the last offset of the batch at the position, according to the index.
        """
        window, window_at = b"", position
        first = True
        while position < self.log.size:
            if position + HEADER_BYTES > window_at + len(window):
                window, window_at = self.log.read(_WINDOW_BYTES, position), position
            header = records.parse_header(window, position - window_at)
            if header is None or (first and last not in (None, header.last_offset)):
                return None
            if header.last_offset >= offset:
                there = header.base_offset <= offset or self.gaps
                return (position, header.size) if there else None
            position += header.size
            first = False
        return _BEHIND if self.gaps and position == self.log.size else None

    def corrupt(self, offset: int) -> Refused:
        """The refusal for a damaged batch with this offset."""
        return Refused(
            Code.CORRUPT_MESSAGE,
            f"{self.log.path} is damaged at offset {offset}: the bytes there are not a record batch, or its "
            "CRC is wrong; they are not served",
        )
