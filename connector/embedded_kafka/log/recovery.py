"""Opening a log: the files of an earlier process are trusted, rebuilt, cut or refused.

Owns: the mark of a clean end, the rebuilding of indexes, snapshots and producers' state, the distinction
between a torn tail and damage.
Does not know: appending, reading.
Invariants:
- Bytes are cut only where nothing valid follows them.
- The broker logs every cut.

A clean end leaves a mark with the last segment's size, the end offset and the checksums of the indexes. If
the mark matches the files, nothing is scanned. Otherwise the last segment is scanned from its beginning,
starting from the snapshot at its base. Sealed segments were on disk before the next one was created, so they
are scanned only where one of their files is missing or contradicts the others.

A torn tail or damage? Batches are appended one at a time, only at the end. A killed process or a power loss
therefore leaves a bad *tail*: no complete batch of a higher offset follows the first bad byte. If such a
batch follows (right magic, length, CRC), bytes in the middle have changed, and cutting would lose
acknowledged records. Recovery then refuses the log and names file and position. A record whose value is
itself such a batch can turn a torn tail into a refusal; the opposite error would lose data. A flipped byte in
the very last batch is indistinguishable from a torn batch: that batch is cut.
"""

from __future__ import annotations

import itertools
import json
import logging
import mmap
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedded_kafka.log import records
from embedded_kafka.log.producer_state import ProducerStateEntry
from embedded_kafka.log.producers import Producers
from embedded_kafka.log.segments import snapshot, swap
from embedded_kafka.log.segments.files import LogFile, sync_directory, write_whole
from embedded_kafka.log.segments.segment import Segment, file_path
from kafka_core.errors import Fact, LogDamaged
from kafka_core.own_directories import PRIVATE_DIRECTORY

_logger = logging.getLogger(__name__)

CLEAN_MARK = "clean-end.json"
START_OFFSET = "log-start-offset.json"
_SIDE_FILES = (".index", ".timeindex", ".txnindex")
_LEADER_EPOCH_AND_MAGIC = b"\x00\x00\x00\x00\x02"
"""Bytes 12 to 16 of every batch of this log, by which recovery searches for batches."""


@dataclass
class Recovered:
    """A recovered log. `clean`: the mark of a clean end is still true. `clean_up_to`:
    compacted before this offset."""

    segments: list[Segment]
    producers: Producers
    start_offset: int
    clean: bool
    clean_up_to: int = 0


def recover(directory: Path, interval_bytes: int, now_ms: int) -> Recovered:
    """Open the log in the directory, or create an empty one. LogDamaged names file and position, and means
    that nothing was changed."""
    # Records are their broker's user's alone, also where the data directory was there and others may enter it.
    directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    swap.settle(directory)
    clean_up_to = swap.clean_up_to(directory)
    start_offset = _start_offset(directory / START_OFFSET)
    bases = _bases(directory)
    if not bases:
        segment = Segment(directory, start_offset, create=True)
        producers = Producers(snapshot.read(file_path(directory, start_offset, ".snapshot"), now_ms) or ())
        return Recovered([segment], producers, start_offset, clean=False)
    gaps = clean_up_to is not None
    segments = [Segment(directory, base, sealed=True, gaps=gaps) for base in bases]
    try:
        found = _recover(directory, segments, max(start_offset, bases[0]), interval_bytes, now_ms)
    except BaseException:
        for segment in segments:
            segment.close()
        raise
    # If the log has lost its end, a note from before the loss does not cover the records written since.
    if clean_up_to is not None and clean_up_to <= found.segments[-1].base_offset:
        found.clean_up_to = clean_up_to
    return found


def _recover(
    directory: Path, segments: list[Segment], start_offset: int, interval_bytes: int, now_ms: int
) -> Recovered:
    mark = _mark(directory / CLEAN_MARK)
    first = _first_to_scan(segments, clean=_agrees(mark, segments[-1]))
    if first is None:
        end_offset = mark["end_offset"]
        states = snapshot.read(file_path(directory, end_offset, ".snapshot"), now_ms)
        if states is not None:
            segments[-1].activate()
            segments[-1].end_offset = end_offset
            return Recovered(segments, Producers(states), start_offset, clean=True)
        first = len(segments) - 1
    producers = _scan(segments, first, interval_bytes, now_ms)
    (directory / CLEAN_MARK).unlink(missing_ok=True)
    sweep(directory, [segment.base_offset for segment in segments])
    if segments[-1].end_offset < start_offset:
        _restart(segments, start_offset, producers)
    return Recovered(segments, producers, start_offset, clean=False)


