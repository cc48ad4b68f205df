"""A batch that begins in one process and is committed in another: what the first hands over to the second.

Owns: the order of take-over, hand-over and commit or giving up.
Does not know: Spark, how the hand-over travels; how a batch is committed, which its scope does.
Invariants:
- No task is planned before the pipeline is taken over and the ledger read.
- In the plan of a decided batch, only the slots that are proven aborted write.
- Commit and abort reuse the identity acquired at begin, so a process of an older run can do neither.
- Nothing that is decided is aborted.

Why no interleaving does harm. The beginning initialises the driver's id, which fences every older process of the
pipeline (`going_on` does so too, where a run goes on with its next batch). It then reads the ledger, finishes what is
decided, and only then plans tasks that write: so no task initialises a slot whose decided transaction is still open.
The commit initialises the driver's id again, with the identity handed over; the coordinator allows that only while no
other process has done so (KIP-360). The commit then reads the ledger, and what it finds stays true.

- A process of an older run may commit late (a query was stopped in the middle; the process continues by itself). If it
  decides before the new beginning fences it, the new run reads its decision and finishes it. If it is fenced first, its
  slots are rewritten under newer epochs, and its own aborts name epochs that are no longer valid.
- An abort beside a commit of the same batch (which cannot be stopped from outside): the abort bumps the
  driver's epoch twice, because the commit may have received the same first answer. The bumps abort what the
  commit has open. Where the commit has decided, the ledger shows that, and nothing is aborted.
- An abort beside a newer run: the abort's identity is no longer the id's, so the abort does nothing.
- With scope=batch the decision is the end of `{pipeline}:batch`, which the abort initialises too. That either
  ends what the commit has open, or comes after the end and finds nothing open.
- Slots that a repair has rewritten are open under a newer epoch than the decided one. The proof finds the abort of the
  decided transaction in the log, and the new seals are compared with the decision before they are recorded and ended.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError, ProducerFenced, RepairPending
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.drivers import pipeline_driver
from pyspark_kafka_eos.commit.handover import going_on
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.plain import PlainDriver
from pyspark_kafka_eos.commit.proof import prove
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import Handover
from pyspark_kafka_eos.commit.start.admission import OffsetLog
from pyspark_kafka_eos.model import Decision, GroupOffsets, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import ALL_OTHERS, SharedPlan, WritePlan

log = logging.getLogger(__name__)

_START_AGAIN = "start the query again from the same checkpoint, and it goes on with this batch"


def begin(
    cluster: Cluster,
    options: SinkOptions,
    query_id: str,
    batch_id: int,
    source_offsets: Sequence[str],
    offset_log: OffsetLog | None = None,
) -> tuple[WritePlan | SharedPlan, Handover]:
    """Take the pipeline over and plan the batch's tasks. `offset_log`: of a streaming query with a checkpoint. Raises
    what `PerTask.start` raises, with nothing written.

    A batch that is already decided is finished here; in its plan, only the slots that the broker aborted write.
    """
    if not options.transactional:
        plain = PlainDriver(cluster, options)
        plain.start(batch_id)
        return plain.plan(batch_id), Handover(query_id, batch_id, None, runtime.monotonic())
    before = going_on.kept(cluster, options, query_id)
    driver = pipeline_driver(cluster, options, query_id, before)
    driver.run.offset_log = offset_log
    crash_points.reached("before-begin")
    goes_on = before is not None and going_on.go_on(driver.run, batch_id, source_offsets)
    only = None if goes_on else driver.begin(batch_id, source_offsets)
    plan = driver.plan(batch_id, only)
    crash_points.reached("begun")
    going_on.keep(driver.run)
    return plan, driver.hand_over(batch_id, only)


def finish(
    cluster: Cluster,
    options: SinkOptions,
    handover: Handover,
    seals: Sequence[Seal],
    source_offsets: Sequence[str],
    group_offsets: GroupOffsets,
    way_on: str = _START_AGAIN,
    tasks: int | None = None,
) -> CommitReport:
    """Decide and end the batch, or complete the repair of a decided one. Raises what `PerTask.commit`
    raises, and ProducerFenced, with nothing changed, where a newer run has taken over.

    `tasks`: how many tasks Spark ran, None where unknown. `way_on`: the user's remedy where slots are aborted
    after the decision; the tasks are over, so the slots cannot be rewritten here.
    """
    if not options.transactional:
        return PlainDriver(cluster, options).commit(handover.batch_id, seals, group_offsets, tasks)
    before = going_on.kept(cluster, options, handover.query_id)
    driver = pipeline_driver(cluster, options, handover.query_id, before)
    driver.resume(handover)
    crash_points.reached("gone-on")
    written = _Written(handover, seals, way_on)
    decided = driver.run.decided(handover.batch_id)
    if decided is None:
        report = driver.commit(handover.batch_id, seals, source_offsets, group_offsets, written, tasks)
    else:
        finished = driver.per_task.finish(decided, written)
        # A replay was given, so nothing was left to another process.
        assert isinstance(finished, CommitReport)
        report = finished
    going_on.keep(driver.run)
    return report


def give_up(options: SinkOptions, handover: Handover, seals: Sequence[Seal], reason: str) -> bool:
    """Abort what is left open of a batch that will not be committed. False, with nothing aborted, where the batch is
    decided, belongs to a newer run, or cannot be judged now. Of a decided batch, only what its repair wrote in vain is
    aborted.
    Never hides the error that led here: an unreachable broker returns False too.
    """
    try:
        cluster = Cluster.shared(options.client, options.max_block_ms)
        if not options.transactional:
            PlainDriver(cluster, options).abandon(handover.batch_id, seals, reason)
            return False
        driver = pipeline_driver(cluster, options, handover.query_id)
        driver.fence_and_resume(handover)
        crash_points.reached("wrested")
        decided = driver.run.decided(handover.batch_id)
        if decided is not None:
            log.warning("batch %d is decided, so it is not aborted; the next run finishes it", handover.batch_id)
            if _not_repaired(cluster, decided, handover):
                # Every other slot was ended before the repair began, so every open transaction is the repair's own.
                driver.abandon(handover.batch_id, seals, reason)
            return False
        driver.abandon(handover.batch_id, seals, reason)
    except ProducerFenced:
        log.info("batch %d is not aborted: a newer process has taken the pipeline over", handover.batch_id)
        return False
    except ExactlyOnceError as error:
        # The error that led here is the one to report; the next run ends what is left.
        log.warning("batch %d is not aborted now, the next run ends it: %s", handover.batch_id, error)
        return False
    return True


def _not_repaired(cluster: Cluster, decision: Decision, handover: Handover) -> bool:
    """Whether the decision still names the seals that the broker aborted, not those that replace them."""
    slots = handover.repair or frozenset()
    lost = [seal for seal in decision.seals if seal.slot in slots]
    proofs = prove(cluster, lost)
    return bool(lost) and all(proof.verdict is Outcome.ABORTED for proof in proofs.values())


class _Written:
    """The replay of a batch whose tasks are over: it returns the seals of their repair, once, and nothing else."""

    def __init__(self, handover: Handover, seals: Sequence[Seal], way_on: str) -> None:
        self._handover = handover
        self._seals: Sequence[Seal] | None = seals
        self._way_on = way_on

    def __call__(self, slots: frozenset[int]) -> Sequence[Seal]:
        seals, self._seals = self._seals, None
        if seals is None or self._handover.repair is None or not slots <= self._handover.repair:
            batch_id = self._handover.batch_id
            lost = tuple(sorted(slots - {ALL_OTHERS}))
            raise RepairPending(
                f"slots {list(lost)} of batch {batch_id} were aborted by the broker after the batch was decided; what of it is "
                f"committed stays committed and nothing is skipped; {self._way_on}",
                {"batch": batch_id, "slots": lost},
            )
        return seals


__all__ = ["begin", "finish", "give_up"]
