"""Arithmetic of the source's positions: the size of a micro-batch, the ranges that its tasks read.

Owns: the division of a batch's limit and of its ranges over tasks, the detection of lost data when planning.
Does not know: brokers, pyspark.
Invariants:
- A limited batch never takes more than its limit and, where there is anything to read, at least one offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.fetcher import OffsetRange
from pyspark_kafka_eos.client.reading.offsets import LogEnd

Positions = Mapping[TopicPartition, int]
Lose = Callable[[TopicPartition, str], None]
"""Called with a partition and its loss: raises, or returns where the user allows the loss."""


def admit(start: Positions, latest: Positions, limit: int) -> dict[TopicPartition, int]:
    """The positions after at most `limit` offsets from `start`, divided over the partitions by what each has waiting.

    Every partition with anything waiting gets an offset, so none waits until the large ones are done. Where
    the limit is less than the number of partitions, they take turns.
    """
    waiting = {where: latest[where] - start[where] for where in sorted(latest) if latest[where] > start[where]}
    total = sum(waiting.values())
    if total <= limit:
        return dict(latest)
    if len(waiting) > limit:
        # The sum of the positions grows with every batch, so the turn rotates without any state.
        turn = sum(start[where] for where in waiting) % len(waiting)
        order = list(waiting)[turn:] + list(waiting)[:turn]
        shares = dict.fromkeys(order[:limit], 1)
    else:
        spare, rest = limit - len(waiting), total - len(waiting)
        shares = {where: 1 + spare * (count - 1) // rest for where, count in waiting.items()}
        # Rounding down left less than one per partition; those with the most waiting have room for it.
        left = limit - sum(shares.values())
        for where in sorted(waiting, key=lambda each: shares[each] - waiting[each])[:left]:
            shares[where] += 1
    return {where: start[where] + shares.get(where, 0) if where in waiting else latest[where] for where in latest}


def is_too_small(start: Positions, latest: Positions, minimum: int) -> bool:
    """Whether fewer than `minimum` offsets are waiting."""
    return sum(max(0, last - start.get(where, 0)) for where, last in latest.items()) < minimum


def behind(begin: Positions, ends: Mapping[TopicPartition, LogEnd], newest: Mapping[TopicPartition, LogEnd]) -> bool:
    """Whether ends are before a position, or of an older leader than `newest`: whoever gave them may not know of the
    records since, in any partition.
    """
    return any(
        end.offset < begin.get(where, 0) or (where in newest and end.log.leader_epoch < newest[where].log.leader_epoch)
        for where, end in ends.items()
    )


def until(begin: Positions, newest: Positions, target: Positions) -> dict[TopicPartition, int]:
    """The positions that a run may reach if it stops at `target`: no further, and not before `begin` unless
    the partition itself now ends before it. Partitions created after the target are left to the next run."""
    end: dict[TopicPartition, int] = {}
    for where, last in newest.items():
        if where in target or where in begin:
            position = begin.get(where, 0)
            end[where] = min(last, max(position, target.get(where, position)))
    return end


def judge_latest(start: Positions, latest: Positions, lose: Lose) -> list[TopicPartition]:
    """Call `lose` for partitions that are gone and for those that end before the query's position. Returns the
    latter.
    """
    shorter = [where for where, position in start.items() if latest.get(where, position) < position]
    for where, position in start.items():
        if where not in latest:
            lose(where, f"the partition is gone; the query had come to offset {position}")
        elif latest[where] < position:
            lose(where, f"the query had come to offset {position}, but the partition ends at {latest[where]}")
    return shorter


def plan(
    start: Positions, end: Positions, initial: Positions, earliest: Callable[[list[TopicPartition]], Positions], lose: Lose
) -> list[OffsetRange]:  # fmt: skip
    """The ranges that a batch from `start` to `end` reads, one for each partition that has something to read.

    `initial` are the positions that this process found for a query without any batch. Spark does not log
    them: a replay of the first batch finds them anew, and records added in between belong to the batches
    after it.
    """
    anew = [where for where in end if where not in start or start[where] > end[where]]
    anew = [where for where in anew if where not in initial or start.get(where) != initial[where]]
    first = earliest(anew) if anew else {}
    ranges: list[OffsetRange] = []
    for where in sorted(end):
        begin = start.get(where, 0)
        if where in anew and where not in first:
            lose(where, f"the partition is gone; this batch was to read it up to offset {end[where]}")
            continue
        if where in first:
            begin = first[where]
            if where in start:
                lose(where, f"the query had come to offset {start[where]}, but this batch ends at {end[where]}")
            elif begin > 0:
                lose(where, f"the partition is new to the query and begins at offset {begin}")
        if begin < end[where]:
            ranges.append(OffsetRange(where, begin, end[where]))
    for where in sorted(start):
        if where not in end and start[where] != initial.get(where):
            lose(where, f"the partition is gone; the query had come to offset {start[where]}")
    return ranges


def split(ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Divide ranges into pieces of at most `max_records` offsets, then into about `min_partitions` pieces where there
    are fewer: Spark's division (minPartitions, maxRecordsPerPartition), so a job that migrates keeps its tasks.
    """
    pieces = list(ranges)
    if max_records is not None:
        pieces = [piece for each in pieces for piece in _divide(each, -(-_size(each) // max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    # Small ranges stay whole and do not count in the proportion, or the large ones would get too few tasks.
    total = sum(map(_size, pieces))
    whole = [_share(_size(each), total, min_partitions) == 1 for each in pieces]
    total -= sum(_size(each) for each, stays in zip(pieces, whole, strict=True) if stays)
    tasks = max(min_partitions - sum(whole), 1)
    return [
        piece
        for each, stays in zip(pieces, whole, strict=True)
        for piece in _divide(each, 1 if stays else _share(_size(each), total, tasks))
    ]


def _size(each: OffsetRange) -> int:
    return each.end - each.start


def _share(size: int, total: int, tasks: int) -> int:
    # Rounded half up, as Java does.
    return max((2 * size * tasks + total) // (2 * total), 1)


def _divide(each: OffsetRange, parts: int) -> list[OffsetRange]:
    """Equal parts, the rest in the last ones; none is empty."""
    pieces: list[OffsetRange] = []
    start = each.start
    for part in range(parts):
        end = start + (each.end - start) // (parts - part)
        if end > start:
            pieces.append(OffsetRange(each.where, start, end))
        start = end
    return pieces
