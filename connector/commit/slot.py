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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector import crash_points
from connector.client import admin
from connector.client.cluster import NEW_TOPIC_MS, Cluster
from connector.client.producer import Producer
from connector.client.unconfirmed import Unconfirmed
from connector.commit.dead_letters import (
    GOOD,
    TOO_LARGE,
    DeadLetters,
    Origin,
    Reasons,
    judge,
    legal_name,
)
from connector.commit.ledger import topic_seed
from connector.errors import ExactlyOnceError, InvalidRow, RecordTooLarge, UnknownTopic
from connector.model import NO_SEQUENCE, ClientSettings, Seal, TopicPartition
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

_MOST_RECORD_BYTES = 2**31 - 1
"""No record can be larger: a batch's length is an int32."""

_LARGEST_COMPRESSED_RECORD = 256 * 1024 * 1024
"""A record that only fits compressed may have this size before compression; more would not fit a worker's memory."""

_limits: dict[tuple[int, ClientSettings, str], tuple[float, int]] = {}


@dataclass(frozen=True)
class WritePlan:
    """What every task of a batch is told. Pickled to the executors.

    `topic` is where all rows go, None where each row names its own. `only_slots`: these write, the others idle.
    `two_phase`: transactions without a timeout (KIP-939). `transactional=False` writes idempotently without transactions:
    at-least-once; with `confirmed=False` also without a second try: no guarantee. `dead_letter_topic`: where rows go that
    cannot be written, None where they fail the batch.
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
    confirmed: bool = True
    dead_letter_topic: str | None = None

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
        self._producer: Producer | Unconfirmed | None = None
        self._cluster: Cluster | None = None
        self._topics: list[str] = []
        self._where: list[TopicPartition] = []
        self._limits: list[int] = []
        self._partitioner: Partitioner | None = None
        self._sections: SectionWriter | None = None
        self._dead: DeadLetters | None = None
        self._unknown: set[str] = set()
        self._unknown_since = 0.0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of an Arrow batch with columns key, value, headers, topic, partition, timestamp (all but value
        may be missing). Raises on the first row that cannot be written, before anything of this batch is sent; with a
        dead-letter topic such rows go there instead."""
        if batch.num_rows == 0:
            return
        self._open()
        try:
            full = self._packed(batch)
        except (InvalidRow, UnknownTopic) as error:
            named_by_option = isinstance(error, UnknownTopic) and self.plan.topic is not None
            if self._dead is None or named_by_option:
                raise
            batch, full = self._judged(batch, self._dead)
        for section in full:
            if self._dead is not None and self._too_large_compressed(section):
                assert section.row is not None
                row = batch.slice(section.row, 1)
                size = BATCH_OVERHEAD_BYTES + len(section.records)
                self._bury(self._dead, row, np.array([TOO_LARGE], np.int8), np.array([size], np.int64))
            else:
                self._send(section, self._where[section.partition])

    def _packed(self, batch: pa.RecordBatch) -> Iterator[Section]:
        """The batch's sections as they get full. InvalidRow or UnknownTopic: nothing of it was packed."""
        columns = _columns(batch)
        topic_index = self._topic_index(batch)
        partitioner, sections = self._router(columns)
        try:
            targets = partitioner.assign(columns, topic_index, _partitions(batch))
            return sections.append(columns, targets, int(time.time() * 1000))
        except InvalidRow as error:
            raise self._explain(error, batch) from None

    def _judged(self, batch: pa.RecordBatch, dead: DeadLetters) -> tuple[pa.RecordBatch, Iterator[Section]]:
        """Bury what cannot be written; the rows that can, and their sections as they get full."""
        reasons = judge(batch, self.plan.topic, self._partitions_of)
        self._bury(dead, batch.filter(pa.array(reasons != GOOD)), reasons[reasons != GOOD])
        good = batch.filter(pa.array(reasons == GOOD))
        if good.num_rows == 0:
            return good, iter(())
        columns = _columns(good)
        topic_index = self._topic_index(good)
        partitioner, sections = self._router(columns)
        targets = partitioner.assign(columns, topic_index, _partitions(good))
        sizes, fits = sections.fits(columns, targets)
        too_large = good.filter(pa.array(~fits))
        self._bury(dead, too_large, np.full(too_large.num_rows, TOO_LARGE, np.int8), sizes[~fits])
        kept = good.filter(pa.array(fits))
        return kept, sections.append(_columns(kept), targets[fits], int(time.time() * 1000))

    def _bury(
        self,
        dead: DeadLetters,
        rows: pa.RecordBatch,
        reasons: Reasons,
        sizes: npt.NDArray[np.int64] | None = None,
    ) -> None:
        for section in dead.bury(rows, reasons, sizes):
            self._send(section, dead.where(section))

    def seal(self) -> Seal:
        """Send what is left, wait for every acknowledgement, and hand the open transaction over."""
        if self._producer is None:
            return Seal(self.plan.transactional_id(self.slot), self.slot, None, 0)
        for section in self._sections.flush() if self._sections is not None else ():
            self._send(section, self._where[section.partition])
        dead_letters = 0
        if self._dead is not None:
            dead_letters = self._dead.count
            for section in self._dead.flush():
                self._send(section, self._dead.where(section))
        self._producer.flush()
        if isinstance(self._producer, Unconfirmed) or not self.plan.transactional:
            return Seal(
                self.plan.transactional_id(self.slot),
                self.slot,
                None,
                0,
                records=self.records,
                bytes=self.bytes,
                digest=self.digest,
                dead_letters=dead_letters,
            )
        crash_points.reached("after-last-acknowledgement")
        seal = self._producer.seal(self.slot, records=self.records, size_bytes=self.bytes, digest=self.digest)
        crash_points.reached("after-seal")
        return replace(seal, retries=self.retries, dead_letters=dead_letters)

    def abort(self) -> None:
        """Abort what was written, as far as the coordinator can be reached; else the next epoch or the timeout does."""
        if isinstance(self._producer, Producer) and self.plan.transactional:
            self._producer.abort()

    @property
    def retries(self) -> int:
        """Batches that were sent more than once."""
        return self._producer.retries if isinstance(self._producer, Producer) else 0

    def _open(self) -> None:
        if self._producer is not None:
            return
        plan = self.plan
        self._cluster = Cluster.shared(plan.client)
        if plan.dead_letter_topic is not None:
            self._dead = self._dead_letters(self._cluster, plan.dead_letter_topic)
        if not plan.confirmed:
            self._producer = Unconfirmed(self._cluster)
            return
        self._producer = producer = Producer(
            self._cluster,
            plan.transactional_id(self.slot) if plan.transactional else None,
            transaction_timeout_ms=plan.transaction_timeout_ms,
            delivery_timeout_ms=plan.delivery_timeout_ms,
            max_in_flight=plan.client.max_in_flight,
            two_phase=plan.two_phase,
        )
        crash_points.reached("before-init-producer-id")
        producer.initialize()
        crash_points.reached("after-init-producer-id")
        producer.begin()

    def _dead_letters(self, cluster: Cluster, topic: str) -> DeadLetters:
        plan = self.plan
        limit = min(_topic_limit(cluster, topic), plan.max_record_bytes or _MOST_RECORD_BYTES)
        origin = Origin(plan.pipeline, plan.batch_id, self.slot, plan.topic)
        return DeadLetters(topic, len(cluster.topic(topic).leaders), limit, plan.batch_bytes, origin)

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
                self._find_topic(name)
                self._topics.append(name)
        mapping = np.array([self._topics.index(name) for name in names], dtype=np.int32)
        return mapping.take(codes).astype(np.int32)

    def _find_topic(self, name: str) -> None:
        """UnknownTopic where a topic that a row names does not exist. With dead letters, one that is unknown is asked for
        once, and only the first is given the time that a new topic may take: there may be as many names as rows."""
        assert self._cluster is not None
        if self._dead is None:
            self._cluster.topic(name)
            return
        if name in self._unknown or not legal_name(name):
            raise UnknownTopic("a row names a topic that does not exist", {"topic": name})
        waited_ms = (time.monotonic() - self._unknown_since) * 1000 if self._unknown_since else 0
        try:
            self._cluster.topic(name, new_topic_ms=max(0, NEW_TOPIC_MS - round(waited_ms)))
        except UnknownTopic:
            self._unknown_since = self._unknown_since or time.monotonic() - NEW_TOPIC_MS / 1000
            self._unknown.add(name)
            raise

    def _partitions_of(self, topic: str) -> int:
        assert self._cluster is not None
        try:
            self._find_topic(topic)
        except UnknownTopic:
            return 0
        return len(self._cluster.topic(topic).leaders)

    def _too_large_compressed(self, section: Section) -> bool:
        """Whether a record that was let through because it might be small enough when compressed is not."""
        if section.row is None or self.plan.compression == "none":
            return False
        try:
            self._framed(section, self._limit_of(self._where[section.partition].topic), NO_SEQUENCE)
        except RecordTooLarge:
            return True
        return False

    def _limit_of(self, topic: str) -> int | None:
        return self._limits[self._topics.index(topic)] if topic in self._topics else None

    def _send(self, section: Section, where: TopicPartition) -> None:
        assert self._producer is not None
        limit = self._limit_of(where.topic) if section.row is not None else None
        self._producer.send(
            where, section.count, lambda base_sequence: self._framed(section, limit, base_sequence)
        )
        crash_points.reached("mid-produce")
        self.records += section.count
        self.bytes += len(section.records)
        self.digest = (self.digest + section.digest) & 0xFFFFFFFFFFFFFFFF

    def _framed(self, section: Section, limit: int | None, base_sequence: int) -> memoryview:
        assert self._producer is not None
        identity = self._producer.identity
        return frame(
            section,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=base_sequence,
            transactional=self.plan.transactional,
            compression=self.plan.compression,
            max_batch_bytes=limit if section.row is not None else None,
        )

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


def _partitions(batch: pa.RecordBatch) -> pa.Array | None:
    return batch.column("partition") if "partition" in batch.schema.names else None


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
