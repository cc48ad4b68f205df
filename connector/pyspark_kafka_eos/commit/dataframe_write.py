"""A DataFrame written once, all or nothing: the driver's part before its tasks write, and after.

Owns: which batch id a write has, whether it is already written, which of its slots need repair.
Does not know: Spark (which runs tasks between `begin` and `commit`); how a batch passes between processes (`handover`).
Invariants:
- Before a task writes, the newest decision of the pipeline is proven and ended, or only its lost slots write.
- `commit` and `abort` act for the run that `begin` began, and for no newer one.
- `abort` never undoes a decision.

`begin` and `commit` run in different processes of the driver's machine; only a `Begun` passes between them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_core import runtime
from kafka_core.errors import DecisionBroken, ExactlyOnceError, PipelineConflict, TransactionTooOld
from kafka_core.foreign_text import told
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.drivers import pipeline_driver
from pyspark_kafka_eos.commit.handover import Handover, finish, give_up
from pyspark_kafka_eos.commit.handover import begin as begin_batch
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Decision, Seal
from pyspark_kafka_eos.model.handed_over import HandedOver
from pyspark_kafka_eos.model.ids import SEPARATOR, prefix_of
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import ALL_OTHERS, MEASURE_ALL, SharedPlan, WritePlan

log = logging.getLogger(__name__)

BATCH_WRITES = "batch-write"
"""The query id of all batch writes in the ledger: a pipeline's writes follow one another as a query's batches do."""

UNNAMED = f"{prefix_of('df.write')}{SEPARATOR}"
"""Prefix of the pipeline names that are generated for writes without one. The separator of ids is in no name that users
give, so rights on this prefix open no pipeline of theirs.
"""

_TRIES = 3
"""The first look at the ledger may miss a decision that is still being made. The second look follows the
fencing of the process that makes it. The third covers another run that starts in between."""


@dataclass(frozen=True)
class Rows:
    """What a batch has: how many records, and the sum of their digests. Dead letters have their slot in a header, so
    with some of them only the numbers can be compared.
    """

    records: int
    digest: int
    dead_letters: int

    @staticmethod
    def of_seals(seals: Sequence[Seal]) -> Rows:
        """Those of all slots together."""
        return Rows(
            sum(seal.records for seal in seals),
            sum(seal.digest for seal in seals) % 2**64,
            sum(seal.dead_letters for seal in seals),
        )

    def differ(self, other: Rows) -> bool:
        """Whether they are known to be other rows."""
        comparable = not self.dead_letters and not other.dead_letters
        return self.records != other.records or (comparable and self.digest != other.digest)

    def __str__(self) -> str:
        return f"{self.records} records with digest {self.digest:016x}"


@dataclass(frozen=True)
class Begun(HandedOver):
    """A batch write that may proceed. Pickled to the tasks and to the process that commits.

    `handover` is None where the batch is already committed: nothing may be written then. Its `plan` has the tasks
    measure their rows, to compare them with the `decided` ones; it is None where that is not asked for.
    """

    options: SinkOptions
    batch_id: int
    plan: WritePlan | SharedPlan | None
    handover: Handover | None = None
    decided: Rows | None = None


def named(options: SinkOptions) -> SinkOptions:
    """The options with a pipeline. Options without one get a name of their own, for this write only."""
    if options.pipeline or not options.transactional:
        return options
    # No later process uses this name, so only a timeout ends a transaction that this one leaves open.
    name = f"{UNNAMED}{runtime.uuid4().hex}"
    return replace(options, pipeline=name, two_phase_commit=False, ephemeral=True)


def begin(options: SinkOptions) -> Begun:
    """Take the pipeline over and determine what to write.

    Raises, with nothing written: PipelineConflict where the batch id is lower than the newest one, or a
    stream owns this pipeline; DecisionBroken where an earlier write has to be run again first.
    """
    cluster = _cluster(options)
    if not options.transactional:
        return Begun(options, 0, *begin_batch(cluster, options, BATCH_WRITES, 0, ()))
    driver = pipeline_driver(cluster, options, BATCH_WRITES)
    lost = _start(driver, options)
    last = driver.run.newest
    last_id = last.batch_id if last is not None and last.query_id == BATCH_WRITES else -1
    batch_id = last_id + 1 if options.batch_id is None else options.batch_id
    if lost and batch_id != last_id:
        raise DecisionBroken(
            f"an earlier write of pipeline {options.pipeline!r} is decided, but its job returned too late or never, and the broker "
            f"aborted a part of it; nothing was written. Write the same rows again with batch.id={last_id}: "
            "only the missing part is written. Then repeat this write",
            {"pipeline": options.pipeline, "batch": last_id, "slots": tuple(sorted(lost - {ALL_OTHERS}))},
        )
    if batch_id == last_id and not lost:
        log.warning(
            "batch %d of %s is committed already (%d records): nothing is written",
            batch_id, options.pipeline, last.records if last else 0,
        )  # fmt: skip
        if last is None or options.rows_differ == "ignore":
            return Begun(options, batch_id, None)
        return Begun(options, batch_id, driver.plan(batch_id, MEASURE_ALL), None, Rows.of_seals(last.seals))
    repair = lost or None
    plan = driver.plan(batch_id, repair)
    return Begun(options, batch_id, plan, driver.hand_over(batch_id, repair))


def commit(begun: Begun, seals: Sequence[Seal], tasks: int | None = None) -> CommitReport | None:
    """Decide and end the batch, or repair it, once every task is done and its slot sealed. None where there
    was nothing to write. `tasks`: how many tasks there were.

    Errors mean the same for the data as those of `PerTask.commit`. After OutcomeUnknown and
    DecisionBroken, the same write with the same batch id determines the outcome and continues.
    """
    if begun.handover is None:
        return None
    options = begun.options
    way_on = f"write the same rows again with batch.id={begun.batch_id}: that writes the missing part only"
    try:
        report = finish(_cluster(options), options, begun.handover, seals, (), {}, way_on, tasks)
    except TransactionTooOld as error:
        raise TransactionTooOld(
            f"{error.message}; a batch write is not repeated automatically: run it again", error.facts
        ) from error
    log.info(
        "batch %d of %s: %d records, %d slots, committed in %.1f ms",
        begun.batch_id, options.pipeline, report.records, report.slots, report.commit_ms,
    )  # fmt: skip
    return report


def compare(begun: Begun, seals: Sequence[Seal], failures: Sequence[ExactlyOnceError], tasks: int) -> None:
    """Compare the rows of a repeated write with those that were committed under its batch id. Warns where they differ;
    raises PipelineConflict with batch.rows.differ=fail. Nothing is written or changed."""
    assert begun.decided is not None
    options, decided, again = begun.options, begun.decided, Rows.of_seals(seals)
    named = f"batch.id={begun.batch_id} of pipeline {options.pipeline!r} is committed already with {decided}"
    if failures or len(seals) < tasks:
        why = failures[0].message if failures else f"{tasks - len(seals)} tasks gave no answer"
        said = f"{named}; whether this write has the same rows is unknown, because they cannot be measured ({why}); none of them was written"
    elif decided.differ(again):
        said = (
            f"{named}, and this write has {again}: these are other rows, and none of them was written. Write them under a higher batch.id; if "
            "they are meant to be the same, the plan gives other rows when it runs again (random values, the current time)"
        )
    else:
        return
    if options.rows_differ == "fail":
        raise PipelineConflict(
            said,
            {
                "pipeline": options.pipeline,
                "batch": begun.batch_id,
                "committed_records": decided.records,
                "records": again.records,
            },
        )
    told(log, said)


def abort(begun: Begun, seals: Sequence[Seal], reason: str) -> None:
    """A task or the commit failed: abort what is undecided. Does nothing where a newer run has begun; that run aborts
    it.
    """
    if begun.handover is None:
        return
    give_up(begun.options, begun.handover, seals, reason)


def _cluster(options: SinkOptions) -> Cluster:
    return Cluster.shared(options.client, options.max_block_ms)


def _start(driver: PerTask | WholeBatch, options: SinkOptions) -> frozenset[int]:
    """Begin a run: prove and end the newest write. Returns those of its slots that the broker aborted."""
    driver.run.ledger.prepare()
    left = _TRIES
    while True:
        left -= 1
        newest = driver.run.ledger.newest(settle=False)
        _refuse_conflict(newest, options)
        ours = newest is not None and newest.query_id == BATCH_WRITES
        try:
            # A start for the newest batch itself writes nothing, and proves and ends all of that batch.
            return driver.begin(newest.batch_id if newest is not None and ours else 0, None) or frozenset()
        except PipelineConflict:
            # Retried only where the first look had missed a decision.
            if left == 0 or driver.run.ledger.newest(settle=False) == newest:
                raise


def _refuse_conflict(newest: Decision | None, options: SinkOptions) -> None:
    if newest is None:
        return
    facts: dict[str, str | int] = {"pipeline": options.pipeline, "ledger_batch": newest.batch_id}
    if newest.query_id != BATCH_WRITES and not options.adopt_checkpoint:
        raise PipelineConflict(
            f"pipeline {options.pipeline!r} belongs to a streaming query; nothing was written; give this write a pipeline name "
            "of its own, or, where that query is given up for good, set adopt.checkpoint=true once",
            {**facts, "ledger_query": newest.query_id},
        )
    wanted = options.batch_id
    if newest.query_id == BATCH_WRITES and wanted is not None and wanted < newest.batch_id:
        raise PipelineConflict(
            f"batch.id={wanted} is lower than {newest.batch_id}, the newest one of pipeline {options.pipeline!r}; nothing was "
            "written. The ledger keeps the newest id only and cannot tell whether this one was written: if it was, "
            "do nothing; if not, write it under a higher batch.id, or under another pipeline name",
            {**facts, "this_batch": wanted},
        )


__all__ = ["BATCH_WRITES", "Begun", "abort", "begin", "commit", "compare", "named"]
