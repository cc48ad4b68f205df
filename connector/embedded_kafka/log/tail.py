"""Truncation of a log, as after the election of a leader that lacks its end.

Owns: which files are removed and where the last one is cut.
Does not know: the reason; leaders' epochs.
Invariants:
- The log is closed.
- The remaining files are as after a crash, so the next opening rebuilds indexes and state.
"""

from __future__ import annotations

from pathlib import Path

from embedded_kafka.log.recovery import CLEAN_MARK
from embedded_kafka.log.segments import swap
from embedded_kafka.log.segments.segment import Segment


def cut(directory: Path, bases: list[int], offset: int) -> None:
    """Remove the batch with this offset and all later ones. `bases`: base offsets of the log's segments."""
    (directory / CLEAN_MARK).unlink(missing_ok=True)
    clean_up_to = swap.clean_up_to(directory)
    if clean_up_to is not None and clean_up_to > offset:
        swap.note(directory, offset)
    # Newest first: a crash leaves no gap.
    for base in sorted(bases, reverse=True):
        segment = Segment(directory, base, sealed=True, gaps=clean_up_to is not None)
        if base >= offset and base != min(bases):
            segment.remove()
            continue
        for position, header, _ in segment.batches(0, base):
            if header.last_offset >= offset:
                segment.log.truncate(position)
                break
        segment.close()
        return
