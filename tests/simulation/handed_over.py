"""A job whose batches begin in one process and are committed in another, as Spark's sink by format has it.

Spark has a Python worker for each kind of call: one plans the batch, one commits it or gives it up. It keeps them for
the next batches (seen on 4.3 with `spark.python.worker.reuse`, the default). Without that setting both end with the
call.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.handover import Handover, begin, finish, give_up
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from tests.simulation.job import ExecutorLost, Job, source_offset
from tests.simulation.world import Process

T = TypeVar("T")

LOOK_S = 0.002


class HandedOver(Job):
    """See the module."""

    keeps_workers = False

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._workers: dict[tuple[Process, str], Process] = {}

    def _has_no_id(self) -> bool:
        # Another process takes it for each batch, and gives it to the one that commits.
        return False

    def _work(self, me: Process, options: SinkOptions) -> None:
        while self.done_batches < self.batches and me is self.driver:
            self._one_batch(me, options, self.done_batches)

    def _one_batch(self, me: Process, options: SinkOptions, batch: int) -> None:
        lines = (json.dumps([["src", 0, source_offset(batch)]]),)
        offsets = {TopicPartition("src", 0): source_offset(batch)}

        def planned() -> tuple[WritePlan | SharedPlan, Handover]:
            return begin(Cluster.shared(options.client), options, "query-1", batch, lines)

        plan, handover = self._apart(me, "planner", planned)
        self.sealed = []
        try:
            seals = self._tasks(plan, batch)
            report = self._apart(
                me,
                "committer",
                lambda: finish(Cluster.shared(options.client), options, handover, seals, lines, offsets),
            )
        except (ExactlyOnceError, ExecutorLost) as error:
            # Spark aborts the write whatever failed, the tasks or their commit. The hand-over comes with a task's
            # message.
            if self.sealed:
                why = str(error)
                self._apart(me, "committer", lambda: give_up(options, handover, self.sealed, why))
            raise
        if me is self.driver:
            self._finished(batch, report)

    def _apart(self, me: Process, worker: str, call: Callable[[], T]) -> T:
        """In a process of its own, which dies with the driver, and ends with the call where workers are not kept."""
        process = self._worker(me, worker)
        thread = self.world.spawn(process, call, "worker")
        while not thread.done:
            if not process.alive:
                raise ExecutorLost("the process of a call is lost")
            runtime.sleep(LOOK_S)
        if not self.keeps_workers:
            self.world.kill(process, struck=False)
        if thread.error is not None:
            raise thread.error
        return thread.value  # type: ignore[return-value]

    def _worker(self, me: Process, kind: str) -> Process:
        kept = self._workers.get((me, kind))
        if kept is not None and kept.alive:
            return kept
        process = self.world.process(me.name)
        process.clock_offset_ns = me.clock_offset_ns
        me.at_death.append(lambda: self.world.kill(process, struck=False))
        if self.keeps_workers:
            self._workers[me, kind] = process
        return process


class WithWorkers(HandedOver):
    """Spark keeps the workers."""

    keeps_workers = True
