"""The driver's side of a pipeline: begins batches, decides them, ends them, and finishes what an earlier run decided.

Owns: the driver's transactional session, the order of a run's start, the contents of a decision.
Does not know: Spark (seals and source offsets come in as values); how a commit is carried out, which `shell` does.
Invariants:
- A run fences the older one before it reads the ledger.
- No process initialises a decided slot before its end is proven.
- After a failure this object is not used again; the next run starts over and proves. The one exception is a
  batch that got too old: then nothing was decided and everything is aborted.

Longer than 400 lines until the commit is composed of a run and a scope.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from connector import runtime
from connector.client import admin
from connector.client.asking import NEW_TOPIC_MS
from connector.client.cluster import Cluster
from connector.client.producer import Producer
from connector.client.transactions import Transactions
from connector.commit import admission
from connector.commit.forgotten import take_anew
from connector.commit.ladder import transaction_class
from connector.commit.ledger.notes import Ended
from connector.commit.ledger.reader import LedgerView
from connector.commit.ledger.topic import Ledger
from connector.commit.markers import Mender, states_of
from connector.commit.proof import warn_of_gone
from connector.commit.reports import CommitReport
from connector.commit.shell import CommitShell, Deadline, Replay
from connector.errors import (
    ExactlyOnceError,
    IllegalMove,
    ProducerFenced,
    TransactionTooOld,
    UnknownTopic,
)
from connector.machines.commit import per_task as cm
from connector.model import (
    Decision,
    ProducerIdentity,
    Seal,
    TopicPartition,
    batch_transactional_id,
    driver_transactional_id,
)
from connector.options import SinkOptions
from connector.slot.dead_letters import require_topic
from connector.slot.writer import WritePlan
from connector.version import __version__

log = logging.getLogger(__name__)

DECISION_TIMEOUT_MS = 60_000
"""Transaction timeout of the driver's own transaction, which lasts milliseconds. It bounds how long a dead driver's
open decision holds the ledger's readers; half would abort it during a slow failover."""


TAKE_OVER_MS = 1_000
"""How long a newer run may take from the abort of this run's decision to its own epoch. Its client asks again within 0.1 s. Half
would miss one on a slow link; double delays the retry of every batch whose decision timed out."""

Write = Callable[[frozenset[int] | None], Sequence[Seal]]
"""Runs the batch's tasks, None for all slots, else as `Replay` does; returns the seals."""

CountTasks = Callable[[], int | None]
"""How many tasks Spark ran for the newest `Write`, called
after that returns; None where Spark does not report it."""


