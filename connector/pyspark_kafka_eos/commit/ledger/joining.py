"""Finds the parts of a decision that is larger than a record, in front of the record that stands for them.

Owns: the search, backwards in one partition.
Does not know: how a decision is cut (`parts`); which decision counts (`reader`).
Invariants:
- The parts of a decision are of the transaction of the record that stands for them; what others put under these keys is
  not read. Each part that a note has is what a transaction of the pipeline begins with (`writers`).
- Where nobody can tell who wrote that record, every part is read, and the digest states which belong to the decision.
- The search ends at the pipeline's decision before, behind which no part of this one can be, or at the log's beginning.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafka_core.errors import LedgerUnreadable
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.reading.own_records import own_records
from pyspark_kafka_eos.commit.ledger.notes import Settled, SettledInParts, from_bytes, is_part_of
from pyspark_kafka_eos.commit.ledger.parts import Collection as Parts
from pyspark_kafka_eos.commit.ledger.parts import DecisionPart, Manifest
from pyspark_kafka_eos.commit.ledger.writers import begins_transaction
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.records import BatchInfo, scan

_WINDOW = 500
"""Offsets read at first; doubled each time. The parts stand close together unless many drivers write to the
partition.
"""


@dataclass(frozen=True)
class Authors:
    """Whose parts count: those of these producer ids, under this epoch, or else what each one's transactions begin
    with. `producer_ids`: None where nobody can tell, and all count.
    """

    producer_ids: Collection[int | None] | None
    epoch: int | None = None

    def wrote(self, info: BatchInfo) -> bool:
        """Whether a batch may have parts."""
        if self.producer_ids is None:
            return True
        if not info.transactional or info.producer_id not in self.producer_ids:
            return False
        return begins_transaction(info) if self.epoch is None else info.producer_epoch == self.epoch

    def wrote_before(self, info: BatchInfo) -> bool:
        """Whether a batch is of an earlier transaction, so that nothing in front of it has parts."""
        ids, epoch = self.producer_ids or (), self.epoch
        return epoch is not None and info.transactional and info.producer_id in ids and info.producer_epoch < epoch


def decision_in(
    cluster: Cluster,
    where: TopicPartition,
    pipeline: str,
    offset: int,
    value: bytes,
    identity: ProducerIdentity | None,
) -> Decision:
    """The decision of a record under a pipeline's own key, put together where it is in parts. `identity`: that of its
    transaction, None without one.

    LedgerUnreadable where it is none, or where not every part is in the log.
    """
    manifest = Manifest.from_record(value)
    if manifest is None:
        return Decision.from_bytes(value)
    authors = Authors(None) if identity is None else Authors([identity.producer_id], identity.epoch)
    return Decision.from_bytes(joined(cluster, where, pipeline, offset, manifest, authors))


def settled_in(
    cluster: Cluster,
    where: TopicPartition,
    pipeline: str,
    at: int,
    note: Settled | SettledInParts,
    writers: Collection[int | None],
) -> Decision:
    """The decision of a note at offset `at`, put together where it is in parts. `writers`: that of the note, and those
    that are known to write the pipeline's notes: each part is in a transaction of its own, and the id may get another
    producer id in between. LedgerUnreadable as above.
    """
    if isinstance(note, Settled):
        return note.decision
    authors = Authors(None if None in writers else writers)
    return Decision.from_bytes(joined(cluster, where, pipeline, at, note.manifest, authors, above=note.offset))


def joined(
    cluster: Cluster,
    where: TopicPartition,
    pipeline: str,
    below: int,
    manifest: Manifest,
    authors: Authors,
    *,
    above: int | None = None,
) -> bytes:
    """The bytes of a decision in parts. Its parts are of these authors, before offset `below` and, where that is
    known, after offset `above`. LedgerUnreadable where one is missing."""
    found = Parts(manifest)
    begin = Offsets(cluster).earliest([where])[where]
    lowest = begin if above is None else max(begin, above + 1)
    window, upper = _WINDOW, below
    while upper > lowest and not found.complete:
        lower = max(lowest, upper - window)
        parts, behind_another = _between(cluster, where, pipeline.encode(), lower, upper, authors)
        found.add_parts(parts)
        if behind_another and above is None:
            break
        window, upper = window * 2, lower
    return found.value()


def _between(
    cluster: Cluster, where: TopicPartition, key: bytes, lower: int, upper: int, authors: Authors
) -> tuple[list[DecisionPart], bool]:
    """The parts of these authors between two offsets, and whether a decision before theirs is there."""
    parts: list[DecisionPart] = []
    decision = False
    offset = lower
    while offset < upper:
        read = read_raw(cluster, where, offset, until=upper)
        following = offset
        for info, data in () if read.out_of_range else scan(bytes(read.records)):
            following = max(following, info.last_offset + 1)
            if info.control or info.base_offset >= upper:
                continue
            decision = decision or (info.base_offset >= lower and authors.wrote_before(info))
            if not authors.wrote(info):
                continue
            for rows in own_records(where, [(info, data)]):
                names, values = rows.key.to_pylist(), rows.value.to_pylist()
                for name, value, at in zip(names, values, rows.offset.tolist(), strict=True):
                    if not lower <= at < upper:
                        continue
                    decision = decision or name == key
                    if is_part_of(key, name) and value:
                        parts.append(_part(where, at, value))
        if following == offset:
            break
        offset = following
    return parts, decision


def _part(where: TopicPartition, at: int, value: bytes) -> DecisionPart:
    try:
        note = from_bytes(value)
    except LedgerUnreadable as error:
        raise LedgerUnreadable(error.message, {**error.facts, "ledger": str(where), "offset": at}) from error
    if not isinstance(note, DecisionPart):
        raise LedgerUnreadable(
            "a record under the key of a part of a decision is another note; another client wrote it; nothing was changed; "
            "write a tombstone (a record without value) under its key, and start again when compaction has removed the record, "
            "which is read until then",
            {"ledger": str(where), "offset": at},
        )
    return note
