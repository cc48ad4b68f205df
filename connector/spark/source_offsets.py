"""Arithmetic of the source's positions: their JSON, how much a micro-batch may take, which ranges it reads.

Owns: Spark's offset JSON of Kafka sources, the division of a batch's limit, the judgement of lost data when planning.
Does not know: brokers, pyspark.
Invariants: the JSON of equal positions is equal text (Spark compares texts to see whether there is news); a limited batch
never takes more than its limit and, where there is anything to read, at least one offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from connector.client.fetcher import OffsetRange
from connector.model import TopicPartition

Positions = Mapping[TopicPartition, int]
OffsetJson = dict[str, dict[str, int]]
Lose = Callable[[TopicPartition, str], None]
"""Called with what is lost where: raises, or returns where the user allows the loss."""


def to_json(positions: Positions) -> OffsetJson:
    """The JSON of Spark's Kafka source, {"topic": {"0": 23}}, with topics and partitions in order."""
    body: OffsetJson = {}
    for where in sorted(positions):
        body.setdefault(where.topic, {})[str(where.partition)] = positions[where]
    return body


def from_json(body: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """The positions in such a JSON."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in body.items()
        for partition, offset in partitions.items()
    }


def admit(start: Positions, latest: Positions, limit: int) -> dict[TopicPartition, int]:
    """The positions after at most `limit` offsets from `start`, divided over the partitions by what each has waiting.

    Every partition with anything waiting gets an offset, so that none waits for the large ones to be done; where the
    limit is less than the number of partitions, they take turns.
    """
    waiting = {
        where: latest[where] - start[where] for where in sorted(latest) if latest[where] > start[where]
    }
    total = sum(waiting.values())
    if total <= limit:
        return dict(latest)
    if len(waiting) > limit:
        # The sum of the positions grows with every batch, so the turn goes round without any memory.
        turn = sum(start[where] for where in waiting) % len(waiting)
        order = list(waiting)[turn:] + list(waiting)[:turn]
        shares = dict.fromkeys(order[:limit], 1)
    else:
        spare, rest = limit - len(waiting), total - len(waiting)
        shares = {where: 1 + spare * (count - 1) // rest for where, count in waiting.items()}
        # Rounding down has left fewer than one for each partition; those with the most to go have room for it.
        left = limit - sum(shares.values())
        for where in sorted(waiting, key=lambda each: shares[each] - waiting[each])[:left]:
            shares[where] += 1
    return {
        where: start[where] + shares.get(where, 0) if where in waiting else latest[where] for where in latest
    }


def until(begin: Positions, newest: Positions, target: Positions) -> dict[TopicPartition, int]:
    """The positions that a run which stops at `target` may come to: not further, and not back behind `begin` unless the
    partition itself now ends before it. Partitions that came after the target are left to the next run."""
    end: dict[TopicPartition, int] = {}
    for where, last in newest.items():
        if where in target or where in begin:
            position = begin.get(where, 0)
            end[where] = min(last, max(position, target.get(where, position)))
    return end


def judge_latest(start: Positions, latest: Positions, lose: Lose) -> None:
    """Tell `lose` of partitions that are gone and of those that end before the query's position."""
    for where, position in start.items():
        if where not in latest:
            lose(where, f"the partition is gone; the query had come to offset {position}")
        elif latest[where] < position:
            lose(where, f"the query had come to offset {position}, but the partition ends at {latest[where]}")


def plan(
    start: Positions, end: Positions, initial: Positions, earliest: Callable[[list[TopicPartition]], Positions], lose: Lose
) -> list[OffsetRange]:  # fmt: skip
    """What a batch from `start` to `end` reads, a range for each partition that has something to read.

    `initial` are the positions that this process has found for a query without any batch. Spark does not log them: when
    the first batch is replayed they are found anew, and what came in between belongs to the batches after it.
    """
    anew = [where for where in end if where not in start or start[where] > end[where]]
    anew = [where for where in anew if where not in initial or start.get(where) != initial[where]]
    first = earliest(anew) if anew else {}
    ranges: list[OffsetRange] = []
    for where in sorted(end):
        begin = start.get(where, 0)
        if where in first:
            begin = first[where]
            if where in start:
                lose(
                    where, f"the query had come to offset {start[where]}, but this batch ends at {end[where]}"
                )
            elif begin > 0:
                lose(where, f"the partition is new to the query and begins at offset {begin}")
        if begin < end[where]:
            ranges.append(OffsetRange(where, begin, end[where]))
    for where in sorted(start):
        if where not in end and start[where] != initial.get(where):
            lose(where, f"the partition is gone; the query had come to offset {start[where]}")
    return ranges
