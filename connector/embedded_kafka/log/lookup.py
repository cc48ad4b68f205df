"""Look-ups in segments: offsets by timestamp, aborted transactions by offsets, every batch of an internal topic.

Owns: which record of which batch matches.
Does not know: isolation levels, the log's start and end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from embedded_kafka.log import contents, records
from embedded_kafka.log.producers import Producers
from embedded_kafka.log.records import BatchHeader
from embedded_kafka.log.segments.segment import Segment
from embedded_kafka.log.values import ScannedBatch

Found = tuple[int, int]
"""(offset, timestamp in ms)"""


def first_not_older(segments: Sequence[Segment], timestamp_ms: int, start_offset: int) -> Found | None:
    """The first record at or behind `start_offset` whose timestamp is at least this one; `segments` ends behind it."""
    for segment in segments:
        highest = segment.highest_timestamp
        if highest is None or highest[0] < timestamp_ms:
            continue
        # No batch before this offset can match; the batch with this offset may.
        begin = max(segment.times.floor(timestamp_ms - 1), start_offset, segment.base_offset)
        place = segment.position_of(begin)
        for _, header, batch in segment.batches(place[0]) if place else ():
            if header.max_timestamp_ms >= timestamp_ms:
                found = _first(batch, header, timestamp_ms, start_offset)
                if found is not None:
                    return found
    return None


def newest(segments: Sequence[Segment]) -> Found | None:
    """The first record with the highest timestamp of all."""
    best: tuple[int, int, Segment] | None = None
    for candidate in segments:
        highest = candidate.highest_timestamp
        if highest is not None and (best is None or highest[0] > best[0]):
            best = (*highest, candidate)
    if best is None:
        return None
    timestamp_ms, offset, segment = best
    place = segment.position_of(offset)
    for _, header, batch in segment.batches(place[0]) if place else ():
        return _first(batch, header, timestamp_ms, header.base_offset)
    return None


def aborted(segments: Sequence[Segment], offset: int, end_position: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions in a read from `offset` up to a position of the
    first segment. The sparse index gives the end offset of that read, so the list may have extra entries, the
    same as in Kafka's answers."""
    upper = segments[0].index.offset_behind(end_position)
    if upper is None:
        upper = segments[0].end_offset
    found: list[tuple[int, int]] = []
    for segment in segments:
        entries, complete = segment.aborted.overlapping(offset, upper)
        found += [(entry.producer_id, entry.first_offset) for entry in entries]
        if complete:
            break
    return found


def scan(segment: Segment) -> Iterator[ScannedBatch]:
    """Every batch of a segment of an internal topic, decoded; Refused(CORRUPT_MESSAGE) where one is damaged."""
    reached, end = segment.base_offset, 0
    for position, header, batch in segment.batches(0, segment.base_offset):
        reached, end = header.last_offset + 1, position + header.size
        marker = records.decode_marker(batch) if header.control else None
        yield ScannedBatch(
            header.base_offset,
            header.producer_id,
            header.producer_epoch,
            header.transactional,
            None if marker is None else marker.commit,
            [] if header.control else records.decode_records(header, batch),
        )
    if end < segment.log.size or (reached < segment.end_offset and not segment.gaps):
        raise segment.corrupt(reached)


def producers_before(segments: Sequence[Segment], end: int, now_ms: int) -> Producers:
    """The producers by the batches before an offset."""
    producers = Producers()
    for segment in segments:
        for _, header, batch in segment.batches(0, segment.base_offset):
            if header.last_offset >= end:
                return producers
            producers.replay(header, records.decode_marker(batch) if header.control else None, now_ms)
    return producers


def _first(batch: memoryview, header: BatchHeader, at_least_ms: int, start_offset: int) -> Found | None:
    try:
        for offset, timestamp_ms in contents.timestamps(batch, header, start_offset):
            if timestamp_ms >= at_least_ms and offset >= start_offset:
                return offset, timestamp_ms
    except ValueError:
        # The client's records cannot be unpacked, so the answer is the batch as a whole.
        return max(header.base_offset, start_offset), header.max_timestamp_ms
    return None
