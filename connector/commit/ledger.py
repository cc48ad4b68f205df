"""The ledger: one compacted topic that holds, per pipeline, the newest decision. The audit trail of every batch.

Owns: the topic's settings, finding a pipeline's newest decision, the bytes of a new one.
Does not know: how a decision comes about, slots, Spark.
Invariants: a decision is written inside the driver's transaction only; what is read is committed; a record that cannot
be read stops the query, it is never skipped; nothing is inferred from a ledger that could not be read to its end.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from connector.client import admin
from connector.client.cluster import Cluster
from connector.client.log_reader import read_raw
from connector.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, Offsets
from connector.client.producer import Producer
from connector.errors import BrokerUnavailable, LedgerUnreadable, UnknownTopic
from connector.model import Decision, TopicPartition
from connector.records import (
    BATCH_OVERHEAD_BYTES,
    Batch,
    MarkerKind,
    RecordColumns,
    Section,
    SectionWriter,
    control_marker,
    decode,
    frame,
    murmur2_of,
    scan,
)

PARTITIONS = 8
"""Pipelines share the topic; an open decision of one holds up readers of its partition only. Fewer make them meet more
often, many more are open files for a few small records."""

SETTINGS = {
    "cleanup.policy": "compact",
    # The active segment is never compacted: small segments keep what a restart may have to read small.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    # A decision names every slot and partition of its batch; 8 MB is some 100,000 of those before compression.
    "max.message.bytes": str(8 * 1024 * 1024),
}

_WINDOW = 500
"""Offsets read at first when looking for the newest decision, backwards from the end; doubled each time."""

_WAIT_MS = 90_000
"""How long open transactions of other pipelines in the partition are waited for. A decision takes milliseconds; a dead
driver's is aborted by its timeout of 60 s, which the broker looks at every 10 s. At half, another pipeline's crash would stop
this one's start; at double, a hanging transaction is reported late."""


