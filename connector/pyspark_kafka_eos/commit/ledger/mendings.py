"""Every mending that the ledger has a note of, for a pipeline whose decisions do not name where an id was left.

Owns: the reading of a whole partition for these notes.
Does not know: what follows from them, which `lost` does.
Invariants:
- A note of a foreign producer accounts for nothing (`writers`).
- Memory does not grow with the partition.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow.compute as pc

from kafka_core.errors import LedgerUnreadable
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.client.reading.own_records import own_records
from pyspark_kafka_eos.commit.ledger.notes import Mending, from_bytes, mending_prefix
from pyspark_kafka_eos.commit.ledger.writers import begins_transaction
from pyspark_kafka_eos.records import scan


def mendings_in(
    cluster: Cluster, where: TopicPartition, pipeline: str, known: Collection[int] | None
) -> set[tuple[str, ProducerIdentity]]:
    """The id and the identity of each mending of the pipeline in this partition. One note of each id outlasts
    compaction. `known`: the pipeline's producer ids; None where nobody can tell.
    """
    found: set[tuple[str, ProducerIdentity]] = set()
    offsets = Offsets(cluster)
    offset, end = offsets.earliest([where])[where], offsets.latest([where], READ_UNCOMMITTED)[where]
    prefix = mending_prefix(pipeline.encode())
    while offset < end:
        following = offset
        batches = []
        for info, data in scan(bytes(read_raw(cluster, where, offset, until=end).records)):
            following = max(following, info.last_offset + 1)
            own = known is None or (begins_transaction(info) and info.producer_id in known)
            if own and not info.control:
                batches.append((info, data))
        for rows in own_records(where, batches):
            for row in pc.indices_nonzero(pc.starts_with(rows.key, pattern=prefix)).to_pylist():
                if (note := _mending(rows.value[row].as_py())) is not None:
                    found.add((note.transactional_id, note.identity))
        if following == offset:
            break
        offset = following
    return found


def _mending(value: bytes | None) -> Mending | None:
    """None for what cannot be read: it accounts for nothing."""
    try:
        note = from_bytes(value) if value else None
    except LedgerUnreadable:
        return None
    return note if isinstance(note, Mending) else None
