"""The commit of scope=task: every slot has a transaction of its own, and the driver's transaction decides the batch.

Owns: how a batch is planned, decided, ended, given up; finishing what an earlier run decided, in either scope.
Does not know: Spark (seals and source offsets come in as values); how a commit is carried out, which `shell` does.
Invariants:
- What an earlier run decided is finished before anything is written.
- A batch that got too old is repeated once: nothing of it was decided, and everything is aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka_core import runtime
from kafka_core.errors import AttemptRefused, IllegalMove, OptionsError, TransactionTooOld
from pyspark_kafka_eos.commit.gone.absent import warn_of_gone, warn_of_recreated
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.machine import per_task as cm
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import CountTasks, Handover, Run, Write
from pyspark_kafka_eos.commit.shell import CommitShell, Replay
from pyspark_kafka_eos.commit.start.adopting import leave
from pyspark_kafka_eos.model import NO_BASIS, Decision, GroupOffsets, Routes, RowOptions, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import WritePlan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Deferred:
    """A decided batch is finished except for these slots: the broker aborted them, and tasks of another process write
    them again."""

    slots: frozenset[int]


class PerTask:
    """One run's batches, each slot in a transaction of its own. Not for several threads."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def per_task(self) -> PerTask:
        """What finishes a decision of either scope."""
        return self

    # ---- the start of a run

    def start(
        self, batch_id: int, replay: Replay | None = None, source_offsets: Sequence[str] | None = None
    ) -> CommitReport | None:
        """Take over the pipeline for this run, whose first batch is `batch_id`.

        Returns a report where that batch is already decided: it is then proven and finished, and must not be
        written; `replay` rewrites the slots of it that the broker aborted. `source_offsets`: those that
        Spark's offset log has for this batch. Raises PipelineConflict where continuing would lose or repeat
        data; nothing is written then.
        """
        begun = self._begin(batch_id, replay, source_offsets)
        assert not isinstance(begun, Deferred)
        return begun

    def begin(self, batch_id: int, source_offsets: Sequence[str] | None) -> frozenset[int] | None:
        """The same for a batch whose tasks run after a hand-over. Returns the slots that write: None for all of a
        batch that is not decided, none of one that is finished, else those that the broker aborted."""
        begun = self._begin(batch_id, None, source_offsets, later=True)
        if isinstance(begun, Deferred):
            return begun.slots
        return None if begun is None else frozenset()

    def _begin(
        self,
        batch_id: int,
        replay: Replay | None,
        source_offsets: Sequence[str] | None,
        *,
        later: bool = False,
    ) -> CommitReport | Deferred | None:
        run = self.run
        ids = run.take_over(batch_id, source_offsets)
        # Of topics that rows name nothing is known here, and workers may have lived longer than this run.
        run.asks_anew = run.asks_anew or run.options.topic is None
        report: CommitReport | Deferred | None = None
        resumed = run.decided(batch_id) is not None
        if run.newest is not None:
            # Invariant: the newest decision is proven and ended before anything is fenced, whatever batch and query it
            # is of. Spark may begin a later batch than that: a function of foreachBatch returned without the writer, or
            # caught its error. Only its own batch has the rows that would be written again.
            report = self.finish(run.newest, replay if resumed else None, later=later or not resumed)
            if isinstance(report, Deferred):
                if resumed:
                    return report
                given_up = leave(run.options, run.query_id, batch_id, run.newest, report.slots, run.torn)
                run.warnings = (*run.warnings, given_up)
                run.narrow_repair({})
                report = None
        run.fence_leftovers()
        run.clear_hanging(ids)
        return report if resumed else None

    def finish(self, decision: Decision, replay: Replay | None, *, later: bool = False) -> CommitReport | Deferred:
        """Prove and end what an earlier run or process decided, the newest decision; see `start`. `later`: slots that
        the broker aborted are written again by the tasks of another process.
        """
        run, began = self.run, runtime.perf_counter()
        run.start_clock()
        if run.newest_ended:
            # The end was proven once and is not proven again:
            # its ids may have expired, its records may be gone.
            return run.report(decision, began, 0.0, resumed=True)
        # The group's offsets were committed with the decision; a repair rewrites the decision's record, not the
        # offsets.
        shell = CommitShell(run, decision, {}, replay, later=later)
        shell.run(cm.resume(decision.seals))
        if shell.deferred:
            return Deferred(shell.deferred)
        run.warnings = (*run.warnings, *warn_of_gone(run.cluster, shell.decision.seals))
        report = run.note_end(shell.decision, began, shell.ended_at, resumed=True)
        log.info("batch %d was decided by an earlier run; it is finished", decision.batch_id)
        return report

    # ---- from one process to another

    def hand_over(self, batch_id: int, repair: frozenset[int] | None) -> Handover:
        """The hand-over to the process that ends the batch. Call it after `plan`; this object is done then."""
        return self.run.hand_over(batch_id, repair, None, None)

    def resume(self, handover: Handover) -> None:
        """Go on with a batch that another process began; ProducerFenced where another run has begun since."""
        self.run.resume(handover)

    def fence_and_resume(self, handover: Handover) -> None:
        """The same, and fence any process of that run that may be committing the batch."""
        self.run.fence_and_resume(handover)
        self.run.read_newest()

    # ---- one batch

    def process(
        self,
        batch_id: int,
        write: Write,
        source_offsets: Sequence[str],
        group_offsets: GroupOffsets,
        tasks: CountTasks = lambda: None,
    ) -> CommitReport:
        """Write, decide and end one batch; see `commit` for what an error means for the data.

        A batch whose transactions got too old before the decision, or whose tasks read their input from two attempts of
        a stage, is aborted and repeated once: a second repetition would meet the same cause.
        `tasks`: how many tasks the last `write` ran, None where unknown.
        """
        run = self.run
        try:
            return self.commit(batch_id, write(None), source_offsets, group_offsets, write, tasks())
        except (TransactionTooOld, AttemptRefused) as error:
            log.warning("batch %d is retried: %s", batch_id, error)
            run.asks_anew = True
            anew = run.fenced_by_timeout()
            if not anew:
                # A newer run may have taken the slots over; then the batch belongs to that run.
                run.require_ownership()
                # The last decision lacks its marker; a start writes it, under the driver's id.
                anew = run.ledger.look().open is not None
            if anew:
                run.forget_epoch()
                resumed = self.start(batch_id, write, source_offsets)
                if resumed is not None:
                    return resumed
            else:
                run.clear_hanging()
        report = self.commit(batch_id, write(None), source_offsets, group_offsets, write, tasks())
        return replace(report, redone=1)

    def plan(self, batch_id: int, only_slots: frozenset[int] | None = None) -> WritePlan:
        """The plan for the tasks of a batch. The clock of the batch's transactions starts here."""
        run = self.run
        run.start_clock()
        narrowed = sorted(run.torn.items()) if only_slots is not None else ()
        newest, sticky_bytes, basis, routes = run.newest, run.options.sticky_bytes, NO_BASIS, Routes()
        decided: dict[str, Any] = {}
        if only_slots and newest is not None and newest.batch_id == batch_id:
            # The same rows have to go to the same partitions again, whatever the options are and the topics have by
            # now.
            sticky_bytes, basis, routes = newest.sticky_bytes, newest.basis, newest.routes
            warn_of_recreated(run.cluster, newest, only_slots)
            decided = _as_decided(newest, run.options)
        plan = WritePlan.for_batch(
            run.options,
            batch_id,
            only_slots,
            transaction_timeout_ms=run.timeout_ms,
            two_phase=run.two_phase,
            only_partitions=tuple((slot, tuple(sorted(parts))) for slot, parts in narrowed),
            driver=run.producer.session.identity,
            sticky_bytes=sticky_bytes,
            basis=basis,
            routes=routes,
            topic_ids=_topic_ids(run),
            asks_anew=run.asks_anew,
        )
        return replace(plan, **decided)

    def abandon(self, batch_id: int, seals: Sequence[Seal], reason: str) -> None:
        """Abort an undecided batch: the sealed slots, and everything else that its tasks left open. Best effort."""
        shell = CommitShell(self.run, self.run.decision(batch_id, seals, ()), {}, None)
        shell.run(_sealed(seals).handle(ev.TasksFailed(reason)))

    def commit(
        self,
        batch_id: int,
        seals: Sequence[Seal],
        source_offsets: Sequence[str],
        group_offsets: GroupOffsets,
        replay: Replay | None = None,
        tasks: int | None = None,
    ) -> CommitReport:
        """Decide and end a batch whose slots are all sealed. Returns when every participant is committed.

        `tasks`: how many tasks Spark ran; any other number of seals is an IllegalMove, with nothing decided.
        None where unknown: then only a gap between the slots is detected.

        On an error nothing of the batch is visible, unless the error is OutcomeUnknown, DecisionBroken or
        NondeterministicPlan: then the next run determines the outcome, or a person has to act. `replay`
        rewrites slots that the broker aborts after the decision.
        """
        run, began = self.run, runtime.perf_counter()
        shell = CommitShell(run, run.decision(batch_id, seals, source_offsets), group_offsets, replay)
        try:
            finished = _sealed(seals).handle(ev.TasksFinished(len(seals) if tasks is None else tasks))
        except IllegalMove as error:
            self.abandon(batch_id, seals, str(error))
            raise
        shell.run(finished)
        return run.note_end(shell.decision, began, shell.ended_at, resumed=False)


