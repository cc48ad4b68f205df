"""What one task does: writes the rows of its slot under the slot's own transaction and seals it.

Owns: the slot's producer for one batch, routing rows to topics and partitions, the count and digest of what was written.
Does not know: Spark (rows come as Arrow batches), the decision.
Invariants: a seal is returned only when every record is acknowledged; a slot without rows opens no transaction; a row
that cannot be written raises before anything of its Arrow batch is sent, and the transaction is aborted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector import crash_points
from connector.client import admin
from connector.client.cluster import Cluster
from connector.client.producer import Producer
from connector.commit.ledger import topic_seed
from connector.errors import ExactlyOnceError, InvalidRow
from connector.model import ClientSettings, Seal, TopicPartition
from connector.records import (
    BATCH_OVERHEAD_BYTES,
    Partitioner,
    RecordColumns,
    Section,
    SectionWriter,
    encode_topics,
    frame,
)

SECTIONS_BYTES = 64 * 1024 * 1024
"""Memory for the sections that a task is filling, over all partitions: with more than 64 of them batches get smaller
than 1 MB. Double would leave too little of a worker's 512 MB; half costs a wide topic its large batches."""

SMALLEST_SECTION_BYTES = 16 * 1024
"""Java's default batch size: below it the header and the request outweigh the records."""

_LIMITS_FOR_S = 300.0
"""How long a topic's limit is remembered in a worker. Kafka's own clients refresh metadata at this pace."""

_LARGEST_COMPRESSED_RECORD = 256 * 1024 * 1024
"""A record that only fits compressed may have this size before compression; more would not fit a worker's memory."""

_limits: dict[tuple[int, ClientSettings, str], tuple[float, int]] = {}


@dataclass(frozen=True)
class WritePlan:
    """What every task of a batch is told. Pickled to the executors.

    `topic` is where all rows go, None where each row names its own. `only_slots`: these write, the others idle.
    `two_phase`: transactions without a timeout (KIP-939). `transactional=False` writes idempotently without transactions:
    at-least-once, for comparison.
    """

    pipeline: str
    batch_id: int
    client: ClientSettings
    topic: str | None
    transaction_timeout_ms: int
    compression: str
    batch_bytes: int
    delivery_timeout_ms: int
    max_record_bytes: int | None = None
    transactional: bool = True
    only_slots: frozenset[int] | None = None
    two_phase: bool = False

    def transactional_id(self, slot: int) -> str:
        """The slot's stable id: one per slot, never one per batch."""
        return f"{self.pipeline}.{slot}"


