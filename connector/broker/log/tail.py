"""Taking the end of a log away, as a new leader does that never had it.

Owns: which files go and where the last one is cut.
Does not know: why; leaders' epochs.
Invariants: the log must be closed; what is left is what a crash leaves, so opening it again rebuilds indexes and state.
"""

from __future__ import annotations

from pathlib import Path

from connector.broker.log import swap
from connector.broker.log.recovery import CLEAN_MARK
from connector.broker.log.segment import Segment


def cut(directory: Path, bases: list[int], offset: int) -> None:
    """Remove the batch that has the offset, and all behind it. `bases`: of the log's segments."""
    (directory / CLEAN_MARK).unlink(missing_ok=True)
    clean_up_to = swap.clean_up_to(directory)
    if clean_up_to is not None and clean_up_to > offset:
        swap.note(directory, offset)
    # The newest first: whatever a crash leaves has no gap.
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