class PipelineDriver:
    """One run of one query under one pipeline name. Not for several threads."""

    def __init__(self, cluster: Cluster, options: SinkOptions, query_id: str) -> None:
        self.cluster = cluster
        self.options = options
        self.query_id = query_id
        self.ledger = Ledger(cluster, options.ledger_topic, options.pipeline)
        self.transactions = Transactions(cluster)
        self._last: Decision | None = None
        self._began_at = 0.0
        self._fenced = 0
        self._timeout_ms, self.two_phase = transaction_class(cluster, options)
        self.mender = Mender(cluster, self.ledger, self._timeout_ms, two_phase=self.two_phase)
        self.driver_id = driver_transactional_id(options.pipeline)
        self._torn: dict[int, frozenset[TopicPartition]] = {}
        self._ends: dict[str, ProducerIdentity] = {}
        self._warnings: tuple[str, ...] = ()
        self._timed_out: ProducerIdentity | None = None
        self._producer = self._new_producer()

    def _new_producer(self, identity: ProducerIdentity | None = None) -> Producer:
        return Producer(
            self.cluster,
            self.driver_id,
            transaction_timeout_ms=min(DECISION_TIMEOUT_MS, self._timeout_ms),
            delivery_timeout_ms=self.options.delivery_timeout_ms,
            identity=identity,
        )

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
        if self.options.topic is not None:
            self.cluster.topic(self.options.topic, refresh=True)
        require_topic(self.cluster, self.options.dead_letter_topic)
        self.ledger.prepare()
        # First without fencing: a conflict found here leaves the rightful query running.
        view = self.ledger.look()
        admission.refuse_conflict(self.options, self.query_id, view.newest, batch_id, source_offsets)
        self.mender.finish(view)
        # Before the check for lost decisions: a decision whose marker is missing is not visible either.
        self.mender.settle_decision(self.driver_id, self.options.offsets_group)
        ids = self._slot_ids()
        view = self.ledger.look()
        judged = view.open is None and self._refuse_lost_ledger(batch_id, ids, view)
        self._producer.initialize()
        # A run of scope=batch decides under this id, and takes it only after its own driver's id. An older
        # run that takes it back after this line finds that it no longer owns the driver's id.
        self.transactions.init_producer_id(batch_transactional_id(self.options.pipeline), self._timeout_ms)
        self._require_ownership()
        # From here on no older driver can decide; what the ledger contains now stays true.
        view = self.ledger.settled()
        self._last = view.newest
        admission.refuse_conflict(self.options, self.query_id, self._last, batch_id, source_offsets)
        if not judged:
            self._refuse_lost_ledger(batch_id, ids, view)
        self._warnings = admission.warn_of_another_topic(self.options, self._last)
        report = None
        resumed = (
            self._last is not None
            and self._last.query_id == self.query_id
            and self._last.batch_id == batch_id
        )
        foreign = self._last is not None and self._last.query_id != self.query_id
        if self._last is not None and (resumed or foreign):
            report = self._finish(self._last, replay if resumed else None, ended=view.ended)
        self._fence_leftovers()
        self._clear_hanging(ids)
        return report if resumed else None

    def _refuse_lost_ledger(self, batch_id: int, ids: Mapping[str, int], before: LedgerView) -> bool:
        """Refuse where the coordinators or the batch id show that the ledger lacks decisions. Keeps the
        coordinators' answers about the pipeline's ids for the next decision. `before`: the ledger's last look.
        False, with nothing judged, where an older driver has decided a batch since then."""
        views = self.transactions.describe(sorted(ids)) if ids else {}
        self._ends = {name: each.identity for name, each in views.items() if each.state == "CompleteCommit"}
        # The newest decision is the same before and after the coordinators' answers. An older driver that is
        # still at work decides before it ends, and its next decision does not name what it ended before that.
        after = self.ledger.look()
        if after.newest != before.newest:
            return False
        admission.refuse_lost_ledger(self.options, after, batch_id, self._ends)
        return True

    def _fence_leftovers(self) -> None:
        """Abort the transactions that earlier runs left open under this
        pipeline's slots: they would block readers at their offsets."""
        for transactional_id in self._slot_ids(["Ongoing"]):
            log.info("aborting the transaction that an earlier run left open under %s", transactional_id)
            self.transactions.init_producer_id(transactional_id, self._timeout_ms)
            self._fenced += 1

    def clean_up(self) -> None:
        """After a batch was given up: abort what else its tasks
        left open, unless a newer run owns that by now."""
        if not self.fenced_by_timeout():
            self._require_ownership()
        self._fence_leftovers()

    def fenced_by_timeout(self) -> bool:
        """Whether the timeout of the driver's own transaction raised its epoch, rather than a newer run."""
        mine = self._producer.session.identity
        if mine is not None and mine == self._timed_out:
            return True
        if not self._aborted_under_next_epoch():
            return False
        # A newer run's initialisation begins with the same abort and gets an epoch of its own a moment later.
        # A run that took that abort for its timeout would fence its successor.
        self.cluster.pause(TAKE_OVER_MS)
        if not self._aborted_under_next_epoch():
            return False
        # Known from here on: the batch asks up to three times.
        self._timed_out = mine
        return True

    def _aborted_under_next_epoch(self) -> bool:
        mine = self._producer.session.identity
        view = self.transactions.describe([self.driver_id])[self.driver_id]
        raised = mine is not None and view.identity == replace(mine, epoch=mine.epoch + 1)
        return raised and view.state == "CompleteAbort"

    def narrow_repair(self, torn: Mapping[int, frozenset[TopicPartition]]) -> None:
        """Let the next replay's slots send to these partitions
        only: their records in the others are committed."""
        self._torn = dict(torn)

    def _require_ownership(self) -> None:
        """ProducerFenced where a newer run has taken the pipeline over."""
        mine = self._producer.session.identity
        view = self.transactions.describe([self.driver_id])[self.driver_id]
        if mine is not None and view.state == "NotFound":
            take_anew(self._producer, self.ledger, self._last)
        elif mine is not None and view.identity != mine:
            raise ProducerFenced(
                f"a newer run has taken over pipeline {self.options.pipeline!r} (the driver's id is at {view.identity}, "
                f"this run has {mine}); this one stops, and what it had open is aborted",
                {"pipeline": self.options.pipeline, "transactional_id": self.driver_id},
            )

    def _clear_hanging(self, ids: Mapping[str, int] | None = None) -> None:
        """Abort transactions of undecided batches that brokers left without a marker.

        The next marker of the same producer id would end them too: a
        commit would make their records visible beside the rewritten ones.
        """
        topics = {part.topic for seal in (self._last.seals if self._last else ()) for part in seal.partitions}
        topics |= {self.options.topic} if self.options.topic is not None else set()
        partitions: set[TopicPartition] = set()
        for topic in topics:
            # Metadata is refreshed: an earlier output topic may have been
            # deleted since, and nothing hangs in a deleted topic. Only the topic
            # to be written now may be so new that a broker's metadata lacks it.
            grace_ms = NEW_TOPIC_MS if topic == self.options.topic else 0
            try:
                count = len(self.cluster.topic(topic, refresh=True, new_topic_ms=grace_ms).leaders)
            except UnknownTopic:
                if topic == self.options.topic:
                    raise
                continue
            partitions |= {TopicPartition(topic, number) for number in range(count)}
        ids = self._slot_ids() if ids is None else ids
        states = states_of(self.cluster, partitions) if ids else None
        for transactional_id, producer_id in ids.items():
            parts = [
                where
                for where, producers in (states or {}).items()
                if producer_id in producers and producers[producer_id].open_from >= 0
            ]
            if parts:
                self.mender.write(transactional_id, parts, commit=False)

    def _slot_ids(self, states: Sequence[str] = ()) -> dict[str, int]:
        slot_id = re.compile(re.escape(self.options.pipeline) + r"\.(\d+|batch)")
        listed = admin.list_transactions(self.cluster, states)
        return {name: producer for name, producer in listed.items() if slot_id.fullmatch(name)}

    # ---- one batch

    def process(
        self,
        batch_id: int,
        write: Write,
        source_offsets: Sequence[str],
        group_offsets: Mapping[TopicPartition, int],
        tasks: CountTasks = lambda: None,
    ) -> CommitReport:
        """Write, decide and end one batch; see `commit` for what an error means for the data.

        A batch whose transactions got too old before the decision is aborted
        and repeated once: a second repetition would meet the same timeout.
        `tasks`: how many tasks the last `write` ran, None where unknown.
        """
        try:
            return self.commit(batch_id, write(None), source_offsets, group_offsets, write, tasks())
        except TransactionTooOld as error:
            log.warning("batch %d is retried: %s", batch_id, error)
            anew = self.fenced_by_timeout()
            if not anew:
                # A newer run may have taken the slots over; then the batch belongs to that run.
                self._require_ownership()
                # The last decision lacks its marker; a start writes it, under the driver's id.
                anew = self.ledger.look().open is not None
            if anew:
                # The epoch of this run's driver is spent. Only a start gets another one safely.
                self._producer = self._new_producer()
                resumed = self.start(batch_id, write, source_offsets)
                if resumed is not None:
                    return resumed
            else:
                self._clear_hanging()
        report = self.commit(batch_id, write(None), source_offsets, group_offsets, write, tasks())
        return replace(report, redone=1)

    def plan(self, batch_id: int, only_slots: frozenset[int] | None = None) -> WritePlan:
        """The plan for the tasks of a batch. The clock of the batch's transactions starts here."""
        self._began_at = runtime.monotonic()
        return WritePlan.of(
            self.options,
            batch_id,
            only_slots,
            transaction_timeout_ms=self._timeout_ms,
            two_phase=self.two_phase,
            only_partitions=self._narrowed() if only_slots is not None else (),
            driver=self._producer.session.identity,
        )

    def _narrowed(self) -> tuple[tuple[int, tuple[TopicPartition, ...]], ...]:
        return tuple((slot, tuple(sorted(parts))) for slot, parts in sorted(self._torn.items()))

    def abandon(self, batch_id: int, seals: Sequence[Seal], reason: str) -> None:
        """Abort an undecided batch: the sealed slots, and
        everything else that its tasks left open. Best effort."""
        commit = self._sealed(seals)
        self._shell(self._decision(batch_id, seals, ()), {}, None).run(commit.handle(cm.TasksFailed(reason)))

    def commit(
        self,
        batch_id: int,
        seals: Sequence[Seal],
        source_offsets: Sequence[str],
        group_offsets: Mapping[TopicPartition, int],
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
        began = runtime.perf_counter()
        shell = self._shell(self._decision(batch_id, seals, source_offsets), group_offsets, replay)
        try:
            finished = self._sealed(seals).handle(cm.TasksFinished(len(seals) if tasks is None else tasks))
        except IllegalMove as error:
            self.abandon(batch_id, seals, str(error))
            raise
        shell.run(finished)
        self._last = shell.decision
        report = self._report(shell.decision, began, shell.ended_at, resumed=False)
        self.note_end(shell.decision)
        return report

    def note_end(self, decision: Decision) -> None:
        """Note in the ledger that every transaction of a batch is ended, so that no later run proves it
        again. Best effort: without the note the next run proves the batch once more."""
        try:
            if self.options.ephemeral:
                # No later run uses this name, so the ledger need not keep anything of it.
                self.ledger.forget()
            else:
                self.ledger.note(Ended.of(decision))
        except ExactlyOnceError as error:
            log.warning("batch %d is ended, but the ledger has no note of it: %s", decision.batch_id, error)

    def _finish(self, decision: Decision, replay: Replay | None, *, ended: bool = False) -> CommitReport:
        began = runtime.perf_counter()
        self._began_at = runtime.monotonic()
        if ended:
            # The end was proven once and is not proven again:
            # its ids may have expired, its records may be gone.
            return self._report(decision, began, 0.0, resumed=True)
        # The group's offsets were committed with the decision; a
        # repair rewrites the decision's record, not the offsets.
        shell = self._shell(decision, {}, replay, on_trust=self.options.adopt_checkpoint)
        shell.run(cm.resume(decision.seals))
        self._last = shell.decision
        warn_of_gone(self.cluster, shell.decision.seals)
        report = self._report(shell.decision, began, shell.ended_at, resumed=True)
        self.note_end(shell.decision)
        log.info("batch %d was decided by an earlier run; it is finished", decision.batch_id)
        return report

    def _shell(
        self,
        decision: Decision,
        group_offsets: Mapping[TopicPartition, int],
        replay: Replay | None,
        *,
        on_trust: bool = False,
    ) -> CommitShell:
        return CommitShell(
            self.cluster,
            self._producer,
            self.ledger,
            decision=decision,
            group=self.options.offsets_group,
            group_offsets=group_offsets,
            deadline=Deadline(self._left_ms, self.options.transaction_margin_ms, self._timeout_ms),
            mender=self.mender,
            replay=replay,
            run=self,
            on_trust=on_trust,
        )

    def _decision(self, batch_id: int, seals: Sequence[Seal], source_offsets: Sequence[str]) -> Decision:
        highest = max([seal.slot for seal in seals], default=-1)
        return Decision(
            pipeline=self.options.pipeline,
            query_id=self.query_id,
            batch_id=batch_id,
            seals=tuple(sorted(seals, key=lambda seal: seal.slot)),
            source_offsets=tuple(source_offsets),
            highest_slot=max(highest, self._last.highest_slot if self._last else -1),
            decided_ms=int(runtime.time() * 1000),
            connector_version=__version__,
            earlier=self._earlier(seals),
            warnings=self._warnings,
        )

    def _earlier(self, seals: Sequence[Seal]) -> tuple[tuple[str, ProducerIdentity], ...]:
        """The ids that have no part in a batch, each with the identity that earlier batches left it at."""
        known = self._ends | (self._last.ends if self._last is not None else {})
        now = {seal.transactional_id for seal in seals if seal.identity is not None}
        return tuple(sorted((name, each) for name, each in known.items() if name not in now))

    @staticmethod
    def _sealed(seals: Sequence[Seal]) -> cm.Commit:
        commit = cm.Commit()
        for seal in seals:
            commit, _ = commit.handle(cm.Sealed(seal))
        return commit

    def _report(self, decision: Decision, began: float, ended_at: float, *, resumed: bool) -> CommitReport:
        fenced, self._fenced = self._fenced, 0
        return CommitReport(
            batch_id=decision.batch_id,
            records=decision.records,
            bytes=sum(seal.bytes for seal in decision.seals),
            slots=len(decision.seals),
            commit_ms=((ended_at or runtime.perf_counter()) - began) * 1000,
            visible_ms=(runtime.perf_counter() - began) * 1000,
            left_ms=self._left_ms(),
            resumed=resumed,
            repaired=decision.repaired,
            retries=sum(seal.retries for seal in decision.seals),
            fences=fenced + sum(seal.attempt for seal in decision.seals),
            dead_letters=decision.dead_letters,
        )

    def _left_ms(self) -> float:
        # Measured on this machine's monotonic clock from before the tasks began. That is never later than the
        # coordinator's own start of any of their transactions, whatever the clocks of other machines show.
        if self.two_phase:
            return math.inf
        return self._timeout_ms - (runtime.monotonic() - self._began_at) * 1000


__all__ = ["DECISION_TIMEOUT_MS", "CommitReport", "PipelineDriver", "Write"]
