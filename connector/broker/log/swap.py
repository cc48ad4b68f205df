"""A cleaned segment takes the place of those that it was made from; how far a log is clean.

Owns: the names in a partition's directory that are the cleaner's, and what a crash leaves of them.
Does not know: what is cleaned out.
Invariants: a segment that is being written stands in `cleaned`, where a start throws it away. The rename of that directory to `swap`
is the moment from which the new segment counts: a start then finishes what is left to do. Records are in the old segments or in
the new one, never in neither. The note of how far the log is clean may lag behind (then work is done again), never run ahead, and
is there before the first segment with gaps is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from connector.broker.log.files import sync_directory, write_whole
from connector.broker.log.segment import Segment, file_path

NOTE: Final = "cleaner-offset.json"
_CLEANED: Final = "cleaned"
_SWAP: Final = "swap"
_REPLACED: Final = "replaced.json"
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")


def clean_up_to(directory: Path) -> int | None:
    """The offset before which the log is clean; None where no cleaner has been here. A garbled note only costs time."""
    try:
        return int(json.loads((directory / NOTE).read_bytes())["offset"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return 0


def note(directory: Path, offset: int) -> None:
    """Say that the log is clean before this offset."""
    write_whole(directory / NOTE, json.dumps({"version": 1, "offset": offset}).encode())
    sync_directory(directory)


def begin(directory: Path) -> Path:
    """An empty directory for a cleaned segment."""
    drop(directory)
    (directory / _CLEANED).mkdir()
    return directory / _CLEANED


def drop(directory: Path) -> None:
    """Throw a segment away that did not come to count."""
    shutil.rmtree(directory / _CLEANED, ignore_errors=True)


def prepare(cleaned: Segment, replaced: Sequence[Segment]) -> None:
    """Bring the cleaned segment to the disk, with the list of those that it replaces. Takes long; may run in another thread."""
    bases = [segment.base_offset for segment in replaced]
    write_whole(cleaned.directory / _REPLACED, json.dumps({"version": 1, "bases": bases}).encode())
    cleaned.save_apart()


def commit(directory: Path) -> None:
    """From now on the cleaned segment counts. OSError: it does, or does not; whichever it is, the next start finds all records."""
    (directory / _CLEANED).rename(directory / _SWAP)
    sync_directory(directory)
    _finish(directory)


def settle(directory: Path) -> None:
    """At a start: throw away what does not count, finish what does."""
    drop(directory)
    if (directory / _SWAP).is_dir():
        _finish(directory)


def _finish(directory: Path) -> None:
    """Whatever of it a crash cuts short is done again: each step may have been done before."""
    swap = directory / _SWAP
    bases = json.loads((swap / _REPLACED).read_bytes())["bases"]
    for base in bases[1:]:
        for suffix in (*_SUFFIXES, ".snapshot"):
            file_path(directory, base, suffix).unlink(missing_ok=True)
    # The first has the new one's name: its files are replaced one by one, its snapshot stays true.
    for suffix in reversed(_SUFFIXES):
        path = file_path(swap, bases[0], suffix)
        if path.exists():
            path.replace(file_path(directory, bases[0], suffix))
    sync_directory(directory)
    shutil.rmtree(swap)