def _as_decided(decision: Decision, options: SinkOptions) -> dict[str, Any]:
    """The options that a decided batch's rows are written with again; a warning names those that are others by now.
    OptionsError where its rows name their topics and the query drops these by now.
    """
    then, now = decision.row_options, RowOptions.from_settings(options)
    if then == now:
        return {}
    if then.topic is None and now.topic is not None:
        raise OptionsError(
            f"batch {decision.batch_id} of pipeline {options.pipeline!r} is decided with rows that each name their topic, and the broker "
            f"aborted a part of it; the option topic is {now.topic!r} now, so these rows have lost their topics; nothing was written. Start "
            "the query without the option topic until the batch is committed",
            {"pipeline": options.pipeline, "batch": decision.batch_id, "topic": now.topic},
        )
    before = then.by_name()
    changed = [f"{name}={before[name]} (now {value})" for name, value in now.by_name().items() if before[name] != value]
    log.warning(
        "what the broker aborted of batch %d is written again as it was decided: %s; later batches are written by the query's options",
        decision.batch_id, ", ".join(changed),
    )  # fmt: skip
    return before


def _topic_ids(run: Run) -> tuple[tuple[str, str], ...]:
    """The ids of the topics that options name, as this process knows them."""
    named = {name for name in (run.options.topic, run.options.dead_letter_topic) if name is not None}
    return tuple((name, run.cluster.topic_id(name)) for name in sorted(named))


def _sealed(seals: Sequence[Seal]) -> cm.Commit:
    # In one event: one for each of 10,000 would copy all seals before it, 0.2 s of the commit.
    commit, _ = cm.Commit().handle(ev.Sealed(tuple(seals)))
    return commit


__all__ = ["Deferred", "PerTask"]
