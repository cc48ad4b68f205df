"""What one task of scope=batch does: packs rows as a slot does, sends them in turn under the shared identity.

Owns: which of a slot's steps differ when all tasks share the transaction.
Does not know: Spark, turns (which `turn_sender` takes), how the transaction ends.
Invariants:
- The code of `writer` judges, routes and packs rows, so errors and bytes are the same in both scopes.
- A task without rows sends no request.
- Batches are compressed before their turn comes, never during it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.records import Section
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.turn_sender import TurnSender
from pyspark_kafka_eos.slot.writer import SlotWriter


class SharedSlotWriter(SlotWriter):
    """A slot's writer whose batches go out in turn. Use once: `write`, then `seal`; or `give_up`."""

    def __init__(self, plan: SharedPlan, slot: int) -> None:
        super().__init__(plan.writing, slot)
        self._shared = plan
        self._sender: TurnSender | None = None
        self._dead_letters_sent = 0

    def seal(self) -> Seal:
        """Wait until everything is sent, in turn, and acknowledged."""
        shared = self._shared
        if self._sender is None:
            return Seal(shared.transactional_id, self.slot, None, shared.transaction_version)
        self._flush()
        seal = self._sender.finish(self.slot, records=self.records, size_bytes=self.bytes, digest=self.digest)
        crash_points.reached("after-seal")
        return self._with_places(replace(seal, retries=self._sender.retries, dead_letters=self._dead_letters_sent))

    def give_up(self, error: BaseException) -> None:
        """Send nothing more and log the reason for the other tasks; the driver aborts the shared transaction."""
        if self._sender is not None:
            self._sender.stop(error)

    def _open_producer(self, cluster: Cluster) -> None:
        self._sender = TurnSender(self._shared, self.slot, cluster)

    def _send(self, section: Section, where: TopicPartition) -> None:
        assert self._sender is not None
        limit = self._limit_for(section, where)
        self._count(section, where)
        self._dead_letters_sent += section.count if where.topic == self.plan.dead_letter_topic else 0
        self._sender.give(where, section.count, self._packed(section, limit))


def write_shared(plan: SharedPlan, slot: int, batches: Iterable[pa.RecordBatch]) -> Seal:
    """Write all rows of a slot in turn and seal it; any failure makes the other tasks stop."""
    writer = SharedSlotWriter(plan, slot)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.seal()
    except BaseException as error:
        judged = writer.judged(error)
        writer.give_up(judged)
        if judged is error:
            raise
        raise judged from error
