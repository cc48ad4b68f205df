"""The first half of a task of scope=batch: rows become finished record batches that still lack their writer's identity.

Owns: the form in which a finished batch travels between Spark's tasks.
Does not know: Spark, producers, which task will send what.
Invariants: rows are judged, routed and packed by the code of `slot`, so errors and bytes are the same in both scopes;
nothing is sent, so a task may run as often as Spark likes.

Batches are framed (and compressed) here, before the shuffle: what travels are few large values, and the sending task has
only to stamp identity, sequence and CRC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from connector.client.cluster import Cluster
from connector.commit.slot import SlotWriter, WritePlan
from connector.model import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from connector.records import Section, frame


@dataclass(frozen=True)
class PackedBatch:
    """A record batch v2 for one partition, whole but for producer id, epoch, base sequence and CRC.

    `records` and `digest` are of its records, `record_bytes` their bytes before compression. `dead_letters`:
    how many of them are rows that could not be written where they should go. `pieces`: its bytes, cut as they travelled.
    """

    where: TopicPartition
    records: int
    record_bytes: int
    digest: int
    pieces: tuple[bytes | memoryview, ...] = field(repr=False)
    dead_letters: int = 0


class _Packer(SlotWriter):
    """A slot's writer that keeps its batches instead of sending them."""

    def __init__(self, plan: WritePlan, slot: int) -> None:
        super().__init__(plan, slot)
        self._finished: list[PackedBatch] = []

    def take(self) -> list[PackedBatch]:
        """What was finished since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def finish(self) -> list[PackedBatch]:
        """The batches that are not full."""
        self._flush()
        return self.take()

    def _open_producer(self, cluster: Cluster) -> None:
        """There is none: what is finished is sent by another task."""

    def _send(self, section: Section, where: TopicPartition) -> None:
        limit = self._limit_for(section, where)
        record_bytes = len(section.records)
        data = self._framed(section, limit, NO_SEQUENCE)
        dead_letters = section.count if where.topic == self.plan.dead_letter_topic else 0
        self._finished.append(
            PackedBatch(where, section.count, record_bytes, section.digest, (data,), dead_letters)
        )

    def _framed(self, section: Section, limit: int | None, base_sequence: int) -> memoryview:
        return frame(
            section,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_EPOCH,
            base_sequence=base_sequence,
            transactional=True,
            compression=self.plan.compression,
            max_batch_bytes=limit,
        )


def pack_rows(plan: WritePlan, slot: int, batches: Iterable[pa.RecordBatch]) -> Iterator[PackedBatch]:
    """The rows of a task as record batches, in the order in which each partition has to get them.

    `slot` tells tasks apart where rows without a key begin. Raises what `SlotWriter.write` raises on a bad row.
    """
    packer = _Packer(plan, slot)
    for batch in batches:
        packer.write(batch)
        yield from packer.take()
    yield from packer.finish()
