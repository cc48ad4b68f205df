"""The driver of a pipeline's batches: the interface that all kinds share, and the choice by the options.

Owns: the interface that Spark's side uses.
Does not know: how any of them commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from connector.client.cluster import Cluster
from connector.commit.driver import CommitReport, CountTasks, PipelineDriver, Write
from connector.commit.plain import PlainDriver
from connector.commit.shell import Replay
from connector.commit.whole_batch.driver import BatchDriver
from connector.model import Seal, TopicPartition
from connector.options import SinkOptions
from connector.slot.plan import SharedPlan, WritePlan


class Driver(Protocol):
    """One run of one query under one pipeline name."""

    def start(
        self, batch_id: int, replay: Replay | None = None, source_offsets: Sequence[str] | None = None
    ) -> CommitReport | None:
        """Take over the pipeline. Returns a report where
        `batch_id` is already decided and must not be written."""

    def plan(self, batch_id: int, only_slots: frozenset[int] | None = None) -> WritePlan | SharedPlan:
        """The plan for the tasks of a batch: each with a transaction of its own, or all in one."""

    def process(
        self,
        batch_id: int,
        write: Write,
        source_offsets: Sequence[str],
        group_offsets: Mapping[TopicPartition, int],
        tasks: CountTasks = lambda: None,
    ) -> CommitReport:
        """Write, decide and end one batch. `tasks`: how many tasks the last `write` ran."""

    def abandon(self, batch_id: int, seals: Sequence[Seal], reason: str) -> None:
        """Abort a batch that is not decided."""


def driver_for(cluster: Cluster, options: SinkOptions, query_id: str) -> Driver:
    """The driver that the options select."""
    if not options.transactional:
        return PlainDriver(cluster, options)
    kind = BatchDriver if options.scope == "batch" else PipelineDriver
    return kind(cluster, options, query_id)
