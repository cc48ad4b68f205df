"""The number of a log's oldest segments that retention removes.

Owns: Kafka's rules of retention.
Does not know: how a segment is removed.
Invariants: an empty last segment always stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedded_kafka.log.segments.segment import Segment


def below(segments: Sequence[Segment], start_offset: int) -> int:
    """Segments with deleted records only."""
    return sum(following.base_offset <= start_offset for following in segments[1:])


def beyond_size(segments: Sequence[Segment], limit_bytes: int) -> int:
    """Segments without which the log still has `limit_bytes`; none where the limit is negative."""
    if limit_bytes < 0:
        return 0
    surplus = sum(segment.log.size for segment in segments) - limit_bytes
    count = 0
    for segment in segments:
        surplus -= segment.log.size
        if surplus < 0 or not segment.log.size:
            break
        count += 1
    return count


def beyond_age(segments: Sequence[Segment], limit_ms: int, now_ms: int) -> int:
    """Segments whose newest record is older than `limit_ms`, up to the first that is not;
    none for a negative limit."""
    if limit_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if not segment.log.size or now_ms - segment.newest_ms() <= limit_ms:
            break
        count += 1
    return count
