"""The driver's side of a pipeline: begins batches, decides them, ends them, and finishes what an earlier run decided.

Owns: the driver's transactional session, the order of a run's start, carrying out what `machines.commit` decides.
Does not know: Spark; seals and source offsets come in as values.
Invariants: a run fences the older one before it reads the ledger; nobody initialises a decided slot before its end is
proven; after any failure this object is not used again (the next run starts over and proves).
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connector import __version__, crash_points
from connector.client import admin
from connector.client.cluster import Cluster
from connector.client.producer import Producer
from connector.client.transactions import EndRequest, Transactions
from connector.commit.ledger import Ledger
from connector.commit.proof import find_marker, prove
from connector.commit.slot import WritePlan
from connector.errors import (
    BrokerUnavailable,
    DecisionBroken,
    ExactlyOnceError,
    OptionsError,
    OutcomeUnknown,
    PipelineConflict,
    TransactionTooOld,
)
from connector.machines import commit as cm
from connector.machines.producer import State as Session
from connector.model import Decision, Seal, TopicPartition
from connector.options import LONGEST_TRANSACTION_MS, SinkOptions

log = logging.getLogger(__name__)

DECISION_TIMEOUT_MS = 60_000
"""Transaction timeout of the driver's own transaction, which lasts milliseconds. It bounds how long a dead driver's
open decision holds the ledger's readers; half would abort it during a slow failover."""


