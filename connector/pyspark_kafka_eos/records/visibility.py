"""Which batches of a Fetch answer a reader may see, and how far the answer's bytes reach.

Owns: the rule of read_committed within one answer.
Does not know: requests, brokers, columns.
Invariants:
- The resulting position is behind every offset that the bytes decide, never behind one that they do not.
- Bytes without a whole batch decide nothing.

What is visible (KIP-98, "Reading transactional messages"): the answer lists the aborted transactions that its records
can belong to as (producer id, first offset). From that offset on, the producer's transactional batches are aborted
until its abort marker. The list is complete for each answer, so nothing is carried from one answer to the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark_kafka_eos.records.batch import Batch, Buffer, MarkerKind, control_marker, scan


@dataclass(frozen=True)
class Seen:
    """`batches` hold the visible records; all offsets before `position` are decided. `leader_epoch` is that of the last
    batch before it, -1 where there was none."""

    batches: list[Batch]
    position: int
    leader_epoch: int


def see(records: Buffer, position: int, end: int, aborted: Iterable[tuple[int, int]], *, committed: bool) -> Seen:
    """The part of an answer to a Fetch from `position` that is before the offset `end`.

    `aborted`: (first offset, producer id) of each aborted transaction that the answer lists; used where `committed`.
    A broker returns a log in order, so a batch behind the end proves that nothing is left in between.
    """
    kept: list[Batch] = []
    leader_epoch = -1
    starts = sorted(aborted)
    aborting: set[int] = set()
    upcoming = 0
    for batch in scan(records):
        info = batch[0]
        if info.base_offset >= end:
            position = max(position, end)
            break
        while upcoming < len(starts) and starts[upcoming][0] <= info.last_offset:
            aborting.add(starts[upcoming][1])
            upcoming += 1
        if info.control:
            if info.producer_id in aborting and control_marker(batch).kind is MarkerKind.ABORT:
                aborting.discard(info.producer_id)
        elif not (committed and info.transactional and info.producer_id in aborting):
            kept.append(batch)
        if info.last_offset >= position:
            position, leader_epoch = info.last_offset + 1, info.leader_epoch
    return Seen(kept, min(position, end), leader_epoch)
