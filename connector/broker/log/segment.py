"""One segment of a log: the file of batches, its indexes, and finding one's way in it.

Owns: the names of the files, when an index gets an entry, walking from batch to batch.
Does not know: producers, transactions beyond the index of aborted ones, what may be appended.
Invariants: a batch is handed out only after its length, CRC and offsets have been judged; a sealed segment has all its files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from connector.broker.log import records
from connector.broker.log.aborted import AbortedIndex
from connector.broker.log.files import LogFile, sync_directory, sync_file
from connector.broker.log.index import OffsetIndex, TimeIndex
from connector.broker.log.records import HEADER_BYTES, BatchHeader, Buffer
from connector.broker.refusals import Refused
from connector.protocol.error_codes import Code

_CHUNK_BYTES: Final = 1024 * 1024
"""Read at once when a segment is scanned: the largest usual batch. Half would read such batches twice; double gains nothing."""

_WINDOW_BYTES: Final = 4096
"""Read at once when headers are looked for: what usually lies between two entries of the index."""

_REMEMBERED_PLACES: Final = 64
"""Readers per segment that find their next batch without a search; more of them search, in some 50 microseconds."""

_BEHIND: Final = (-1, 0)
"""Where the way over a cleaned segment's batches leads when none of them is left from an offset on."""

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""The indexes have four bytes for an offset's distance from the segment's base."""


def file_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """The file of a segment, or of a snapshot at that offset."""
    return directory / f"{base_offset:020d}{suffix}"


class Segment:
    """The segment that begins with `base_offset`. `end_offset` is the offset behind its last batch, or that of the next segment.

    `gaps`: a cleaner may have taken batches out, so offsets may be missing anywhere; otherwise one that is missing is damage.
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
        self.index = OffsetIndex(
            file_path(self.directory, self.base_offset, ".index"), self.base_offset, grows=grows
        )
        self.times = TimeIndex(
            file_path(self.directory, self.base_offset, ".timeindex"), self.base_offset, grows=grows
        )
        self.aborted = AbortedIndex(file_path(self.directory, self.base_offset, ".txnindex"), grows=grows)
        self._entry_files = (self.index.entries, self.times.entries, self.aborted.entries)
        self._bytes_since_entry = 0
        self._highest: tuple[int, int] | None = None
        self._places: dict[int, int] = {}

    def newest_ms(self) -> int:
        """The highest timestamp, or where no record has one, when the file was last written."""
        highest = self.highest_timestamp
        return self.log.path.stat().st_mtime_ns // 1_000_000 if highest is None else highest[0]

    def first_ms(self) -> int | None:
        """The timestamp of the first batch; None where there is none yet, -1 where it has none."""
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
        """Write a batch; gives its position. `note` follows once the caller has it in its books. OSError: nothing was written."""
        position = self.log.size
        self.log.append(buffers, sync=sync)
        return position

    def note(
        self, last_offset: int, max_timestamp_ms: int, size: int, position: int, interval_bytes: int
    ) -> None:
        """A batch stands at this position."""
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
        """Forget the indexes: they are about to be rebuilt from the batches."""
        for entries in self._entry_files:
            entries.close()
        self._make_indexes(grows=True)
        self.end_offset = self.base_offset

    def save(self) -> None:
        """Everything of this segment is in its files and on disk; it may go on growing. OSError: it may be tried again."""
        self.log.sync()
        self._save_indexes()

    def save_apart(self) -> None:
        """As `save`, without the descriptors that the log's thread shares: may be called in another one."""
        sync_file(self.log.path)
        self._save_indexes()

    def _save_indexes(self) -> None:
        if self._highest is not None:
            self.times.add(*self._highest)
        for entries in self._entry_files:
            entries.save()
        sync_directory(self.directory)

    def seal(self) -> None:
        """Nothing is appended any more; `save` came before."""
        for entries in self._entry_files:
            entries.seal()

    def resume(self) -> None:
        """Go on where a clean end of the broker left the segment."""
        for entries in self._entry_files:
            entries.resume()
        last = self.index.last()
        self._bytes_since_entry = self.log.size - (0 if last is None else last[1])
        self._highest = self.times.last()

    def close(self) -> None:
        """Let go of the files."""
        self.log.close()
        for entries in self._entry_files:
            entries.close()

    def remove(self) -> None:
        """Remove the segment from the disk. The batches go first: indexes without batches are swept up, never believed. OSError: it is there as before."""
        self.log.close()
        self.log.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for entries in self._entry_files:
                entries.remove()
            file_path(self.directory, self.base_offset, ".snapshot").unlink(missing_ok=True)

    # ---- judging what a former process left

    def plausible(self, end_offset: int) -> bool:
        """Whether a sealed segment's files may be what they should be, up to the next segment's first offset.

        The batches behind the last entry of the index are looked at by their headers; what lies before is judged when it is read.
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

    def batches(
        self, position: int, expected: int | None = None
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes) of each batch from a position on.

        Ends before the first one that is not whole, whose CRC is wrong or whose offset does not follow `expected` (by default, any,
        and then the one that follows): the caller compares where it ended with where it should have.
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

    def serve(
        self, offset: int, max_bytes: int, limit: int, *, at_least_one: bool
    ) -> tuple[memoryview, int, int]:
        """(bytes of whole batches, their position, the offset behind them) from the batch with `offset` on, before `limit`.

        The offset behind is the segment's end where a cleaner left no batch from `offset` on.
        Refused(CORRUPT_MESSAGE) where the first of them is damaged.
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
        """(position, size) of the batch with this offset, or of the next one where a cleaner took it; None behind the last one.

        Refused(CORRUPT_MESSAGE) where the way there does not lead over batches.
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
        """Whether the batch may come where `expected` is the next offset; None: anything may."""
        if expected is None or header.base_offset == expected:
            return True
        return self.gaps and header.base_offset > expected

    def _remember_place(self, offset: int, position: int) -> None:
        # A reader usually comes back for the offset behind what it got.
        if len(self._places) >= _REMEMBERED_PLACES:
            self._places.clear()
        self._places[offset] = position

    def _follow(self, offset: int, position: int, last: int | None = None) -> tuple[int, int] | None:
        """Walk by the headers from a position to the batch with this offset, or the next; None where that does not lead to it.

        `last`: what the index says to be the last offset of the batch at the position.
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
        """What to raise where the batch with this offset is damaged."""
        return Refused(
            Code.CORRUPT_MESSAGE,
            f"{self.log.path} is damaged at offset {offset}: what stands there is no record batch, or its CRC is wrong; it is not served",
        )