class SlotWriter:
    """Writes one slot of one batch. Use once: `write` as often as there are rows, then `seal`; or `abort`."""

    def __init__(self, plan: WritePlan, slot: int) -> None:
        self.plan = plan
        self.slot = slot
        self.records = 0
        self.bytes = 0
        self.digest = 0
        self._producer: Producer | None = None
        self._cluster: Cluster | None = None
        self._topics: list[str] = []
        self._where: list[TopicPartition] = []
        self._limits: list[int] = []
        self._partitioner: Partitioner | None = None
        self._sections: SectionWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of an Arrow batch with columns key, value, headers, topic, partition, timestamp (all but value
        may be missing). Raises on the first row that cannot be written, before anything of this batch is sent."""
        if batch.num_rows == 0:
            return
        self._open()
        columns = _columns(batch)
        topic_index = self._topic_index(batch)
        partitioner, sections = self._router(columns)
        explicit = batch.column("partition") if "partition" in batch.schema.names else None
        try:
            targets = partitioner.assign(columns, topic_index, explicit)
            full = sections.append(columns, targets, int(time.time() * 1000))
        except InvalidRow as error:
            raise self._explain(error, batch) from None
        for section in full:
            self._send(section)

    def seal(self) -> Seal:
        """Send what is left, wait for every acknowledgement, and hand the open transaction over."""
        if self._producer is None or self._sections is None:
            return Seal(self.plan.transactional_id(self.slot), self.slot, None, 0)
        for section in self._sections.flush():
            self._send(section)
        if not self.plan.transactional:
            self._producer.flush()
            return Seal(self.plan.transactional_id(self.slot), self.slot, None, 0, records=self.records)
        self._producer.flush()
        crash_points.reached("after-last-acknowledgement")
        seal = self._producer.seal(self.slot, records=self.records, size_bytes=self.bytes, digest=self.digest)
        crash_points.reached("after-seal")
        return replace(seal, retries=self.retries)

    def abort(self) -> None:
        """Abort what was written, as far as the coordinator can be reached; else the next epoch or the timeout does."""
        if self._producer is not None and self.plan.transactional:
            self._producer.abort()

    @property
    def retries(self) -> int:
        """Batches that were sent more than once."""
        return self._producer.retries if self._producer else 0

    def _open(self) -> None:
        if self._producer is not None:
            return
        plan = self.plan
        self._cluster = Cluster.shared(plan.client)
        self._producer = Producer(
            self._cluster,
            plan.transactional_id(self.slot) if plan.transactional else None,
            transaction_timeout_ms=plan.transaction_timeout_ms,
            delivery_timeout_ms=plan.delivery_timeout_ms,
            max_in_flight=plan.client.max_in_flight,
            two_phase=plan.two_phase,
        )
        crash_points.reached("before-init-producer-id")
        self._producer.initialize()
        crash_points.reached("after-init-producer-id")
        self._producer.begin()

    def _router(self, columns: RecordColumns) -> tuple[Partitioner, SectionWriter]:
        explicit = columns.timestamp_ms is not None
        if self._partitioner is None:
            self._partitioner = Partitioner([], sticky_start=self.slot, sticky_bytes=self.plan.batch_bytes)
        if self._sections is None:
            self._sections = SectionWriter(
                0,
                np.zeros(0, dtype=np.int64),
                explicit_timestamps=explicit,
                digest_seeds=np.zeros(0, dtype=np.uint64),
            )
        for topic in self._topics[self._routed() :]:
            self._add_topic(topic)
        return self._partitioner, self._sections

    def _routed(self) -> int:
        return len(self._limits)

    def _add_topic(self, topic: str) -> None:
        assert self._cluster is not None
        assert self._partitioner is not None
        assert self._sections is not None
        info = self._cluster.topic(topic)
        count = len(info.leaders)
        limit = _topic_limit(self._cluster, topic)
        share = max(SMALLEST_SECTION_BYTES, SECTIONS_BYTES // (len(self._where) + count))
        usable = max(1, min(self.plan.batch_bytes, limit, share) - BATCH_OVERHEAD_BYTES)
        # A record alone may use all that the topic allows, however small the batches are to be.
        alone = max(1, limit - BATCH_OVERHEAD_BYTES)
        if self.plan.compression != "none":
            alone = _LARGEST_COMPRESSED_RECORD
        if self.plan.max_record_bytes is not None:
            alone = min(alone, self.plan.max_record_bytes)
        self._partitioner.add_topic(count)
        seeds = np.full(count, topic_seed(topic), dtype=np.uint64)
        self._sections.grow(count, seeds, np.full(count, usable, dtype=np.int64), hard_limit_bytes=alone)
        self._limits.append(limit)
        self._where.extend(TopicPartition(topic, number) for number in range(count))

    def _topic_index(self, batch: pa.RecordBatch) -> int | npt.NDArray[np.int32]:
        # The option wins over the column, as in Spark's sink.
        if self.plan.topic is not None:
            if not self._topics:
                self._topics.append(self.plan.topic)
            return 0
        codes, names = encode_topics(batch.column("topic"))
        missing = np.flatnonzero(codes < 0)
        if len(missing):
            raise InvalidRow(
                "a row has no topic: its topic column is null and the option topic is not set; nothing of the "
                "micro-batch is visible; set the option topic or give every row one",
                {"row": int(missing[0]), "slot": self.slot},
            )
        for name in names:
            if name not in self._topics:
                assert self._cluster is not None
                self._cluster.topic(name)
                self._topics.append(name)
        mapping = np.array([self._topics.index(name) for name in names], dtype=np.int32)
        return mapping.take(codes).astype(np.int32)

    def _send(self, section: Section) -> None:
        assert self._producer is not None
        where = self._where[section.partition]
        identity = self._producer.identity
        transactional = self.plan.transactional
        limit = self._limits[self._topics.index(where.topic)]

        def stamp(base_sequence: int) -> memoryview:
            return frame(
                section,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=base_sequence,
                transactional=transactional,
                compression=self.plan.compression,
                max_batch_bytes=limit if section.row is not None else None,
            )

        self._producer.send(where, section.count, stamp)
        crash_points.reached("mid-produce")
        self.records += section.count
        self.bytes += len(section.records)
        self.digest = (self.digest + section.digest) & 0xFFFFFFFFFFFFFFFF

    def _explain(self, error: InvalidRow, batch: pa.RecordBatch) -> InvalidRow:
        """The same error with what the user can find the row by: its topic and key."""
        row = error.facts.get("row")
        facts = {name: value for name, value in error.facts.items() if name not in ("topic_index", "row")}
        if isinstance(row, int) and row < batch.num_rows:
            facts["topic"] = self.plan.topic or batch.column("topic")[row].as_py()
            key = batch.column("key")[row].as_py() if "key" in batch.schema.names else None
            facts["key"] = _readable(key)
        facts["slot"] = self.slot
        return type(error)(f"{error.message}; nothing of the micro-batch is visible", facts)


def write_slot(plan: WritePlan, slot: int, batches: Iterable[pa.RecordBatch]) -> Seal:
    """Write all rows of a slot and seal it; on any failure the slot's transaction is aborted first."""
    writer = SlotWriter(plan, slot)
    if plan.only_slots is not None and slot not in plan.only_slots:
        return writer.seal()
    try:
        for batch in batches:
            writer.write(batch)
        return writer.seal()
    except BaseException:
        # The failure that led here is the one to report; what is still open ends with the next epoch.
        with contextlib.suppress(ExactlyOnceError):
            writer.abort()
        raise


def _columns(batch: pa.RecordBatch) -> RecordColumns:
    names = batch.schema.names
    stamps: npt.NDArray[np.int64] | None = None
    if "timestamp" in names:
        column = batch.column("timestamp")
        if column.null_count:
            row = int(pc.index(pc.is_null(column), True).as_py())
            raise InvalidRow(
                "a row has a null timestamp; nothing of the micro-batch is visible; give every row one or drop the "
                "timestamp column, and records are stamped when they are written",
                {"row": row},
            )
        stamps = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64()).to_numpy()
    return RecordColumns(
        key=batch.column("key") if "key" in names else None,
        value=batch.column("value"),
        headers=batch.column("headers") if "headers" in names else None,
        timestamp_ms=stamps,
        num_rows=batch.num_rows,
    )


def _topic_limit(cluster: Cluster, topic: str) -> int:
    key = (os.getpid(), cluster.settings, topic)
    known = _limits.get(key)
    if known is None or time.monotonic() - known[0] > _LIMITS_FOR_S:
        known = _limits[key] = (time.monotonic(), admin.max_message_bytes(cluster, topic))
    return known[1]


def _readable(key: bytes | str | None) -> str | None:
    if key is None:
        return None
    text = key if isinstance(key, str) else key.decode("utf-8", "replace")
    return text[:200]


__all__ = ["SlotWriter", "WritePlan", "write_slot"]
