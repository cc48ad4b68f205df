"""What one task does: writes the rows of its slot under the slot's own transaction and seals it.

Owns: the slot's producer for one batch, the count and digest of what was written, which rows become dead letters.
Does not know: Spark (rows come as Arrow batches), the decision; where rows go, which `routing` does.
Invariants:
- A seal is returned only when every record is acknowledged.
- A slot without rows opens no transaction.
- A row that cannot be written raises before anything of its Arrow batch is sent, and the transaction is aborted.
- A slot consumes every row that it gets, even where it sends nothing.
- Records that a slot may not send are counted and digested as if it sent them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError, InvalidRow, ProducerFenced, RecordTooLarge, UnknownTopic
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.topic_settings import judged_again, topic_rules
from pyspark_kafka_eos.client.requests.transactions import Transactions, TransactionView
from pyspark_kafka_eos.client.writing.delivery import stamper
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.unconfirmed import Unconfirmed
from pyspark_kafka_eos.model import (
    NO_BASIS,
    Basis,
    Expired,
    RoutedTopic,
    Seal,
    SealedPartition,
    TopicRules,
    Traffic,
)
from pyspark_kafka_eos.records import BATCH_OVERHEAD_BYTES, Packed, Section, pack
from pyspark_kafka_eos.records.judging import GOOD, TOO_LARGE, Reasons
from pyspark_kafka_eos.slot.dead_letters import DeadLetters, Origin
from pyspark_kafka_eos.slot.plan import WritePlan
from pyspark_kafka_eos.slot.routing import Bytes, Router, routed_as_decided

_LATE_MS = 5_000
"""A task that begins to write this long after its batch was planned first asks whether the batch is over, which takes
one request. Most tasks never ask; clocks that differ only make a task ask. Double or half changes how many tasks do.
"""

_MOST_RECORD_BYTES = 2**31 - 1
"""No record can be larger: a batch's length is an int32."""


