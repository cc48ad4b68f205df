"""Carries out what `machines.commit` decides: asks coordinators, writes the ledger, ends and rewrites slots.

Owns: the order of effects and answers of one commit, and which error a failed one raises.
Does not know: what may happen when (the machine does), Spark, the start of a run.
Invariants: every answer goes back into the machine as an event; nothing is ended or aborted unless an effect says so.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from connector import crash_points
from connector.client.cluster import Cluster
from connector.client.ends import EndAnswer, EndRequest
from connector.client.producer import Producer
from connector.client.producer_states import describe_producers
from connector.client.transactions import Transactions
from connector.commit.deciding import ask_decision, broken_part, write_decision
from connector.commit.hanging import await_markers, never_ended, partitions_of
from connector.commit.ledger import Ledger
from connector.commit.plan import ALL_OTHERS
from connector.commit.proof import prove
from connector.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    DecisionBroken,
    ExactlyOnceError,
    Fact,
    NondeterministicPlan,
    OutcomeUnknown,
    ProducerFenced,
    TransactionTooOld,
)
from connector.machines import commit as cm
from connector.machines.producer import State as Session
from connector.model import Decision, Seal, TopicPartition
from connector.protocol.error_codes import Code

log = logging.getLogger(__name__)

_ABORT_DEADLINE_MS = 10_000
"""Aborting what is not decided is a courtesy to readers; the next run fences what is left. Longer would only delay the
error that led here."""

_MOST_TRIES = 5
"""Rounds of end and proof for one slot, each of which waits for a definite answer up to its own deadline. A slot that is
open and refuses its end so often does not do so by chance."""

Replay = Callable[[frozenset[int]], Sequence[Seal]]
"""Runs the batch again with these slots writing (`ALL_OTHERS`: every other one too) and the others measuring what they would
write; returns the seals of all."""


@dataclass(frozen=True)
class Deadline:
    """How much of the transactions' time is left, and how much must be left to decide. Milliseconds."""

    left_ms: Callable[[], float]
    margin_ms: float
    timeout_ms: float


