"""What the ledger's notes show of records whose own log no longer shows their fate: their topic was recreated, or they
were removed.

Owns: reading how a noted mending ended.
Does not know: what follows from it.
Invariants:
- Only a marker that stands in the ledger's log counts, never its absence.
- Where a note names a partition and no marker shows how the mending ended, the partition's fate is DOUBTFUL, never
  COMMITTED.

A mending that commits has the ledger's partition in its transaction, beside those whose markers are missing, and its
note stands in that partition before the transaction holds anything. So the first marker of its producer behind the note
is the mending's own, whatever became of the other partitions and of the coordinator's memory since. What the note does
not name had its marker when the mending began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.commit.fates import Fate
from pyspark_kafka_eos.commit.ledger.notes import Mending
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.records import MarkerKind, control_marker, scan

Look = Callable[[], LedgerView]
"""What the ledger has of the pipeline now."""

UNSAID = frozenset({Fate.GONE, Fate.REMOVED})
"""Fates of which the partition's own log can say no more."""


def by_the_notes(
    cluster: Cluster, look: Look, seal: Seal, fates: Mapping[TopicPartition, Fate]
) -> dict[TopicPartition, Fate]:
    """The fates of a sealed transaction, completed from the newest notes of its id where its logs no longer show them.
    Asks nothing where the logs do. `look`: by leaders that every broker was asked for.
    """
    if not UNSAID & set(fates.values()):
        return dict(fates)
    view = look()
    if seal.identity is not None and view.aborted.get(seal.transactional_id) == seal.identity:
        return {each: Fate.ABORTED if fate in UNSAID else fate for each, fate in fates.items()}
    note = view.mendings.get(seal.transactional_id)
    if note is None or not _is_of(seal, note):
        return dict(fates)
    where, offset = view.mended_at[seal.transactional_id]
    named = _ended(cluster, where, offset, note)
    return {
        each: fate if fate not in UNSAID else named if each in note.partitions else Fate.COMMITTED
        for each, fate in fates.items()
    }


def _is_of(seal: Seal, note: Mending) -> bool:
    """Whether the mending was begun for the sealed transaction, and not for an earlier one of the id."""
    sealed = seal.identity
    if sealed is None:
        return False
    return sealed.producer_id == note.identity.producer_id and sealed.epoch < note.identity.epoch


def _ended(cluster: Cluster, where: TopicPartition, noted_at: int, note: Mending) -> Fate:
    """How the mending whose note stands at that offset has ended."""
    end, offset = Offsets(cluster).latest([where], READ_UNCOMMITTED)[where], noted_at
    while True:
        read = read_raw(cluster, where, offset, until=end)
        following = offset
        for batch in scan(read.records):
            info = batch[0]
            following = max(following, info.last_offset + 1)
            mine = info.producer_id == note.identity.producer_id and info.producer_epoch >= note.identity.epoch
            if info.control and mine and info.base_offset > noted_at:
                kind = control_marker(batch).kind
                if kind is not MarkerKind.OTHER:
                    return Fate.COMMITTED if kind is MarkerKind.COMMIT else Fate.ABORTED
        if read.out_of_range or following == offset or following >= max(end, read.high_watermark):
            return Fate.DOUBTFUL
        offset = following


__all__ = ["UNSAID", "Look", "by_the_notes"]