class SlotWriter:
    """Writes one slot of one batch. Use once: `write` as often as there are rows, then `seal`; or `abort`.

    Before its first record it initialises the slot's transactional id, which fences an earlier attempt of the task: a
    zombie that Spark has given up can write nothing more.
    """

    def __init__(self, plan: WritePlan, slot: int) -> None:
        self.plan = plan
        self.slot = slot
        self.records = 0
        self.bytes = 0
        self.digest = 0
        self._sends_to = plan.sends_to(slot)
        self._parts: dict[TopicPartition, tuple[int, int]] = {}
        self._producer: Producer | Unconfirmed | None = None
        self._router: Router | None = None
        self._dead: DeadLetters | None = None
        self._dead_rules = TopicRules()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of an Arrow batch with columns key, value, headers, topic, partition, timestamp (all but value
        may be missing). Raises on the first row that cannot be written, before anything of this batch is sent; with a
        dead-letter topic such rows go there instead."""
        if batch.num_rows == 0:
            return
        router = self._open()
        try:
            full = router.pack(batch)
        except (InvalidRow, UnknownTopic) as error:
            named_by_option = isinstance(error, UnknownTopic) and self.plan.topic is not None
            if self._dead is None or named_by_option:
                raise
            batch, full = self._judged(batch, self._dead, router)
        for section in full:
            if self._dead is not None and self._too_large_compressed(section, router):
                assert section.row is not None
                row = batch.slice(section.row, 1)
                size = BATCH_OVERHEAD_BYTES + len(section.records)
                self._bury(self._dead, row, np.array([TOO_LARGE], np.int8), np.array([size], np.int64))
            else:
                self._send(section, router.where(section))

    def _judged(
        self, batch: pa.RecordBatch, dead: DeadLetters, router: Router
    ) -> tuple[pa.RecordBatch, Iterator[Section]]:
        """Make dead letters of the rows that cannot be written. Returns the other rows, and their sections as they get
        full."""
        reasons = router.judge(batch)
        self._bury(dead, batch.filter(pa.array(reasons != GOOD)), reasons[reasons != GOOD])
        good = batch.filter(pa.array(reasons == GOOD))
        if good.num_rows == 0:
            return good, iter(())
        kept, full, too_large, sizes = router.pack_fitting(good)
        self._bury(dead, too_large, np.full(too_large.num_rows, TOO_LARGE, np.int8), sizes)
        return kept, full

    def _bury(
        self,
        dead: DeadLetters,
        rows: pa.RecordBatch,
        reasons: Reasons,
        sizes: Bytes | None = None,
    ) -> None:
        for section in dead.bury(rows, reasons, sizes):
            self._send(section, dead.where(section))

    def seal(self) -> Seal:
        """Send what is left, wait for every acknowledgement, and hand the open transaction over.

        A slot that only measured has a seal without identity and partitions, with its counts and its digest.
        """
        self._flush()
        dead_letters = self._dead.count if self._dead is not None else 0
        if self._producer is not None:
            self._producer.flush()
        if not isinstance(self._producer, Producer) or not self.plan.transactional:
            return Seal(
                self.plan.transactional_id(self.slot),
                self.slot,
                None,
                0,
                records=self.records,
                bytes=self.bytes,
                digest=self.digest,
                retries=self.retries,
                dead_letters=dead_letters,
                traffic=self.traffic,
                expired=self._expired(),
            )
        crash_points.reached("after-last-acknowledgement")
        seal = self._producer.seal(self.slot, records=self.records, size_bytes=self.bytes, digest=self.digest)
        crash_points.reached("after-seal")
        return self._with_places(replace(seal, retries=self.retries, dead_letters=dead_letters))

    def abort(self) -> None:
        """Abort what was written, as far as the coordinator can be reached; otherwise the next epoch or the timeout
        does.
        """
        if isinstance(self._producer, Producer) and self.plan.transactional:
            self._producer.abort()

    def judged(self, error: BaseException) -> BaseException:
        """The error to raise for `error`: a retriable one where the topic's settings have changed since the rows were
        judged by them. In a replay the settings of the decision count, so the error stays the same."""
        if not isinstance(error, InvalidRow) or self._router is None:
            return error
        decided = dict(self.plan.basis.topics)
        own = self._basis()
        used = replace(own, topics=tuple(entry for entry in own.topics if entry[0] not in decided))
        return judged_again(Cluster.shared(self.plan.client), error, used)

    @property
    def retries(self) -> int:
        """Batches that were sent more than once."""
        return self._producer.retries if isinstance(self._producer, Producer) else 0

    @property
    def traffic(self) -> Traffic | None:
        """What sending took so far; None where nothing was sent, or without acknowledgements."""
        return self._producer.traffic if isinstance(self._producer, Producer) else None

    def _flush(self) -> None:
        """Send what is left in sections that are not full."""
        if self._router is not None:
            for section in self._router.flush():
                self._send(section, self._router.where(section))
        if self._dead is not None:
            for section in self._dead.flush():
                self._send(section, self._dead.where(section))

    def _open(self) -> Router:
        """Find the cluster and open the producer, once."""
        if self._router is None:
            cluster = Cluster.shared(self.plan.client)
            if self.plan.dead_letter_topic is not None:
                self._dead = self._dead_letters(cluster, self.plan.dead_letter_topic)
            if self._sends_to is None or self._sends_to:
                self._open_producer(cluster)
            self._router = Router(cluster, self.plan, self.slot)
        return self._router

    def _open_producer(self, cluster: Cluster) -> None:
        plan = self.plan
        if plan.guarantee == "none":
            self._producer = Unconfirmed(cluster)
            return
        if plan.driver is not None and abs(runtime.time() * 1000 - plan.planned_ms) > _LATE_MS:
            _require_undecided(cluster, plan, plan.driver)
        self._producer = producer = Producer(
            cluster,
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
        self._dead_rules = dict(plan.basis.topics).get(topic) or topic_rules(cluster, topic)
        limit = min(self._dead_rules.max_batch_bytes, plan.max_request_bytes or _MOST_RECORD_BYTES)
        origin = Origin(plan.pipeline, plan.batch_id, self.slot, plan.topic)
        routed = routed_as_decided(cluster, topic, plan, self.slot)
        return DeadLetters(routed, limit, plan.batch_bytes, plan.sticky_bytes, origin)

    def _too_large_compressed(self, section: Section, router: Router) -> bool:
        """Whether a record that was accepted because it might fit when compressed does not fit."""
        if section.row is None or self.plan.compression == "none":
            return False
        try:
            self._packed(section, router.limit_of(router.where(section).topic))
        except RecordTooLarge:
            return True
        return False

    def _limit_for(self, section: Section, where: TopicPartition) -> int | None:
        """The limit for a record that is alone in its batch because of its size; None where no limit matters."""
        if section.row is None or self._router is None:
            return None
        return self._router.limit_of(where.topic)

    def _send(self, section: Section, where: TopicPartition) -> None:
        if self._sends_to is None or where in self._sends_to:
            assert self._producer is not None
            # Before the wait for room: compression and checksum read records that the processor's cache still has.
            packed = self._packed(section, self._limit_for(section, where))
            self._producer.send(
                where,
                section.count,
                stamper(packed, self._producer.identity),
                machine_time=packed.machine_time,
            )
            crash_points.reached("mid-produce")
        self._count(section, where)

    def _count(self, section: Section, where: TopicPartition) -> None:
        self.records += section.count
        self.bytes += len(section.records)
        self.digest = (self.digest + section.digest) & 0xFFFFFFFFFFFFFFFF
        records, digest = self._parts.get(where, (0, 0))
        self._parts[where] = (records + section.count, (digest + section.digest) & 0xFFFFFFFFFFFFFFFF)

    def _with_places(self, seal: Seal) -> Seal:
        """The seal with the topics as they were routed by, each partition's share of the digest, and the partitions
        that were only measured.
        """
        seal = replace(seal, topics=self._topics(), basis=self._basis(), expired=self._expired())
        if len(self._parts) < 2 and not self.plan.only_partitions:
            # One partition has all of it.
            return seal
        sent = {TopicPartition(part.topic, part.partition): part for part in seal.partitions}
        measured = [
            SealedPartition(where.topic, where.partition, -1, -1, records, digest)
            for where, (records, digest) in sorted(self._parts.items())
            if where not in sent
        ]
        return replace(
            seal,
            partitions=tuple(replace(part, digest=self._parts[where][1]) for where, part in sent.items()),
            measured=tuple(measured) if self.plan.only_partitions else (),
        )

    def _topics(self) -> tuple[RoutedTopic, ...]:
        known = [*(self._router.topics if self._router is not None else ())]
        known += [self._dead.routed] if self._dead is not None else []
        written = {where.topic for where in self._parts}
        # A topic may have good rows and dead letters.
        return tuple(sorted({self._certain(topic) for topic in known if topic.name in written}))

    def _certain(self, topic: RoutedTopic) -> RoutedTopic:
        """The topic without its id, where this worker has seen another id since: some records may be in the former
        topic."""
        now = Cluster.shared(self.plan.client).topic_id(topic.name)
        return topic if now == topic.topic_id else replace(topic, topic_id="")

    def _expired(self) -> tuple[Expired, ...]:
        return self._router.expired if self._router is not None else ()

    def _basis(self) -> Basis:
        """What the rows were judged by, and what the size of dead letters was."""
        own = self._router.basis if self._router is not None else NO_BASIS
        if self._dead is None or not self._dead.count:
            return own
        # Where the topic has rows of its own too, both were asked at once.
        return replace(own, topics=(*own.topics, (self._dead.topic, self._dead_rules)))

    def _packed(self, section: Section, limit: int | None) -> Packed:
        return pack(
            section,
            transactional=self.plan.transactional,
            compression=self.plan.compression,
            level=self.plan.compression_level,
            max_batch_bytes=limit if section.row is not None else None,
        )


def _require_undecided(cluster: Cluster, plan: WritePlan, planned_by: ProducerIdentity) -> None:
    """ProducerFenced where the driver's id has moved on since the batch was planned: it is decided, given up or another
    run's.

    A task that is cut off from the driver would abort the decided transaction of its slot by initialising the slot's
    id. This check makes that rare, not impossible: the batch may still be decided between the answer and the request.
    (With transaction version 1 the first decision of a run of foreachBatch does not move the id.)
    """

    def undecided(view: TransactionView) -> bool:
        same = view.identity.producer_id == planned_by.producer_id and view.identity.epoch <= planned_by.epoch
        return same or view.state == "NotFound"

    view = Transactions(cluster).describe([plan.driver_id], expected=undecided)[plan.driver_id]
    if not undecided(view):
        raise ProducerFenced(
            f"this attempt of a task begins to write after its batch is over (the driver's id is at {view.identity}, the batch "
            f"was planned under {planned_by}); it writes nothing",
            {"pipeline": plan.pipeline, "batch": plan.batch_id},
        )


def write_slot(plan: WritePlan, slot: int, batches: Iterable[pa.RecordBatch]) -> Seal:
    """Write all rows of a slot and seal it; on any failure the slot's transaction is aborted first.

    All rows are consumed, whatever the slot sends of them: Spark saves what a query keeps from batch to batch
    (state, watermark) only where its plan has run to the end.
    """
    writer = SlotWriter(plan, slot)
    if plan.idle:
        for _ in batches:
            pass
        return writer.seal()
    try:
        for batch in batches:
            writer.write(batch)
        return writer.seal()
    except BaseException as error:
        # The failure that led here is the one to report; what is still open ends with the next epoch.
        with contextlib.suppress(ExactlyOnceError):
            writer.abort()
        judged = writer.judged(error)
        if judged is error:
            raise
        raise judged from error


__all__ = ["SlotWriter", "WritePlan", "write_slot"]
