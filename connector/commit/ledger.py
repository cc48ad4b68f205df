"""The ledger: one compacted topic that holds, per pipeline, the newest decision. The audit trail of every batch.

Owns: the topic's settings, finding a pipeline's newest decision, the bytes of a new one.
Does not know: how a decision comes about, slots, Spark.
Invariants: a decision is written inside the driver's transaction only; what is read is committed; a record that cannot
be read stops the query, it is never skipped; nothing is inferred from a ledger that could not be read to its end.
"""

from __future__ import annotations

import time
import zlib

import numpy as np
import pyarrow as pa

from connector.client import admin
from connector.client.cluster import Cluster
from connector.client.log_reader import read_raw
from connector.client.offsets import READ_UNCOMMITTED, Offsets
from connector.client.producer import Producer
from connector.errors import BrokerUnavailable, LedgerUnreadable
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
"""Pipelines share the topic. One partition would do; a few spread many drivers' writes over brokers, many more are open files
for a few small records."""

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
"""How long a decision of this pipeline that has no end yet is waited for. Fencing ends a dead driver's at once; this is for a
coordinator that moves, and covers the driver's timeout of 60 s, which the broker looks at every 10 s. At half, a start would
give up before that; at double, a hanging transaction is reported late."""


class Ledger:
    """Decisions of one pipeline."""

    def __init__(self, cluster: Cluster, topic: str, pipeline: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.pipeline = pipeline
        self._key = pipeline.encode()

    def prepare(self) -> None:
        """Make sure that the topic is there and compacted; creates it where it is missing."""
        admin.ensure_topic(
            self.cluster, self.topic, partitions=PARTITIONS, settings=SETTINGS, wait_ms=_WAIT_MS
        )
        found = admin.topic_settings(self.cluster, self.topic, ["cleanup.policy"])
        policy = (found or {}).get("cleanup.policy")
        if policy is not None and policy != "compact":
            raise LedgerUnreadable(
                f"the ledger topic {self.topic!r} has cleanup.policy={policy}: decisions would be deleted; nothing was "
                "written; set cleanup.policy=compact or name another topic with ledger.topic",
                {"topic": self.topic, "cleanup_policy": policy},
            )

    @property
    def partition(self) -> TopicPartition:
        """Where this pipeline's decisions are: Java's partitioning of the key, so any client finds them."""
        count = len(self.cluster.topic(self.topic).leaders)
        hashed = int(murmur2_of(pa.array([self._key]))[0])
        return TopicPartition(self.topic, (hashed & 0x7FFFFFFF) % count)

    def newest(self, *, settle: bool) -> Decision | None:
        """The newest committed decision of this pipeline, None where it has none.

        `settle`: read to the high watermark and wait for a decision of this pipeline that is still open, bounded; the
        caller has fenced its own pipeline's driver, or would wait for that one's timeout. Without it the answer may be a
        decision too old, never a wrong one. LedgerUnreadable for a record under this pipeline's key that is not a decision.
        """
        where = self.partition
        earliest = Offsets(self.cluster).earliest([where])[where]
        deadline = time.monotonic() + _WAIT_MS / 1000
        while True:
            # Not the last stable offset: another pipeline's open decision would hide what this one has decided since.
            end = self._end(where, READ_UNCOMMITTED)
            try:
                return self._newest_before(where, earliest, end, settle=settle)
            except StillOpen as still:
                if time.monotonic() > deadline:
                    raise BrokerUnavailable(
                        f"a decision of this pipeline at offset {still.offset} of {where} is neither committed nor aborted, "
                        "so the newest one cannot be read; nothing was written; look for its owner with Kafka's "
                        "find-hanging",
                        {"partition": str(where), "offset": still.offset, "end": end},
                    ) from None
            self.cluster.pause()

    def still_open(self) -> StillOpen | None:
        """A decision of this pipeline that is neither committed nor aborted now."""
        where = self.partition
        earliest = Offsets(self.cluster).earliest([where])[where]
        try:
            self._newest_before(where, earliest, self._end(where, READ_UNCOMMITTED))
        except StillOpen as still:
            return still
        return None

    def _newest_before(
        self, where: TopicPartition, earliest: int, end: int, *, settle: bool = True
    ) -> Decision | None:
        window, upper = _WINDOW, end
        while upper > earliest:
            lower = max(earliest, upper - window)
            found = self._newest_between(where, lower, upper, settle=settle)
            if found is not None:
                return self._decision(where, *found)
            window, upper = window * 2, lower
        return None

    def _decision(self, where: TopicPartition, offset: int, value: bytes) -> Decision:
        facts: dict[str, str | int] = {"ledger": str(where), "offset": offset, "pipeline": self.pipeline}
        try:
            decision = Decision.from_bytes(value)
        except LedgerUnreadable as error:
            raise LedgerUnreadable(error.message, {**error.facts, **facts}) from error
        if decision.pipeline != self.pipeline:
            raise LedgerUnreadable(
                f"the ledger's newest record under this pipeline's key is a decision of pipeline {decision.pipeline!r}; "
                "somebody else wrote it; nothing was changed; write the last right record again or name another ledger "
                "topic",
                facts,
            )
        return decision

    def _end(self, where: TopicPartition, isolation: str) -> int:
        return Offsets(self.cluster).latest([where], isolation)[where]

    def _newest_between(
        self, where: TopicPartition, lower: int, upper: int, *, settle: bool
    ) -> _Record | None:
        """The last committed record under this pipeline's key between two offsets; with `settle`, StillOpen where one has no
        end yet.

        Other pipelines' open transactions do not matter: a decision of theirs cannot be this pipeline's.
        """
        committed: list[_Record] = []
        pending: dict[int, list[_Record]] = {}
        offset = lower
        # A marker may stand behind `upper`, so reading goes on until every transaction that matters has its own.
        while offset < upper or pending:
            read = read_raw(self.cluster, where, offset)
            following = offset
            for info, data in scan(bytes(read.records)):
                following = max(following, info.last_offset + 1)
                if info.control:
                    committed += _committed_by((info, data), pending)
                elif info.base_offset < upper:
                    ours = [each for each in self._ours((info, data)) if lower <= each[0] < upper]
                    if ours and info.transactional:
                        pending.setdefault(info.producer_id, []).extend(ours)
                    elif ours:
                        # Not written by a driver: a foreign record, which `Decision.from_bytes` judges.
                        committed += ours
            if following == offset:
                break
            offset = following
        if pending and settle:
            offset, value = min(record for records in pending.values() for record in records)
            raise StillOpen(offset, value)
        return max(committed, default=None)

    def _ours(self, batch: Batch) -> list[_Record]:
        rows = decode(batch)
        found = zip(rows.key.to_pylist(), rows.value.to_pylist(), rows.offset, strict=True)
        # A record without value (a tombstone) is no decision either; as an empty one it is refused, not overlooked.
        return [(int(offset), value or b"") for key, value, offset in found if key == self._key]

    def write(self, producer: Producer, decision: Decision) -> None:
        """Put a decision into the driver's open transaction. It shows when, and only if, that commits."""
        section = one_record(self._key, decision.to_bytes())
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


class StillOpen(Exception):
    """A decision of this pipeline whose transaction has no marker yet: where it stands, and what it says."""

    def __init__(self, offset: int, value: bytes) -> None:
        super().__init__(offset, value)
        self.offset = offset
        self.value = value


_Record = tuple[int, bytes]
"""(offset, value) of a record under this pipeline's key."""


def _committed_by(marker: Batch, pending: dict[int, list[_Record]]) -> list[_Record]:
    """What a marker commits of the pending records, whose producer it takes out of them either way."""
    kind = control_marker(marker).kind
    if kind is MarkerKind.OTHER:
        return []
    records = pending.pop(marker[0].producer_id, [])
    return records if kind is MarkerKind.COMMIT else []


def one_record(key: bytes, value: bytes) -> Section:
    """A section of one record, stamped now."""
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
