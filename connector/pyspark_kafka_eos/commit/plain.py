"""The driver of the weaker guarantees, at-least-once and none: no transactions, no ledger, nothing to take over.

Owns: the plan for the tasks, and the source offsets' commit after the batch.
Does not know: how tasks write (`slot`), Spark.
Invariants:
- Records that a task has written stay, whatever happens to the batch.
- Source offsets are committed after the batch is written, never before, so reported lag may be overstated, never
  understated.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.group_offsets import commit_group_offsets
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import CountTasks, Write
from pyspark_kafka_eos.commit.shell import Replay
from pyspark_kafka_eos.commit.start import admission
from pyspark_kafka_eos.commit.whole_batch.merging import require_every_slot
from pyspark_kafka_eos.model import GroupOffsets, Seal, Traffic
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.dead_letters import require_topic
from pyspark_kafka_eos.slot.writer import WritePlan

log = logging.getLogger(__name__)

_OFFSETS_DEADLINE_MS = 10_000
"""The source offsets serve lag tools only; Spark restarts from its own. A longer wait would delay the query for
little.
"""


class PlainDriver:
    """One run of one query without transactions. A batch that Spark repeats is written twice."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self.cluster = cluster
        self.options = options

    def start(
        self, batch_id: int, replay: Replay | None = None, source_offsets: Sequence[str] | None = None
    ) -> CommitReport | None:
        """Check that the topics exist. Always None: nothing records what was written before."""
        if self.options.topic is not None:
            self.cluster.topic(self.options.topic, refresh=True)
        require_topic(self.cluster, self.options.dead_letter_topic)
        return None

    def plan(self, batch_id: int, only_slots: frozenset[int] | None = None) -> WritePlan:
        """The plan for the tasks of a batch."""
        return WritePlan.for_batch(self.options, batch_id, only_slots, sticky_bytes=self.options.sticky_bytes)

    def process(
        self,
        batch_id: int,
        write: Write,
        source_offsets: Sequence[str],
        group_offsets: GroupOffsets,
        tasks: CountTasks = lambda: None,
    ) -> CommitReport:
        """Write the batch, then commit the source offsets to the group, as far as that goes."""
        return self.commit(batch_id, write(None), group_offsets, tasks())

    def commit(
        self,
        batch_id: int,
        seals: Sequence[Seal],
        group_offsets: GroupOffsets,
        tasks: int | None = None,
    ) -> CommitReport:
        """Commit the source offsets after the tasks have written everything. A failure to do so is logged, not raised.

        InternalError where a task has no seal: its rows may be missing.
        """
        require_every_slot(seals, tasks)
        admission.warn_of_expired(seals)
        began = runtime.perf_counter()
        if self.options.offsets_group:
            try:
                commit_group_offsets(self.cluster, self.options.offsets_group, group_offsets, _OFFSETS_DEADLINE_MS)
            except ExactlyOnceError as error:
                log.warning("batch %d is written; its source offsets are not committed: %s", batch_id, error)
        took_ms = (runtime.perf_counter() - began) * 1000
        return CommitReport(
            batch_id=batch_id,
            records=sum(seal.records for seal in seals),
            bytes=sum(seal.bytes for seal in seals),
            slots=len(seals),
            commit_ms=took_ms,
            visible_ms=took_ms,
            left_ms=math.inf,
            dead_letters=sum(seal.dead_letters for seal in seals),
            retries=sum(seal.retries for seal in seals),
            traffic=Traffic.of_all(seal.traffic for seal in seals),
        )

    def abandon(self, batch_id: int, seals: Sequence[Seal], reason: str) -> None:
        """Nothing can be taken back: the records that the tasks wrote stay, and the repeated batch writes them
        again.
        """
        log.warning("batch %d failed; the records it wrote stay and are written again: %s", batch_id, reason)