class CommitShell:
    """One commit, or the finishing of one that an earlier run decided. Use once."""

    def __init__(
        self,
        cluster: Cluster,
        producer: Producer,
        ledger: Ledger,
        *,
        decision: Decision,
        group: str,
        group_offsets: Mapping[TopicPartition, int],
        deadline: Deadline,
        replay: Replay | None,
        clean_up: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self.producer = producer
        self.ledger = ledger
        self.transactions = Transactions(cluster)
        self.decision = decision
        self._group = group
        self._group_offsets = group_offsets
        self._deadline = deadline
        self._replay = replay
        self._clean_up = clean_up
        self.ended_at = 0.0
        self._failure: ExactlyOnceError | None = None
        self._tries: dict[int, int] = {}

    def run(self, start: tuple[cm.Commit, Sequence[cm.Effect]]) -> None:
        """Carry a commit to its end. Returns when it is DONE; raises what stopped it, and after an abort the reason."""
        commit, effects = start
        queue = deque(effects)
        while queue:
            for event in self._carry_out(queue.popleft()):
                commit, more = commit.handle(event)
                queue.extend(more)
        if commit.state is cm.State.ABORTED and self._failure is not None:
            raise self._failure

    def _carry_out(self, effect: cm.Effect) -> Sequence[cm.Event]:
        if isinstance(effect, cm.CheckAlive):
            return self._check_alive(effect.seals)
        if isinstance(effect, cm.RecordDecision):
            return self._record()
        if isinstance(effect, cm.RecordRepair):
            self.decision = replace(self.decision, seals=effect.seals, repaired=self.decision.repaired + 1)
            return self._record()
        if isinstance(effect, cm.AskDecision):
            return self._ask_decision()
        if isinstance(effect, cm.EndSlots):
            return self._end(effect.seals)
        if isinstance(effect, cm.ProveSlots):
            return self._prove(effect.seals)
        if isinstance(effect, cm.AbortSlots):
            self._abort(effect.seals)
            return [cm.AbortFinished()]
        if isinstance(effect, cm.RewriteSlots):
            return self._rewrite(effect.lost)
        if isinstance(effect, cm.DropSlots):
            self._drop(effect.seals)
            return []
        raise self._stop(effect)

    # ---- before the decision

    def _check_alive(self, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        crash_points.reached("before-check")
        # Coordinators and leaders are asked at the same time: a commit waits for the slower of them only.
        with ThreadPoolExecutor(1) as beside:
            states = beside.submit(describe_producers, self.cluster, partitions_of(seals))
            views = self.transactions.describe([seal.transactional_id for seal in seals])
            broken = broken_part(seals, states.result())
        for seal in seals:
            view = views[seal.transactional_id]
            if view.state != "Ongoing" or view.identity != seal.identity:
                return self._not_alive(
                    f"slot {seal.slot} is no longer open under {seal.identity} (the coordinator says {view.state} under "
                    f"{view.identity}): it timed out or a newer attempt took it over; nothing of the batch is visible, "
                    "it is done again; raise kafka.transaction.timeout.ms if this repeats",
                    {"slot": seal.slot, "state": view.state},
                )
        if broken is not None:
            return self._not_alive(*broken)
        left_ms = self._deadline.left_ms()
        if left_ms < self._deadline.margin_ms:
            return self._not_alive(
                "too little of the transactions' time is left to decide the batch safely; nothing of it is visible, it "
                "is done again; make batches smaller or raise kafka.transaction.timeout.ms",
                {
                    "left_ms": round(left_ms),
                    "margin_ms": self._deadline.margin_ms,
                    "timeout_ms": self._deadline.timeout_ms,
                },
            )
        return [cm.AllAlive()]

    def _not_alive(self, message: str, facts: dict[str, str | int | float]) -> Sequence[cm.Event]:
        self._failure = TransactionTooOld(message, facts)
        return [cm.NotAlive(message)]

    def _abort(self, seals: Sequence[Seal]) -> None:
        try:
            self.transactions.end_many(_ends(seals, commit=False), deadline_ms=_ABORT_DEADLINE_MS)
            self._clean_up()
        except (BrokerUnavailable, OutcomeUnknown, ProducerFenced) as error:
            # Nothing is decided, so nothing can become visible: what is still open is fenced by the next run.
            log.warning("some transactions of an undecided batch are still open: %s", error)

    # ---- the decision, and its repair

    def _record(self) -> Sequence[cm.Event]:
        producer = self.producer
        crash_points.reached("before-decision")
        try:
            if producer.session.state is not Session.READY:
                # Version 1 gives no fresh epoch with the end: bump it, unless a newer driver has (KIP-360).
                producer.initialize()
            write_decision(producer, self.ledger, self.decision, self._group, self._group_offsets)
        except ExactlyOnceError as error:
            # EndTxn was not sent, so the decision is definitely not made, whatever else is unclear.
            return self._refused(error)
        crash_points.reached("decision-written")
        try:
            producer.commit()
        except OutcomeUnknown as error:
            self._failure = error
            return [cm.DecisionUnanswered(str(error))]
        except ExactlyOnceError as error:
            return self._refused(error)
        crash_points.reached("after-decision")
        return [cm.DecisionDurable()]

    def _refused(self, error: ExactlyOnceError) -> Sequence[cm.Event]:
        self.producer.abort()
        self._failure = error
        return [cm.DecisionRefused(str(error))]

    def _ask_decision(self) -> Sequence[cm.Event]:
        committed = ask_decision(self.cluster, self.ledger, self.producer)
        where = self.ledger.partition
        if committed is None:
            why = self._failure.message if self._failure is not None else "no definite answer"
            raise OutcomeUnknown(
                f"whether the batch is decided cannot be found out now: {why}; no slot was ended; the next run asks again "
                "before it does anything else",
                {
                    "pipeline": self.ledger.pipeline,
                    "producer_id": self.producer.identity.producer_id,
                    "ledger": str(where),
                },
            )
        if committed:
            self._failure = None
            return [cm.DecisionDurable()]
        self._failure = TransactionTooOld(
            "the decision's transaction was aborted by the broker; nothing of the batch is visible, it is done again",
            {"pipeline": self.ledger.pipeline, "ledger": str(where)},
        )
        return [cm.DecisionRefused(self._failure.message)]

    # ---- after the decision

    def _end(self, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        requests = _ends(seals, commit=True)
        crash_points.reached("before-end")
        if crash_points.armed("after-end"):
            answers = []
            for request in requests:
                answers.append(self.transactions.end(request))
                crash_points.reached("after-end")
        else:
            answers = self.transactions.end_many(requests)
        for seal, answer in zip(seals, answers, strict=True):
            if not answer.definite:
                self._count_try(seal, answer)
        self.ended_at = time.perf_counter()
        ended = [seal for seal, answer in zip(seals, answers, strict=True) if answer.definite]
        self._await_markers(ended, commit=True)
        return [
            cm.SlotEnded(seal.slot) if answer.definite else cm.SlotUnanswered(seal.slot)
            for seal, answer in zip(seals, answers, strict=True)
        ]

    def _prove(self, seals: Sequence[Seal]) -> Sequence[cm.Event]:
        verdicts = prove(self.cluster, seals)
        # The coordinator cannot say and no partition has a marker, but everything is there: it is decided, so commit it.
        whole = [
            seal
            for seal in seals
            if verdicts[seal.slot] is cm.Verdict.UNKNOWN and never_ended(self.cluster, seal)
        ]
        if whole:
            self._await_markers(whole, commit=True)
            verdicts |= prove(self.cluster, whole)
        committed = [seal for seal in seals if verdicts[seal.slot] is cm.Verdict.COMMITTED]
        self._await_markers(committed, commit=True)
        return [cm.SlotProven(slot, verdict) for slot, verdict in verdicts.items()]

    def _await_markers(self, seals: Sequence[Seal], *, commit: bool) -> None:
        timeout_ms = round(self._deadline.timeout_ms)
        await_markers(self.cluster, seals, timeout_ms, commit=commit)

    def _count_try(self, seal: Seal, answer: EndAnswer) -> None:
        tries = self._tries[seal.slot] = self._tries.get(seal.slot, 0) + 1
        facts: dict[str, str | int] = {
            "pipeline": self.ledger.pipeline,
            "batch": self.decision.batch_id,
            "slot": seal.slot,
        }
        if answer.code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise AuthorizationFailed(
                f"the batch is decided, but the right to end {seal.transactional_id!r} is gone ({answer.reason}); its "
                "records show when it is ended; grant WRITE on the transactional id prefix and start the query again "
                "before the transaction times out; nothing is skipped",
                facts,
            )
        if tries > _MOST_TRIES:
            raise OutcomeUnknown(
                f"the batch is decided, but ending {seal.transactional_id!r} got no definite answer {tries} times (last: "
                f"{answer.reason}); the next run proves and ends it; nothing is skipped",
                facts,
            )

    def _rewrite(self, lost: Sequence[Seal]) -> Sequence[cm.Event]:
        slots = frozenset(seal.slot for seal in lost)
        log.warning("the broker aborted decided slots %s; they are written again", sorted(slots))
        if self._replay is None:
            return [
                cm.RewriteFailed(
                    f"slots {sorted(slots)} were aborted, and this run cannot replay their batch"
                )
            ]
        # What is left without a marker would be ended, and shown, by the commit of what is written now.
        self._await_markers(lost, commit=False)
        # Where nothing of the batch is committed, its rows may come in other slots than they were decided in.
        all_lost = all(seal.empty or seal.slot in slots for seal in self.decision.seals)
        crash_points.reached("before-rewrite")
        try:
            seals = self._replay(slots | {ALL_OTHERS} if all_lost else slots)
        except BaseException:
            # Every other slot has been ended, so all that is open is what the replay wrote before it failed.
            with contextlib.suppress(ExactlyOnceError):
                self._clean_up()
            raise
        crash_points.reached("after-rewrite")
        return [cm.Rewritten(tuple(seals))]

    def _drop(self, seals: Sequence[Seal]) -> None:
        """Abort what a repair wrote in vain. Those seals alone: others may have been rewritten to be committed."""
        try:
            self.transactions.end_many(_ends(seals, commit=False), deadline_ms=_ABORT_DEADLINE_MS)
        except ExactlyOnceError as error:
            log.warning("some slots that were written again in vain are still open: %s", error)

    def _stop(self, effect: cm.Effect) -> ExactlyOnceError:
        facts: dict[str, str | int | tuple[int, ...]] = {
            "pipeline": self.ledger.pipeline,
            "batch": self.decision.batch_id,
        }
        if isinstance(effect, cm.StopNondeterministic):
            decided, again = effect.decided, effect.replayed
            return NondeterministicPlan(
                f"slot {decided.slot} of a decided batch was aborted (its transaction timed out, or an attempt of a task that "
                "Spark had given up took its id over), and its replay is not what was decided: the query's plan gives other "
                "rows when it runs again (random values, current time, an unordered limit, a changed static table); what of "
                "the batch is committed stays, this slot is not written; make the plan deterministic or restore what it read, "
                "then start the query again",
                {
                    **facts,
                    "slot": decided.slot,
                    "decided_records": decided.records,
                    "replayed_records": again.records if again else None,
                    "decided_digest": f"{decided.digest:016x}",
                    "replayed_digest": f"{again.digest:016x}" if again else None,
                },
            )
        if isinstance(effect, cm.StopSplit):
            return split_differently(effect, facts)
        if isinstance(effect, cm.StopForNow):
            return DecisionBroken(
                "a decided batch is not finished: "
                + effect.reason
                + "; its other slots are committed and nothing is "
                "skipped; start the query again from the same checkpoint, and it goes on with this batch",
                facts,
            )
        assert isinstance(effect, cm.StopBroken)
        lines = [
            f"slot {seal.slot}: {seal.transactional_id}, {seal.identity}, "
            + ", ".join(
                f"{each.topic}-{each.partition} from offset {each.first_offset}" for each in seal.partitions
            )
            for seal in effect.unknown
        ]
        return DecisionBroken(
            "the outcome of decided slots cannot be known: neither the coordinator nor the log can say; the other slots "
            "are committed and nothing is skipped; look at these transactions with Kafka's own tools before the query "
            "is started again:\n" + "\n".join(lines),
            {**facts, "slots": tuple(seal.slot for seal in effect.unknown)},
        )


def _ends(seals: Sequence[Seal], *, commit: bool) -> list[EndRequest]:
    return [
        EndRequest(seal.transactional_id, seal.identity, commit, seal.transaction_version)
        for seal in seals
        if seal.identity is not None
    ]


def split_differently(stop: cm.StopSplit, facts: Mapping[str, Fact]) -> DecisionBroken:
    """What to say where a replay has the decided rows in other slots, and some of the decided ones are committed."""
    decided, replayed = len(stop.decided), len(stop.replayed)
    return DecisionBroken(
        "the broker aborted slots of a decided batch, and its replay has the same rows, split differently: the decision had "
        f"{decided} slots, the replay has {replayed}. Some of the decided slots are committed, so the others can only be "
        "written as they were. Nothing is lost, and what was written again is aborted. Start the query once with what decides "
        f"how its rows are split as it was then: the number of cores (local[{decided}], executors), spark.default.parallelism, "
        "spark.sql.shuffle.partitions, spark.sql.files.maxPartitionBytes and minPartitionNum, or the coalesce or repartition "
        "of the plan; when this batch is finished, go on as you like",
        {**facts, "decided_slots": decided, "replayed_slots": replayed},
    )
