"""The driver's side of a pipeline: begins batches, decides them, ends them, and finishes what an earlier run decided.

Owns: the driver's transactional session, the order of a run's start, what a decision says.
Does not know: Spark (seals and source offsets come in as values); how a commit is carried out, which `shell` does.
Invariants: a run fences the older one before it reads the ledger; nobody initialises a decided slot before its end is
proven; after a failure this object is not used again (the next run starts over and proves), but for a batch that got too
old: then nothing was decided and everything is aborted.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from connector.client import admin
from connector.client.cluster import NEW_TOPIC_MS, Cluster
from connector.client.producer import Producer
from connector.client.producer_states import describe_producers
from connector.client.transactions import Transactions
from connector.commit.dead_letters import require_topic
from connector.commit.hanging import await_markers, settle_decision, write_markers
from connector.commit.ledger import Ledger
from connector.commit.reports import CommitReport
from connector.commit.shell import CommitShell, Deadline, Replay
from connector.commit.slot import WritePlan
from connector.errors import (
    IllegalMove,
    OptionsError,
    PipelineConflict,
    ProducerFenced,
    TransactionTooOld,
    UnknownTopic,
)
from connector.machines import commit as cm
from connector.model import Decision, Seal, TopicPartition, batch_transactional_id
from connector.options import LONGEST_TRANSACTION_MS, SinkOptions
from connector.version import __version__

log = logging.getLogger(__name__)

DECISION_TIMEOUT_MS = 60_000
"""Transaction timeout of the driver's own transaction, which lasts milliseconds. It bounds how long a dead driver's
open decision holds the ledger's readers; half would abort it during a slow failover."""


Write = Callable[[frozenset[int] | None], Sequence[Seal]]
"""Runs the batch's tasks, None for all slots, else as `Replay` does; returns the seals."""