class Ledger:
    """Decisions of one pipeline."""

    def __init__(self, cluster: Cluster, topic: str, pipeline: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.pipeline = pipeline
        self._key = pipeline.encode()

    def prepare(self) -> None:
        """Make sure that the topic is there and compacted; creates it where it is missing."""
        try:
            self.cluster.topic(self.topic)
        except UnknownTopic:
            admin.create_topic(self.cluster, self.topic, partitions=PARTITIONS, settings=SETTINGS)
            self._await_topic()
        found = admin.topic_settings(self.cluster, self.topic, ["cleanup.policy"])
        policy = (found or {}).get("cleanup.policy")
        if policy is not None and policy != "compact":
            raise LedgerUnreadable(
                f"the ledger topic {self.topic!r} has cleanup.policy={policy}: decisions would be deleted; nothing was "
                "written; set cleanup.policy=compact or name another topic with ledger.topic",
                {"topic": self.topic, "cleanup_policy": policy},
            )

    def _await_topic(self) -> None:
        deadline = time.monotonic() + _WAIT_MS / 1000
        while True:
            try:
                self.cluster.topic(self.topic, refresh=True)
                return
            except UnknownTopic:
                if time.monotonic() > deadline:
                    raise
                self.cluster.pause(50)

    @property
    def partition(self) -> TopicPartition:
        """Where this pipeline's decisions are: Java's partitioning of the key, so any client finds them."""
        count = len(self.cluster.topic(self.topic).leaders)
        hashed = int(murmur2_of(pa.array([self._key]))[0])
        return TopicPartition(self.topic, (hashed & 0x7FFFFFFF) % count)

    def newest(self, *, settle: bool) -> Decision | None:
        """The newest committed decision of this pipeline, None where it has none.

        `settle`: read to the high watermark and wait for open transactions before it, bounded; the caller has fenced
        its own pipeline's driver, or would wait for that one's timeout. Without it the answer may be a decision too old,
        never a wrong one. LedgerUnreadable for a record under this pipeline's key that is not a decision.
        """
        where = self.partition
        if settle:
            end = self._settled_end(where)
        else:
            end = self._end(where, READ_COMMITTED)
        earliest = Offsets(self.cluster).earliest([where])[where]
        window, upper = _WINDOW, end
        while upper > earliest:
            lower = max(earliest, upper - window)
            found = self._newest_between(where, lower, upper)
            if found is not None:
                return found
            window, upper = window * 2, lower
        return None

    def _end(self, where: TopicPartition, isolation: str) -> int:
        return Offsets(self.cluster).latest([where], isolation)[where]

    def _settled_end(self, where: TopicPartition) -> int:
        deadline = time.monotonic() + _WAIT_MS / 1000
        end = self._end(where, READ_UNCOMMITTED)
        while True:
            stable = self._end(where, READ_COMMITTED)
            if stable >= end:
                return end
            if time.monotonic() > deadline:
                raise BrokerUnavailable(
                    f"an open transaction holds the ledger partition {where} at offset {stable}, so the newest decision "
                    "cannot be read; nothing was written; look for its owner with Kafka's find-hanging",
                    {"partition": str(where), "last_stable_offset": stable, "end": end},
                )
            self.cluster.pause()

    def _newest_between(self, where: TopicPartition, lower: int, upper: int) -> Decision | None:
        newest: bytes | None = None
        for batch in self._committed_batches(where, lower, upper):
            rows = decode(batch)
            for key, value, offset in zip(
                rows.key.to_pylist(), rows.value.to_pylist(), rows.offset, strict=True
            ):
                if key == self._key and lower <= offset < upper and value is not None:
                    newest = value
        return None if newest is None else Decision.from_bytes(newest)

    def _committed_batches(self, where: TopicPartition, lower: int, upper: int) -> Iterator[Batch]:
        """Batches of committed transactions between two offsets. The range is settled: every transaction in it has
        its marker, which may lie behind `upper` only for records that are not committed yet, and there are none."""
        pending: dict[int, list[Batch]] = {}
        offset = lower
        while offset < upper or pending:
            read = read_raw(self.cluster, where, offset)
            following = offset
            for info, data in scan(bytes(read.records)):
                following = max(following, info.last_offset + 1)
                if info.control:
                    yield from _ended(pending, (info, data))
                elif info.transactional:
                    if info.base_offset < upper:
                        pending.setdefault(info.producer_id, []).append((info, data))
                elif info.base_offset < upper:
                    # Not written by a driver: a foreign record, which `Decision.from_bytes` judges.
                    yield info, data
            if following == offset:
                return
            offset = following

    def write(self, producer: Producer, decision: Decision) -> None:
        """Put a decision into the driver's open transaction. It shows when, and only if, that commits."""
        section = _one_record(self._key, decision.to_bytes())
        identity = producer.identity

        def stamp(base_sequence: int) -> memoryview:
            return frame(
                section,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=base_sequence,
                transactional=True,
                compression="gzip",
            )

        producer.send(self.partition, 1, stamp)


def _ended(pending: dict[int, list[Batch]], marker: Batch) -> Iterator[Batch]:

    kind = control_marker(marker).kind
    if kind is MarkerKind.OTHER:
        return
    batches = pending.pop(marker[0].producer_id, [])
    if kind is MarkerKind.COMMIT:
        yield from batches


def _one_record(key: bytes, value: bytes) -> Section:
    columns = RecordColumns(
        pa.array([key], pa.binary()), pa.array([value], pa.binary()), None, None, num_rows=1
    )

    limit = len(key) + len(value) + 64
    writer = SectionWriter(1, limit + BATCH_OVERHEAD_BYTES, explicit_timestamps=False, digest_seeds=None)
    sections = list(writer.append(columns, np.zeros(1, dtype=np.int32), int(time.time() * 1000)))
    sections.extend(writer.flush())
    (section,) = sections
    return section


def topic_seed(topic: str) -> int:
    """Seed of a topic's record digests (format 1): the topic is part of what was written."""
    return zlib.crc32(topic.encode()) | (zlib.adler32(topic.encode()) << 32)
