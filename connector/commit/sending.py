"""The second half of a task of scope=batch: finished batches go out under the identity that all tasks of the batch share.

Owns: the task's joined session, stamping, the count and digest of what it sent.
Does not know: Spark, rows, who else writes, how the transaction ends.
Invariants: of all starts of a task in one try of the batch only the first writes anything; a seal is returned only when
every record is acknowledged; a task that fails leaves the transaction to the driver, which fences before it aborts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from connector import crash_points
from connector.client.cluster import Cluster
from connector.client.producer import Producer
from connector.commit.claims import claim
from connector.commit.encoding import PackedBatch
from connector.commit.slot import WritePlan
from connector.errors import AttemptRefused
from connector.model import ProducerIdentity, Seal, TopicPartition, batch_transactional_id
from connector.records import restamp


@dataclass(frozen=True)
class SharedPlan:
    """What every task of a batch in one transaction is told. Pickled to the executors.

    `packing` is what the first stage is told; `transaction_version` the class that the driver opened the transaction in.
    `claims`, `claims_from`: where starts of tasks are told apart, from which offset on. `partitions`: of the option topic,
    None where each row names its own.
    """

    packing: WritePlan
    identity: ProducerIdentity
    transaction_version: int
    claims: TopicPartition
    claims_from: int
    partitions: int | None = None

    @property
    def transactional_id(self) -> str:
        """The id of the one transaction."""
        return batch_transactional_id(self.packing.pipeline)

    def claim_of(self, writer: int) -> str:
        """What a start of a writer claims: unique for one try of one batch."""
        each = self.identity
        return f"{self.transactional_id} {each.producer_id} {each.epoch} {writer}"


def send_packed(plan: SharedPlan, writer: int, batches: Iterable[PackedBatch], *, attempt: int = 0) -> Seal:
    """Send everything a writer has to send, in order; returns when it is acknowledged.

    `attempt`: Spark's number of this start. AttemptRefused, before anything is sent, where an earlier start may have
    written. A writer without batches asks nobody and seals as empty.
    """
    sender: _Sender | None = None
    try:
        for batch in batches:
            if sender is None:
                sender = _Sender(plan, writer, attempt)
            sender.send(batch)
        if sender is None:
            return Seal(plan.transactional_id, writer, None, plan.transaction_version)
        return sender.seal()
    except BaseException:
        if sender is not None:
            sender.stop()
        raise


class _Sender:
    def __init__(self, plan: SharedPlan, writer: int, attempt: int) -> None:
        facts: dict[str, int | str] = {"writer": writer, "attempt": attempt, "producer": str(plan.identity)}
        message = (
            "a task of the batch was started again after an earlier start may have written; it wrote nothing; the batch is "
            "aborted and done again under a new epoch"
        )
        if attempt > 0:
            raise AttemptRefused(message, facts)
        self._writer = writer
        self._cluster = Cluster.shared(plan.packing.client)
        crash_points.reached("before-claim")
        if not claim(self._cluster, plan.claims, plan.claim_of(writer), plan.claims_from):
            raise AttemptRefused(message, facts)
        crash_points.reached("after-claim")
        self._producer = Producer(
            self._cluster,
            plan.transactional_id,
            transaction_timeout_ms=plan.packing.transaction_timeout_ms,
            delivery_timeout_ms=plan.packing.delivery_timeout_ms,
            max_in_flight=plan.packing.client.max_in_flight,
            two_phase=plan.packing.two_phase,
            transaction_version=plan.transaction_version,
        )
        self._producer.join(plan.identity)
        self._producer.begin()
        self._records = self._bytes = self._digest = self._dead_letters = 0

    def send(self, batch: PackedBatch) -> None:
        identity = self._producer.identity
        self._cluster.topic(batch.where.topic)

        def stamp(base_sequence: int) -> memoryview:
            return restamp(
                batch.pieces,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=base_sequence,
            )

        self._producer.send(batch.where, batch.records, stamp)
        crash_points.reached("mid-produce")
        self._records += batch.records
        self._bytes += batch.record_bytes
        self._digest = (self._digest + batch.digest) & 0xFFFFFFFFFFFFFFFF
        self._dead_letters += batch.dead_letters

    def seal(self) -> Seal:
        self._producer.flush()
        crash_points.reached("after-last-acknowledgement")
        seal = self._producer.seal(
            self._writer, records=self._records, size_bytes=self._bytes, digest=self._digest
        )
        crash_points.reached("after-seal")
        return replace(seal, retries=self._producer.retries, dead_letters=self._dead_letters)

    def stop(self) -> None:
        self._producer.stop()