@dataclass(frozen=True)
class CommitReport:
    """What one batch's commit did: sizes, and times in milliseconds. `left_ms` is what the transactions had left."""

    batch_id: int
    records: int
    bytes: int
    slots: int
    commit_ms: float
    left_ms: float
    resumed: bool = False


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
        self._timeout_ms = self._transaction_timeout()
        self._producer = Producer(
            cluster,
            f"{options.pipeline}.driver",
            transaction_timeout_ms=min(DECISION_TIMEOUT_MS, self._timeout_ms),
            delivery_timeout_ms=options.delivery_timeout_ms,
        )

    # ---- the start of a run

    def start(self, batch_id: int) -> CommitReport | None:
        """Take over the pipeline for this run, whose first batch is `batch_id`.

        Returns a report where that batch is decided already: it is then proven and finished, and must not be written.
        Raises PipelineConflict where the ledger says that going on would lose or repeat data; nothing is written then.
        """
        if self.options.topic is not None:
            self.cluster.topic(self.options.topic, refresh=True)
        self.ledger.prepare()
        # First without fencing anybody: a conflict found here leaves the rightful query running.
        self._refuse_conflict(self.ledger.newest(settle=False), batch_id)
        self._producer.initialize()
        # From here on no older driver can decide; what the ledger says now stays true.
        self._last = self.ledger.newest(settle=True)
        self._refuse_conflict(self._last, batch_id)
        report = None
        resumed = self._last is not None and self._last.query_id == self.query_id and self._last.batch_id == batch_id
        foreign = self._last is not None and self._last.query_id != self.query_id
        if self._last is not None and (resumed or foreign):
            report = self._finish(self._last)
        self._fence_leftovers()
        return report if resumed else None

    def _refuse_conflict(self, newest: Decision | None, batch_id: int) -> None:
        if newest is None:
            return
        facts = {
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

    def _transaction_timeout(self) -> int:
        found = admin.broker_settings(self.cluster, ["transaction.max.timeout.ms"])
        cap = (found or {}).get("transaction.max.timeout.ms")
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
        slot_id = re.compile(re.escape(self.options.pipeline) + r"\.\d+")
        for transactional_id in admin.open_transactions(self.cluster):
            if slot_id.fullmatch(transactional_id):
                log.info("aborting the transaction that an earlier run left open under %s", transactional_id)
                self.transactions.init_producer_id(transactional_id, self._timeout_ms)

    # ---- one batch

    def plan(self, batch_id: int) -> WritePlan:
        """What the tasks of a batch are told. The clock of the batch's transactions starts here."""
        self._began_at = time.monotonic()
        options = self.options
        return WritePlan(
            pipeline=options.pipeline,
            batch_id=batch_id,
            client=options.client,
            topic=options.topic,
            transaction_timeout_ms=self._timeout_ms,
            compression=options.compression,
            batch_bytes=options.batch_bytes,
            delivery_timeout_ms=options.delivery_timeout_ms,
            max_record_bytes=options.max_request_bytes,
        )

    def abandon(self, seals: Sequence[Seal], reason: str) -> None:
        """Abort a batch that is not decided: the sealed slots, and whatever else its tasks left open. Best effort."""
        commit = cm.Commit()
        for seal in seals:
            commit, _ = commit.handle(cm.Sealed(seal))
        commit, effects = commit.handle(cm.TasksFailed(reason))
        self._carry_out(commit, effects, None)

    def commit(
        self,
        batch_id: int,
        seals: Sequence[Seal],
        source_offsets: Sequence[str],
        group_offsets: Mapping[TopicPartition, int],
    ) -> CommitReport:
        """Decide and end a batch whose slots are all sealed. Returns when every participant is committed.

        On an error nothing of the batch is visible, unless the error is OutcomeUnknown or DecisionBroken: then the next
        run finds out, or the operator has to.
        """
        began = time.perf_counter()
        highest = max([seal.slot for seal in seals], default=-1)
        decision = Decision(
            pipeline=self.options.pipeline,
            query_id=self.query_id,
            batch_id=batch_id,
            seals=tuple(sorted(seals, key=lambda seal: seal.slot)),
            source_offsets=tuple(source_offsets),
            highest_slot=max(highest, self._last.highest_slot if self._last else -1),
            decided_ms=int(time.time() * 1000),
            connector_version=__version__,
        )
        commit = cm.Commit()
        for seal in seals:
            commit, _ = commit.handle(cm.Sealed(seal))
        commit, effects = commit.handle(cm.TasksFinished(len(seals)))
        self._carry_out(commit, effects, (decision, group_offsets))
        self._last = decision
        return CommitReport(
            batch_id=batch_id,
            records=decision.records,
            bytes=sum(seal.bytes for seal in seals),
            slots=len(seals),
            commit_ms=(time.perf_counter() - began) * 1000,
            left_ms=self._left_ms(),
        )

    def _finish(self, decision: Decision) -> CommitReport:
        began = time.perf_counter()
        commit, effects = cm.resume(decision.seals)
        self._carry_out(commit, effects, None)
        log.info("batch %d was decided by an earlier run; it is finished", decision.batch_id)
        return CommitReport(
            batch_id=decision.batch_id,
            records=decision.records,
            bytes=sum(seal.bytes for seal in decision.seals),
            slots=len(decision.seals),
            commit_ms=(time.perf_counter() - began) * 1000,
            left_ms=0.0,
            resumed=True,
        )

    def _left_ms(self) -> float:
        # Measured from before the tasks were told to begin, on this machine's steady clock: never later than the
        # coordinator's own start of any of their transactions, whatever the clocks of other machines say.
        return self._timeout_ms - (time.monotonic() - self._began_at) * 1000

    # ---- carrying out effects

    def _carry_out(
        self,
        commit: cm.Commit,
        effects: Sequence[cm.Effect],
        what: tuple[Decision, Mapping[TopicPartition, int]] | None,
    ) -> None:
        failure: ExactlyOnceError | None = None
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            events: Sequence[cm.Event]
            if isinstance(effect, cm.CheckAlive):
                events, failure = self._check_alive(effect.seals)
            elif isinstance(effect, cm.RecordDecision):
                assert what is not None
                events, failure = self._record(*what)
            elif isinstance(effect, cm.AskDecision):
                events, failure = self._ask_decision()
            elif isinstance(effect, cm.EndSlots):
                events = self._end(effect.seals)
            elif isinstance(effect, cm.ProveSlots):
                verdicts = prove(self.cluster, effect.seals)
                events = [cm.SlotProven(slot, verdict) for slot, verdict in verdicts.items()]
            elif isinstance(effect, cm.AbortSlots):
                self._abort(effect.seals)
                events = [cm.AbortFinished()]
            else:
                raise self._broken(effect)
            for event in events:
                commit, more = commit.handle(event)
                queue.extend(more)
        if commit.state is cm.State.ABORTED and failure is not None:
            raise failure

    def _check_alive(self, seals: Sequence[Seal]) -> tuple[Sequence[cm.Event], ExactlyOnceError | None]:
        crash_points.reached("before-check")
        views = self.transactions.describe([seal.transactional_id for seal in seals])
        for seal in seals:
            view = views[seal.transactional_id]
            if view.state != "Ongoing" or view.identity != seal.identity:
                error = TransactionTooOld(
                    f"slot {seal.slot} is no longer open under {seal.identity} (the coordinator says {view.state} under "
                    f"{view.identity}): it timed out or a newer attempt took it over; nothing of the batch is visible, "
                    "it is done again; raise kafka.transaction.timeout.ms if this repeats",
                    {"slot": seal.slot, "state": view.state},
                )
                return [cm.NotAlive(error.message)], error
        if self._left_ms() < self.options.transaction_margin_ms:
            error = TransactionTooOld(
                "too little of the transactions' time is left to decide the batch safely; nothing of it is visible, it "
                "is done again; make batches smaller or raise kafka.transaction.timeout.ms",
                {
                    "left_ms": round(self._left_ms()),
                    "margin_ms": self.options.transaction_margin_ms,
                    "timeout_ms": self._timeout_ms,
                },
            )
            return [cm.NotAlive(error.message)], error
        return [cm.AllAlive()], None

    def _record(
        self, decision: Decision, group_offsets: Mapping[TopicPartition, int]
    ) -> tuple[Sequence[cm.Event], ExactlyOnceError | None]:
        producer = self._producer
        crash_points.reached("before-decision")
        try:
            if producer.session.state is not Session.READY:
                # Version 1 gives no fresh epoch with the end: bump it, unless a newer driver has (KIP-360).
                producer.initialize()
            producer.begin()
            self.ledger.write(producer, decision)
            producer.send_offsets(self.options.offsets_group, group_offsets)
        except ExactlyOnceError as error:
            # EndTxn was not sent, so the decision is definitely not made, whatever else is unclear.
            producer.abort()
            return [cm.DecisionRefused(str(error))], error
        try:
            producer.flush()
            crash_points.reached("decision-written")
            producer.commit()
            crash_points.reached("after-decision")
        except OutcomeUnknown as error:
            return [cm.DecisionUnanswered(str(error))], error
        except ExactlyOnceError as error:
            producer.abort()
            return [cm.DecisionRefused(str(error))], error
        return [cm.DecisionDurable()], None

    def _ask_decision(self) -> tuple[Sequence[cm.Event], ExactlyOnceError | None]:
        producer = self._producer
        (ledger,) = [each for each in producer.partitions() if each.topic == self.options.ledger_topic]
        where = TopicPartition(ledger.topic, ledger.partition)
        identity = producer.identity

        def witness() -> bool | None:
            verdict = find_marker(self.cluster, where, identity.producer_id, ledger.first_offset)
            return {cm.Verdict.COMMITTED: True, cm.Verdict.ABORTED: False}.get(verdict)

        committed = producer.ask_outcome(witness)
        if committed is None:
            raise OutcomeUnknown(
                "whether the batch is decided cannot be found out now; no slot was ended; the next run asks again "
                "before it does anything else",
                {"pipeline": self.options.pipeline, "producer": str(identity), "ledger": str(where)},
            )
        if committed:
            return [cm.DecisionDurable()], None
        error = TransactionTooOld(
            "the decision's transaction was aborted by the broker; nothing of the batch is visible, it is done again",
            {"pipeline": self.options.pipeline, "ledger": str(where)},
        )
        return [cm.DecisionRefused(error.message)], error

    def _end(self, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        requests = [
            EndRequest(seal.transactional_id, seal.identity, True, seal.transaction_version)
            for seal in seals
            if seal.identity is not None
        ]
        crash_points.reached("before-end")
        if crash_points.armed("after-end"):
            answers = []
            for request in requests:
                answers.append(self.transactions.end(request))
                crash_points.reached("after-end")
        else:
            answers = self.transactions.end_many(requests)
        return [
            cm.SlotEnded(seal.slot) if answer.definite else cm.SlotUnanswered(seal.slot)
            for seal, answer in zip(seals, answers, strict=True)
        ]

    def _abort(self, seals: Sequence[Seal]) -> None:
        requests = [
            EndRequest(seal.transactional_id, seal.identity, False, seal.transaction_version)
            for seal in seals
            if seal.identity is not None
        ]
        try:
            self.transactions.end_many(requests, deadline_ms=10_000)
            self._fence_leftovers()
        except (BrokerUnavailable, OutcomeUnknown) as error:
            # Nothing is decided, so nothing can become visible: what is still open is fenced by the next run.
            log.warning("some transactions of an undecided batch are still open: %s", error)

    def _broken(self, effect: cm.Effect) -> DecisionBroken:
        assert isinstance(effect, cm.StopBroken)
        lines = [
            f"slot {seal.slot} ({what}): {seal.transactional_id}, {seal.identity}, "
            + ", ".join(f"{each.topic}-{each.partition} from offset {each.first_offset}" for each in seal.partitions)
            for what, seals in (("aborted by the broker", effect.lost), ("outcome unknown", effect.unknown))
            for seal in seals
        ]
        return DecisionBroken(
            "a decided batch cannot be finished; its other slots are committed and nothing is skipped; look at these "
            "transactions with Kafka's own tools before the query is started again:\n" + "\n".join(lines),
            {
                "pipeline": self.options.pipeline,
                "lost": tuple(seal.slot for seal in effect.lost),
                "unknown": tuple(seal.slot for seal in effect.unknown),
            },
        )
