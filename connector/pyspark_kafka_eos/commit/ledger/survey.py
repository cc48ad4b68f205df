"""The whole ledger read once, for a pipeline that has no decision in it: does any record know the pipeline, or its
query?

Owns: the search through the keys and values of every partition.
Does not know: what follows from an answer; what a record means beyond whose it is.
Invariants:
- Nothing is inferred from a partition that was not read to its end.
- A record of a transaction that was aborted counts too: who wrote it was at work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from kafka_core.errors import BrokerUnavailable
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.client.reading.own_records import own_records
from pyspark_kafka_eos.commit.ledger.notes import is_note_of
from pyspark_kafka_eos.records import scan


@dataclass(frozen=True)
class Survey:
    """`places`: the ledger's partitions that have records under the pipeline's keys, but for a note of how it began.
    `names`: the other pipelines under which the query has written, in order."""

    places: tuple[TopicPartition, ...] = ()
    names: tuple[str, ...] = field(default=())


def survey(cluster: Cluster, topic: str, pipeline: str, query_id: str) -> Survey:
    """Search every partition of the ledger to its high watermark. BrokerUnavailable where one cannot be read to its
    end.
    """
    offsets = Offsets(cluster)
    partitions = offsets.partitions_of([topic])
    begins, ends = offsets.earliest(partitions), offsets.latest(partitions, READ_UNCOMMITTED)
    # As `to_bytes` of decisions and of their notes writes it. A part of a decision has it escaped, and a note beside
    # it.
    wanted = f'"query_id":{json.dumps(query_id)}'.encode()
    own = pipeline.encode()
    places: set[TopicPartition] = set()
    names: set[bytes] = set()
    for where in partitions:
        for keys, values in _columns(cluster, where, begins[where], ends[where]):
            keyed = pc.starts_with(keys, pattern=own)
            if any(key == own or is_note_of(own, key) for key in keys.filter(keyed).to_pylist()):
                places.add(where)
            said = keys.filter(pc.match_substring(values, pattern=wanted.decode()))
            names |= {key.partition(b"/")[0] for key in said.to_pylist() if key}
    others = sorted(name.decode("utf-8", "replace") for name in names - {own})
    return Survey(tuple(sorted(places)), tuple(others))


def _columns(cluster: Cluster, where: TopicPartition, begin: int, end: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The keys and the values of the records between two offsets, some at a time."""
    offset = begin
    while offset < end:
        read = read_raw(cluster, where, offset, until=end)
        batches = list(scan(bytes(read.records)))
        following = max([offset, *(info.last_offset + 1 for info, _ in batches)])
        if following == offset:
            raise BrokerUnavailable(
                f"{where} of the ledger cannot be read from offset {offset} on, where it ends at {end}, so it is unknown whether "
                "it knows this pipeline; nothing was written",
                {"partition": str(where), "offset": offset, "end": end},
            )
        told = [batch for batch in batches if not batch[0].control]
        for rows in own_records(where, told):
            yield rows.key, rows.value
        offset = following


__all__ = ["Survey", "survey"]
