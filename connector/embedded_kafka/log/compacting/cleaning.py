"""Which part of a compacted log is cleanable, and whether its dirty ratio is high enough.

Owns: Kafka's rules: the dirty part, the uncleanable part, the ratio, the lags, which segments are cleaned into one.
Does not know: records, files.
Invariants: the active segment is never due, nor are segments that contain or follow the last stable offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from embedded_kafka.log.segments.segment import MAX_RELATIVE_OFFSET, Segment
from embedded_kafka.settings.config import LogConfig

EARLY_BYTES: Final = 256 * 1024
"""An internal topic's active segment of this size may be sealed so that it can be cleaned: some 2,000
records, which a start reads in 10 ms. With fifty partitions, a tenth would create as many files as it saves
records; ten times as much would cost a start a second and more."""


@dataclass(frozen=True)
class Due:
    """Cleaning from `start` on, up to `end`, the first offset of a segment; `ratio` of the log's bytes is dirty."""

    start: int
    end: int
    ratio: float


def find(segments: Sequence[Segment], config: LogConfig, clean_up_to: int, stable: int, now_ms: int) -> Due | None:
    """The part of a log to clean. If the part reaches behind the active segment's first offset, the caller
    has to seal that segment first.

    `segments`: all segments of the log. `clean_up_to`: the log is clean before it. `stable`:
    the last stable offset.
    """
    active, start = segments[-1], max(clean_up_to, segments[0].base_offset)
    found = due(segments[:-1], config, start=start, stable=stable, now_ms=now_ms, active=active.base_offset)
    if found is None and config.internal and active.log.size >= EARLY_BYTES:
        return due(segments, config, start=start, stable=stable, now_ms=now_ms, active=active.end_offset)
    return found


def due(
    segments: Sequence[Segment], config: LogConfig, *, start: int, stable: int, now_ms: int, active: int
) -> Due | None:
    """The part to clean, None where cleaning is not worth it.

    `segments`: the sealed ones, oldest first. `start`: the log is clean before it. `stable`: the last stable
    offset. `active`: the first offset behind `segments`.
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