def write_clean_end(segments: list[Segment], producers: Producers) -> None:
    """Save everything to files, with the mark of a clean end. OSError: there is no mark, and the next start scans."""
    last = segments[-1]
    directory = last.directory
    last.save()
    snapshot.write(file_path(directory, last.end_offset, ".snapshot"), producers)
    sweep(directory, [segment.base_offset for segment in segments], last.end_offset)
    checksums = {suffix: _checksum(file_path(directory, last.base_offset, suffix)) for suffix in _SIDE_FILES}
    mark = {
        "version": 1,
        "base_offset": last.base_offset,
        "size": last.log.size,
        "end_offset": last.end_offset,
        "checksums": checksums,
    }
    write_whole(directory / CLEAN_MARK, json.dumps(mark).encode())
    sync_directory(directory)


def write_start_offset(directory: Path, offset: int) -> None:
    """Store that records before this offset are deleted."""
    write_whole(directory / START_OFFSET, json.dumps({"version": 1, "offset": offset}).encode())
    sync_directory(directory)


def sweep(directory: Path, bases: list[int], end_offset: int | None = None) -> None:
    """Remove snapshots and indexes that belong to no segment, except the snapshot at `end_offset`, and half-written
    files.
    """
    kept = {f"{base:020d}" for base in bases}
    for path in directory.iterdir():
        stray = path.suffix in _SIDE_FILES or (
            path.suffix == ".snapshot" and (end_offset is None or path.stem != f"{end_offset:020d}")
        )
        if path.suffix == ".new" or (stray and path.stem not in kept):
            path.unlink()


def _bases(directory: Path) -> list[int]:
    found = []
    for path in directory.glob("*.log"):
        if len(path.stem) != 20 or not path.stem.isdecimal():
            raise LogDamaged(
                "a file in a partition's directory is not a segment of its log; nothing was changed; move the "
                "file away",
                {"file": str(path)},
            )
        found.append(int(path.stem))
    return sorted(found)


