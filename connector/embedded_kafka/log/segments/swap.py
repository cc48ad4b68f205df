"""Replacing segments by the cleaned segment made from them; the note of how far a log is clean.

Owns: the cleaner's file names in a partition's directory, and the recovery of those files after a crash.
Does not know: which records are cleaned out.
Invariants:
- A segment in progress is in the directory `cleaned`, which a start deletes.
- The rename of that directory to `swap` commits the new segment; a start then finishes the remaining work.
- Records are in the old segments or in the new one, never in neither.
- The note of how far the log is clean may lag behind (the work is then repeated), but never runs ahead. It
  exists before the first segment with gaps.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from embedded_kafka.log.segments.files import sync_directory, write_whole
from embedded_kafka.log.segments.segment import Segment, file_path

NOTE: Final = "cleaner-offset.json"
_CLEANED: Final = "cleaned"
_SWAP: Final = "swap"
_REPLACED: Final = "replaced.json"
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")


def clean_up_to(directory: Path) -> int | None:
    """The offset before which the log is clean; None if the log was never cleaned. A garbled note only costs time."""
    try:
        return int(json.loads((directory / NOTE).read_bytes())["offset"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return 0


def note(directory: Path, offset: int) -> None:
    """Store that the log is clean before this offset."""
    write_whole(directory / NOTE, json.dumps({"version": 1, "offset": offset}).encode())
    sync_directory(directory)


def begin(directory: Path) -> Path:
    """An empty directory for a cleaned segment."""
    drop(directory)
    (directory / _CLEANED).mkdir()
    return directory / _CLEANED


def drop(directory: Path) -> None:
    """Delete a segment that was not committed."""
    shutil.rmtree(directory / _CLEANED, ignore_errors=True)


def prepare(cleaned: Segment, replaced: Sequence[Segment]) -> None:
    """Flush the cleaned segment to disk, with the list of those that it replaces. Slow; may
    run in another thread."""
    bases = [segment.base_offset for segment in replaced]
    write_whole(cleaned.directory / _REPLACED, json.dumps({"version": 1, "bases": bases}).encode())
    cleaned.save_apart()


def commit(directory: Path) -> None:
    """Commit the cleaned segment. After an OSError it is committed or not; in both cases the next
    start finds all records."""
    (directory / _CLEANED).rename(directory / _SWAP)
    sync_directory(directory)
    _finish(directory)


def settle(directory: Path) -> None:
    """At a start: delete an uncommitted segment, finish a committed one."""
    drop(directory)
    if (directory / _SWAP).is_dir():
        _finish(directory)


def _finish(directory: Path) -> None:
    """Idempotent: a start repeats it after a crash, so each step may have been done before."""
    swap = directory / _SWAP
    bases = json.loads((swap / _REPLACED).read_bytes())["bases"]
    for base in bases[1:]:
        for suffix in (*_SUFFIXES, ".snapshot"):
            file_path(directory, base, suffix).unlink(missing_ok=True)
    # The first segment has the new one's name: its files are replaced one by one, its snapshot stays true.
    for suffix in reversed(_SUFFIXES):
        path = file_path(swap, bases[0], suffix)
        if path.exists():
            path.replace(file_path(directory, bases[0], suffix))
    sync_directory(directory)
    shutil.rmtree(swap)
