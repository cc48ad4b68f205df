"""The ledger: one compacted topic that holds, per pipeline, the newest decision. The audit trail of every batch.

Owns: the topic's settings, asking for a pipeline's newest decision, the bytes of a new one and of the notes beside it.
Does not know: how a decision comes about, slots, Spark; how the topic is read, which `reader` does.
Invariants:
- A decision is written inside the driver's transaction only.
- A decision that is returned as the newest is committed.
- A record that cannot be read stops the query; it is never skipped.
- Nothing is inferred from a ledger that could not be read to its end.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from connector import crash_points, runtime
from connector.client import admin
from connector.client.appending import append_record, one_record
from connector.client.cluster import Cluster
from connector.client.producer import Producer
from connector.commit.ledger.notes import Note, note_key, to_bytes
from connector.commit.ledger.reader import LedgerReader, LedgerView
from connector.errors import BrokerUnavailable, LedgerUnreadable, OptionsError, UnknownTopic
from connector.model import Decision, TopicPartition
from connector.records import (
    murmur2_of,
    pack,
    stamp,
)

log = logging.getLogger(__name__)

PARTITIONS = 8
"""Pipelines share the topic. One partition would do; a few spread many drivers' writes over brokers; many
more would cost open files for a few small records."""

SETTINGS = {
    "cleanup.policy": "compact",
    # The active segment is never compacted: small segments keep what a restart may have to read small.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    # A decision names every slot and partition of its batch; 8 MB is some 100,000 of those before compression.
    "max.message.bytes": str(8 * 1024 * 1024),
}

_WAIT_MS = 90_000
"""How long to wait for a decision of this pipeline that has no end yet. Fencing ends
a dead driver's decision at once. The wait is for a coordinator that moves, and covers
the driver's timeout of 60 s, which the broker checks every 10 s. At half, a start
would give up before that; at double, a hanging transaction is reported late."""

_SMALL_BYTES = 1024 * 1024
"""Decisions up to this size fit any ledger topic whose limit was not
lowered on purpose. Larger ones are always compared with the topic's limit;
a process that has not read the limit sends one more request for it."""

_REPLICAS_FOR_TWO = 3
"""Replicas from which on the ledger asks for two in sync: with three one may fail; with two none could."""


class Ledger:
    """Decisions and notes of one pipeline."""

    def __init__(self, cluster: Cluster, topic: str, pipeline: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.pipeline = pipeline
        self._key = pipeline.encode()
        self._reader: LedgerReader | None = None
        self._limit: int | None = None

    def prepare(self) -> None:
        """Make sure that the topic exists and is compacted; create it where it is missing."""
        try:
            self.cluster.topic(self.topic, new_topic_ms=0)
        except UnknownTopic:
            settings = SETTINGS | self._durability()
            admin.ensure_topic(
                self.cluster, self.topic, partitions=PARTITIONS, settings=settings, wait_ms=_WAIT_MS
            )
        found = admin.topic_settings(self.cluster, self.topic, ["cleanup.policy", "max.message.bytes"])
        limit = (found or {}).get("max.message.bytes")
        self._limit = None if limit is None else int(limit)
        if found is None:
            log.warning(
                "cannot check whether ledger topic %r is compacted: the right to read its settings "
                "(DESCRIBE_CONFIGS) is missing. If the topic is not compacted, retention deletes decisions",
                self.topic,
            )
        policy = (found or {}).get("cleanup.policy")
        if policy is not None and policy != "compact":
            raise LedgerUnreadable(
                f"the ledger topic {self.topic!r} has cleanup.policy={policy}: decisions would be deleted; nothing was "
                "written; set cleanup.policy=compact or name another topic with ledger.topic",
                {"topic": self.topic, "cleanup_policy": policy},
            )

    def _durability(self) -> dict[str, str]:
        """The setting that keeps a decision when one broker is lost, where new topics get enough replicas."""
        found = admin.broker_settings(self.cluster, ["default.replication.factor"]) or {}
        replicas = int(found.get("default.replication.factor") or 1)
        return {"min.insync.replicas": "2"} if replicas >= _REPLICAS_FOR_TWO else {}

    @property
    def partition(self) -> TopicPartition:
        """Where this pipeline's decisions are: Java's partitioning of the key, so any client finds them."""
        count = len(self.cluster.topic(self.topic).leaders)
        hashed = int(murmur2_of(pa.array([self._key]))[0])
        return TopicPartition(self.topic, (hashed & 0x7FFFFFFF) % count)

    # ---- reading

    def look(self) -> LedgerView:
        """What the ledger contains of this pipeline now; reads on from where the
        last look ended. Does not wait, so a decision may be open. LedgerUnreadable
        for a record under this pipeline's keys that cannot be read."""
        where = self.partition
        if self._reader is None or self._reader.where != where:
            self._reader = LedgerReader(self.cluster, where, self.pipeline)
        return self._reader.read()

    def settled(self) -> LedgerView:
        """The same, once no decision of this pipeline is open any more; the wait is bounded. The caller has
        fenced its own pipeline's driver, or would wait for that driver's timeout."""
        deadline = runtime.monotonic() + _WAIT_MS / 1000
        while True:
            view = self.look()
            if view.open is None or view.settled:
                return view
            if runtime.monotonic() > deadline:
                where = self.partition
                raise BrokerUnavailable(
                    f"a decision of this pipeline at offset {view.open.offset} of {where} is neither committed nor aborted, "
                    "so the newest one cannot be read; nothing was written; look for its owner with Kafka's "
                    "find-hanging",
                    {"partition": str(where), "offset": view.open.offset},
                )
            self.cluster.pause()

    def newest(self, *, settle: bool) -> Decision | None:
        """The newest committed decision of this pipeline, None where it has none. `settle`: as `settled`
        reads it. Without it the answer may be one decision behind, never a wrong one."""
        return (self.settled() if settle else self.look()).newest

    # ---- writing

    def write(self, producer: Producer, decision: Decision) -> None:
        """Put a decision into the driver's open transaction.
        It becomes visible when, and only if, that commits.

        OptionsError where the decision is larger than a record of the topic may be; nothing of it is sent then.
        """
        packed = pack(
            one_record(self._key, decision.to_bytes()),
            transactional=True,
            compression="gzip",
            max_batch_bytes=None,
        )
        self._require_room(decision, len(packed))
        identity = producer.identity

        def stamped(base_sequence: int) -> memoryview:
            return stamp(
                packed,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=base_sequence,
            )

        producer.send(self.partition, 1, stamped)

    def _require_room(self, decision: Decision, size_bytes: int) -> None:
        if self._limit is None and size_bytes <= _SMALL_BYTES:
            return
        limit = self._limit or admin.max_message_bytes(self.cluster, self.topic)
        if size_bytes > limit:
            parts = sum(len(seal.partitions) for seal in decision.seals)
            raise OptionsError(
                f"the decision of this batch is too large for ledger topic {self.topic!r}: it names {len(decision.seals)} tasks "
                f"and {parts} places that they wrote to, {size_bytes} bytes where max.message.bytes={limit}; nothing of the "
                "batch is visible; raise max.message.bytes of that topic, or write with fewer tasks (coalesce) or to fewer "
                "partitions",
                {
                    "topic": self.topic,
                    "size_bytes": size_bytes,
                    "limit_bytes": limit,
                    "tasks": len(decision.seals),
                },
            )

    def note(self, note: Note) -> None:
        """Put a note beside the decisions; returns when it is
        acknowledged. BrokerUnavailable where it may not be."""
        crash_points.reached(f"before-note-{type(note).__name__.lower()}")
        self._append(note_key(self._key, note), to_bytes(note), f"a note of pipeline {self.pipeline!r}")
        crash_points.reached(f"after-note-{type(note).__name__.lower()}")

    def forget(self) -> None:
        """Mark this pipeline's decision for removal (a record without value, which compaction takes with the others)."""
        self._append(self._key, None, f"the end of pipeline {self.pipeline!r}")

    def _append(self, key: bytes, value: bytes | None, what: str) -> None:
        grant = f"grant WRITE on topic {self.topic!r}"
        append_record(self.cluster, self.partition, key, value, what=what, grant=grant)