def _start_offset(path: Path) -> int:
    try:
        return int(json.loads(path.read_bytes())["offset"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError) as error:
        raise LogDamaged(
            "the file with a log's start offset cannot be read; nothing was changed; restore it, or remove "
            "it if deleted records may reappear",
            {"file": str(path), "error": str(error)},
        ) from error


def _mark(path: Path) -> dict[str, Any]:
    """The mark; empty where it is missing or garbled, because both mean that the log has to be examined."""
    try:
        mark = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def _checksum(path: Path) -> int:
    return zlib.crc32(path.read_bytes()) if path.is_file() else -1


def _agrees(mark: dict[str, Any], last: Segment) -> bool:
    if mark.get("base_offset") != last.base_offset or mark.get("size") != last.log.size:
        return False
    found = {suffix: _checksum(file_path(last.directory, last.base_offset, suffix)) for suffix in _SIDE_FILES}
    return bool(mark.get("checksums") == found) and -1 not in found.values()


def _first_to_scan(segments: list[Segment], *, clean: bool) -> int | None:
    """Index of the first segment to scan, with all later ones; None where all files are consistent."""
    for number, (segment, following) in enumerate(itertools.pairwise(segments)):
        segment.end_offset = following.base_offset
        if not segment.plausible(following.base_offset):
            return number
    return None if clean else len(segments) - 1


def _scan(segments: list[Segment], first: int, interval_bytes: int, now_ms: int) -> Producers:
    """Rebuild indexes and state from the batches, from the last good snapshot at or before segment `first`.

    Examines everything before it changes anything: a refusal leaves the directory as it was.
    """
    states = _snapshot_of(segments[first], now_ms)
    while states is None and first > 0:
        first -= 1
        states = _snapshot_of(segments[first], now_ms)
    if states is None and segments[0].base_offset > 0:
        _logger.warning(
            "%s: no producer snapshot at the start of the log; producers without later records are unknown",
            segments[0].log.path,
        )
    producers = Producers(states or ())
    scanned = segments[first:]
    states_at_base, ends = [], []
    for segment in scanned:
        states_at_base.append(list(producers))
        ends.append(_replay(segment, producers, interval_bytes, now_ms))
    for number, (segment, end) in enumerate(zip(scanned, ends, strict=True), 1):
        _judge_end(segment, end, scanned[number:])
    _cut(scanned[-1], ends[-1])
    for segment in scanned[:-1]:
        segment.save()
        segment.deactivate()
    for segment, known in list(zip(scanned, states_at_base, strict=True))[1:]:
        snapshot.write(file_path(segment.directory, segment.base_offset, ".snapshot"), known)
    return producers


def _snapshot_of(segment: Segment, now_ms: int) -> list[ProducerStateEntry] | None:
    return snapshot.read(file_path(segment.directory, segment.base_offset, ".snapshot"), now_ms)


def _replay(segment: Segment, producers: Producers, interval_bytes: int, now_ms: int) -> int:
    """Apply every valid batch of a segment; returns the position where they end."""
    segment.start_over()
    end = 0
    for position, header, batch in segment.batches(0, segment.base_offset):
        marker = records.decode_marker(batch) if header.control else None
        aborted = producers.replay(header, marker, now_ms)
        segment.note(header.last_offset, header.max_timestamp_ms, header.size, position, interval_bytes)
        if aborted is not None:
            segment.aborted.add(aborted)
        end = position + header.size
    return end


def _judge_end(segment: Segment, end: int, following: list[Segment]) -> None:
    """LogDamaged where the valid batches of a segment do not end as they should; a torn tail of the last one passes."""
    facts: dict[str, Fact] = {"file": str(segment.log.path), "position": end, "offset": segment.end_offset}
    if segment.gaps and following and segment.end_offset <= following[0].base_offset:
        segment.end_offset = following[0].base_offset
    if following and (end < segment.log.size or segment.end_offset != following[0].base_offset):
        raise LogDamaged(
            "a log is damaged in the middle: a record batch cannot be read and later ones follow; nothing "
            "was changed or cut; restore the file from a copy, or truncate it there and lose what follows",
            {**facts, "next_segment": following[0].base_offset},
        )
    if not following and end < segment.log.size:
        later = _later_batch(segment.log, end, segment.end_offset)
        if later is not None:
            raise LogDamaged(
                "a log is damaged in the middle: a record batch cannot be read and a valid one follows; "
                "nothing was changed or cut; restore the file from a copy, or truncate it there and lose "
                "what follows",
                {**facts, "next_valid_position": later},
            )


def _later_batch(file: LogFile, after: int, end_offset: int) -> int | None:
    """The position behind `after` of a complete, valid batch with higher offsets than the one expected at `after`."""
    with file.path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        view = memoryview(content)
        try:
            at = after
            while True:
                at = content.find(_LEADER_EPOCH_AND_MAGIC, at + 1)
                if at < 0:
                    return None
                start = at - records.LENGTH_ENDS_AT
                header = records.parse_header(view, start) if start > after else None
                if header is None or header.base_offset <= end_offset or start + header.size > len(view):
                    continue
                with view[start : start + header.size] as batch:
                    if records.crc_is_right(header, batch):
                        return start
        finally:
            view.release()


def _cut(last: Segment, end: int) -> None:
    if end < last.log.size:
        _logger.warning(
            "%s: cut at position %d, offset %d: the last %d bytes are not a complete record batch",
            last.log.path, end, last.end_offset, last.log.size - end,
        )  # fmt: skip
        last.log.truncate(end)


def _restart(segments: list[Segment], start_offset: int, producers: Producers) -> None:
    """A power loss removed the log's end, and its start lies behind the rest: restart with an
    empty log at that offset."""
    directory = segments[-1].directory
    _logger.warning("%s: everything before offset %d is deleted, the log continues there", directory, start_offset)
    snapshot.write(file_path(directory, start_offset, ".snapshot"), producers)
    # Oldest first and the new one last: after a crash the rest has no gap, and recovery repeats this.
    for segment in segments:
        segment.remove()
    segments[:] = [Segment(directory, start_offset, create=True)]