CountTasks = Callable[[], int | None]
"""How many tasks Spark ran for the newest `Write`, asked when that has returned; None where Spark does not say."""


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
        self._timeout_ms, self.two_phase = self._transaction_class()
        self.driver_id = f"{options.pipeline}.driver"
        self._producer = Producer(
            cluster,
            self.driver_id,
            transaction_timeout_ms=min(DECISION_TIMEOUT_MS, self._timeout_ms),
            delivery_timeout_ms=options.delivery_timeout_ms,
        )

    # ---- the start of a run

    def start(
        self, batch_id: int, replay: Replay | None = None, source_offsets: Sequence[str] | None = None
    ) -> CommitReport | None:
        """Take over the pipeline for this run, whose first batch is `batch_id`.

        Returns a report where that batch is decided already: it is then proven and finished, and must not be written;
        `replay` writes again what the broker aborted of it. `source_offsets`: what Spark's offset log says of this batch.
        Raises PipelineConflict where going on would lose or repeat data; nothing is written then.
        """
        if self.options.topic is not None:
            self.cluster.topic(self.options.topic, refresh=True)
        require_topic(self.cluster, self.options.dead_letter_topic)
        self.ledger.prepare()
        # First without fencing anybody: a conflict found here leaves the rightful query running.
        newest = self.ledger.newest(settle=False)
        self._refuse_conflict(newest, batch_id, source_offsets)
        settle_decision(
            self.cluster,
            self.ledger,
            self.driver_id,
            self._producer.transaction_timeout_ms,
            group=self.options.offsets_group,
        )
        self._producer.initialize()
        # A run of scope=batch decides under this id. It was initialised after its run's own driver id, so whoever holds
        # it after this and is no newer run finds out that it does not own that one any more.
        self.transactions.init_producer_id(batch_transactional_id(self.options.pipeline), self._timeout_ms)
        self._require_ownership()
        # From here on no older driver can decide; what the ledger says now stays true.
        self._last = self.ledger.newest(settle=True)
        self._refuse_conflict(self._last, batch_id, source_offsets)
        report = None
        resumed = (
            self._last is not None
            and self._last.query_id == self.query_id
            and self._last.batch_id == batch_id
        )
        foreign = self._last is not None and self._last.query_id != self.query_id
        if self._last is not None and (resumed or foreign):
            report = self._finish(self._last, replay if resumed else None)
        self._fence_leftovers()
        self._clear_hanging()
        return report if resumed else None

    def _refuse_conflict(
        self, newest: Decision | None, batch_id: int, source_offsets: Sequence[str] | None
    ) -> None:
        if newest is None:
            self._refuse_lost_ledger(batch_id)
            return
        facts: dict[str, str | int] = {
            "pipeline": self.options.pipeline,
            "ledger_query": newest.query_id,
            "this_query": self.query_id,
            "ledger_batch": newest.batch_id,
            "this_batch": batch_id,
        }
        if newest.query_id != self.query_id and not self.options.adopt_checkpoint:
            raise PipelineConflict(
                f"pipeline {self.options.pipeline!r} belongs to another query or to an older checkpoint of this one; "
                "nothing was written. Two queries: give each its own pipeline name. A new checkpoint: its batch ids "
                "start again at 0; set adopt.checkpoint=true once, after making sure that its starting offsets follow "
                "the offsets committed for the group",
                facts,
            )
        if newest.query_id == self.query_id and newest.batch_id > batch_id:
            raise PipelineConflict(
                f"the checkpoint is older than the output: it begins batch {batch_id}, but batch {newest.batch_id} of "
                "this query is committed; nothing was written. Restore the newer checkpoint; going on would write "
                "records twice",
                facts,
            )

        decided = newest.query_id == self.query_id and newest.batch_id == batch_id and newest.source_offsets
        if decided and source_offsets is not None and tuple(source_offsets) != newest.source_offsets:
            raise PipelineConflict(
                f"batch {batch_id} of this query is committed, but for other source offsets than the checkpoint has now: it "
                "was restored from before that batch, or its offset log was changed; nothing was written. Restore the "
                "checkpoint that the batch was committed with; going on would skip or repeat records",
                {**facts, "committed": "; ".join(newest.source_offsets)[:500]},
            )

    def _refuse_lost_ledger(self, batch_id: int) -> None:
        """The ledger knows nothing of this pipeline: refuse where something else says that it should."""
        if self.options.adopt_checkpoint:
            return
        # Slots are committed only after a decision. (What this read missed may have been decided since: look again.)
        decided = bool(self._slot_ids(["CompleteCommit"])) and self.ledger.newest(settle=False) is None
        if batch_id > 0 or decided:
            raise PipelineConflict(
                f"the ledger topic {self.ledger.topic!r} has no decision of pipeline {self.options.pipeline!r}, but "
                + ("it has decided batches" if decided else f"the checkpoint begins batch {batch_id}")
                + "; nothing was written. If the ledger was deleted, made anew or given more partitions, restore it, or "
                "find out whether the checkpoint's last batch is in the output. A query that is new to this connector, or "
                "whose last batch you have checked: set adopt.checkpoint=true once",
                {"pipeline": self.options.pipeline, "ledger": self.ledger.topic, "this_batch": batch_id},
            )

    def _transaction_class(self) -> tuple[int, bool]:
        """(timeout in ms of the slots' transactions, whether they have none at all): the ladder's highest rung here."""
        names = ["transaction.max.timeout.ms", "transaction.two.phase.commit.enable"]
        found = admin.broker_settings(self.cluster, names) or {}
        # A right that is missing (the settings may not be read) leaves the lower rung, which every broker has.
        allowed = found.get("transaction.two.phase.commit.enable") == "true"
        two_phase = allowed and self.options.two_phase_commit and self.cluster.speaks_two_phase
        return self._transaction_timeout(found.get("transaction.max.timeout.ms")), two_phase

    def _transaction_timeout(self, cap: str | None) -> int:
        asked = self.options.transaction_timeout_ms
        if cap is None:
            # The right to read the setting is missing. Kafka's default cap is what brokers have unless changed; a
            # lower one answers InitProducerId with INVALID_TRANSACTION_TIMEOUT, before anything is written.
            return asked if asked is not None else LONGEST_TRANSACTION_MS
        if asked is not None and asked > int(cap):
            raise OptionsError(
                f"kafka.transaction.timeout.ms={asked} is above the broker's transaction.max.timeout.ms={cap}; nothing "
                "was written; lower the one or raise the other",
                {"asked_ms": asked, "cap_ms": int(cap)},
            )
        return asked if asked is not None else min(int(cap), LONGEST_TRANSACTION_MS)

    def _fence_leftovers(self) -> None:
        """Abort what earlier runs left open under this pipeline's slots: it would hold readers at its offset."""
        for transactional_id in self._slot_ids(["Ongoing"]):
            log.info("aborting the transaction that an earlier run left open under %s", transactional_id)
            self.transactions.init_producer_id(transactional_id, self._timeout_ms)
            self._fenced += 1

    def _clean_up(self) -> None:
        """After a batch was given up: abort what else its tasks left open, unless that is a newer run's by now."""
        self._require_ownership()
        self._fence_leftovers()

    def _require_ownership(self) -> None:
        """ProducerFenced where a newer run has taken the pipeline over."""
        mine = self._producer.session.identity
        view = self.transactions.describe([self.driver_id])[self.driver_id]
        if mine is not None and view.state != "NotFound" and view.identity != mine:
            raise ProducerFenced(
                f"a newer run has taken over pipeline {self.options.pipeline!r} (the driver's id is at {view.identity}, "
                f"this run has {mine}); this one stops, and what it had open is aborted",
                {"pipeline": self.options.pipeline, "transactional_id": self.driver_id},
            )

    def _clear_hanging(self) -> None:
        """Abort what brokers left without a marker of batches that were never decided.

        The next marker of the same producer id would end it too: a commit would show it beside what is written anew.
        """
        topics = {part.topic for seal in (self._last.seals if self._last else ()) for part in seal.partitions}
        topics |= {self.options.topic} if self.options.topic is not None else set()
        partitions: set[TopicPartition] = set()
        for topic in topics:
            # Asked anew: an output of before may have been deleted since, and nothing hangs in a topic that is gone. Only
            # the one that is to be written now may be so new that a broker has not heard of it.
            grace_ms = NEW_TOPIC_MS if topic == self.options.topic else 0
            try:
                count = len(self.cluster.topic(topic, refresh=True, new_topic_ms=grace_ms).leaders)
            except UnknownTopic:
                if topic == self.options.topic:
                    raise
                continue
            partitions |= {TopicPartition(topic, number) for number in range(count)}
        ids = self._slot_ids()
        states = describe_producers(self.cluster, partitions) if ids else None
        for transactional_id, producer_id in ids.items():
            parts = [
                where
                for where, producers in (states or {}).items()
                if producer_id in producers and producers[producer_id].open_from >= 0
            ]
            if parts:
                write_markers(self.cluster, transactional_id, parts, self._timeout_ms, commit=False)

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
        """Write, decide and end one batch; see `commit` for what an error says of the data.

        A batch whose transactions got too old before the decision is aborted and done again, once: a second time would
        meet the same timeout. `tasks`: how many tasks the last `write` ran, None where nobody can say.
        """
        try:
            return self.commit(batch_id, write(None), source_offsets, group_offsets, write, tasks())
        except TransactionTooOld as error:
            # Or a newer run has taken the slots over; then the batch is that one's.
            self._require_ownership()
            log.warning("batch %d is done again: %s", batch_id, error)
            self._clear_hanging()
        report = self.commit(batch_id, write(None), source_offsets, group_offsets, write, tasks())
        return replace(report, redone=1)

    def plan(self, batch_id: int, only_slots: frozenset[int] | None = None) -> WritePlan:
        """What the tasks of a batch are told. The clock of the batch's transactions starts here."""
        self._began_at = time.monotonic()
        return WritePlan.of(
            self.options,
            batch_id,
            only_slots,
            transaction_timeout_ms=self._timeout_ms,
            two_phase=self.two_phase,
            driver=self._producer.session.identity,
        )

    def abandon(self, batch_id: int, seals: Sequence[Seal], reason: str) -> None:
        """Abort a batch that is not decided: the sealed slots, and whatever else its tasks left open. Best effort."""
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

        `tasks`: how many Spark ran, so as many seals there must be (IllegalMove, nothing decided); None where that is not
        known: then only a gap between the slots is seen.

        On an error nothing of the batch is visible, unless the error is OutcomeUnknown, DecisionBroken or
        NondeterministicPlan: then the next run finds out, or somebody has to act. `replay` writes slots again that the
        broker aborts after the decision.
        """
        began = time.perf_counter()
        shell = self._shell(self._decision(batch_id, seals, source_offsets), group_offsets, replay)
        try:
            finished = self._sealed(seals).handle(cm.TasksFinished(len(seals) if tasks is None else tasks))
        except IllegalMove as error:
            self.abandon(batch_id, seals, str(error))
            raise
        shell.run(finished)
        self._last = shell.decision
        return self._report(shell.decision, began, shell.ended_at, resumed=False)

    def _finish(self, decision: Decision, replay: Replay | None) -> CommitReport:
        began = time.perf_counter()
        self._began_at = time.monotonic()
        if decision.in_one_transaction:
            # Decided is committed; only a marker that the broker forgot can be left to do.
            await_markers(self.cluster, decision.seals, self._timeout_ms, commit=True)
            return self._report(decision, began, 0.0, resumed=True)
        # The group's offsets were committed with the decision; a repair of it writes its record again, not those.
        shell = self._shell(decision, {}, replay)
        shell.run(cm.resume(decision.seals))
        self._last = shell.decision
        log.info("batch %d was decided by an earlier run; it is finished", decision.batch_id)
        return self._report(shell.decision, began, shell.ended_at, resumed=True)

    def _shell(
        self, decision: Decision, group_offsets: Mapping[TopicPartition, int], replay: Replay | None
    ) -> CommitShell:
        return CommitShell(
            self.cluster,
            self._producer,
            self.ledger,
            decision=decision,
            group=self.options.offsets_group,
            group_offsets=group_offsets,
            deadline=Deadline(self._left_ms, self.options.transaction_margin_ms, self._timeout_ms),
            replay=replay,
            clean_up=self._clean_up,
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
            decided_ms=int(time.time() * 1000),
            connector_version=__version__,
        )

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
            commit_ms=((ended_at or time.perf_counter()) - began) * 1000,
            visible_ms=(time.perf_counter() - began) * 1000,
            left_ms=self._left_ms(),
            resumed=resumed,
            repaired=decision.repaired,
            retries=sum(seal.retries for seal in decision.seals),
            fences=fenced + sum(seal.attempt for seal in decision.seals),
            dead_letters=decision.dead_letters,
        )

    def _left_ms(self) -> float:
        # Measured from before the tasks were told to begin, on this machine's steady clock: never later than the
        # coordinator's own start of any of their transactions, whatever the clocks of other machines say.
        if self.two_phase:
            return math.inf
        return self._timeout_ms - (time.monotonic() - self._began_at) * 1000


__all__ = ["DECISION_TIMEOUT_MS", "CommitReport", "PipelineDriver", "Write"]
