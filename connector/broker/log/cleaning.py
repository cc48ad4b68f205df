"""What of a compacted log may be cleaned, and whether it is worth it.

Owns: Kafka's rules: the dirty part, what must be left alone, the ratio, the lags, which segments are cleaned into one.
Does not know: records, files.
Invariants: the active segment, and what holds or follows the last stable offset, is never due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from connector.broker.config import LogConfig
from connector.broker.log.segment import MAX_RELATIVE_OFFSET, Segment

EARLY_BYTES: Final = 256 * 1024
"""An internal topic's active segment of this size may be sealed so that it can be cleaned: some 2,000 records, a start's 10 ms. With
fifty partitions a tenth would make as many files as records are saved; ten times as much would be a start's second and more."""


@dataclass(frozen=True)
class Due:
    """Cleaning from `start` on, up to `end`, the first offset of a segment; `ratio` of the log's bytes is dirty."""

    start: int
    end: int
    ratio: float


def find(
    segments: Sequence[Segment], config: LogConfig, clean_up_to: int, stable: int, now_ms: int
) -> Due | None:
    """What of a log is to be cleaned; where that reaches behind the active segment's first offset, it has to be sealed before.

    `segments`: all of the log. `clean_up_to`: it is clean before that. `stable`: the last stable offset.
    """
    active, start = segments[-1], max(clean_up_to, segments[0].base_offset)
    found = due(segments[:-1], config, start=start, stable=stable, now_ms=now_ms, active=active.base_offset)
    if found is None and config.internal and active.log.size >= EARLY_BYTES:
        return due(segments, config, start=start, stable=stable, now_ms=now_ms, active=active.end_offset)
    return found


def due(
    segments: Sequence[Segment], config: LogConfig, *, start: int, stable: int, now_ms: int, active: int
) -> Due | None:
    """What is to be cleaned, None where it is not worth it.

    `segments`: those that are sealed, the oldest first. `start`: the log is clean before it. `stable`: the last stable offset.
    `active`: the first offset behind `segments`.
    """
    clean = sum(segment.log.size for segment in segments if segment.end_offset <= start)
    dirty = [segment for segment in segments if segment.end_offset > start]
    latest_ms = now_ms - config.min_compaction_lag_ms
    end, count = active, 0
    for segment in dirty:
        too_new = config.min_compaction_lag_ms > 0 and segment.newest_ms() > latest_ms
        if segment.end_offset > stable or too_new:
            end = segment.base_offset
            break
        count += 1
    size = sum(segment.log.size for segment in dirty[:count])
    if not size:
        return None
    oldest = [ms for segment in dirty if (ms := segment.first_ms()) is not None and ms > 0]
    overdue = bool(oldest) and min(oldest) < now_ms - config.max_compaction_lag_ms
    ratio = size / (clean + size)
    return Due(start, end, ratio) if overdue or ratio > config.min_cleanable_ratio else None


def groups(segments: Sequence[Segment], end: int, segment_bytes: int) -> list[list[Segment]]:
    """The segments that begin before `end`, in groups that become one segment each."""
    found: list[list[Segment]] = []
    size = 0
    for segment in segments:
        if segment.base_offset >= end:
            break
        fits = size + segment.log.size <= segment_bytes
        if found and fits and segment.end_offset - found[-1][0].base_offset <= MAX_RELATIVE_OFFSET:
            found[-1].append(segment)
            size += segment.log.size
        else:
            found.append([segment])
            size = segment.log.size
    return found
