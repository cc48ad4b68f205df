"""One run of one query: takes the pipeline over, shows whether it still owns it, and hands it over to another process.

Owns: the driver's transactional session, the order of a run's start, the newest decision, the clock of a batch.
Does not know: Spark; how a batch is committed, which `per_task` and `whole_batch` do.
Invariants:
- A run fences the older one before it reads the ledger.
- No process initialises a decided slot before its end is proven.
- A run that another process resumes goes on under the identity that it began with, so a process of an older run cannot.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError, ProducerFenced
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.decision import reinitialize_forgotten
from pyspark_kafka_eos.commit.ladder import transaction_class
from pyspark_kafka_eos.commit.ledger.lost import unnamed_commits, with_every_mending
from pyspark_kafka_eos.commit.ledger.notes import Began, Ended
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.markers import Mender
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.start import admission, first_start
from pyspark_kafka_eos.commit.start.hanging import hanging
from pyspark_kafka_eos.model import (
    Basis,
    Decision,
    RowOptions,
    Seal,
    Traffic,
    batch_transactional_id,
    driver_transactional_id,
    planned_ms,
    writing_ids,
)
from pyspark_kafka_eos.model.handed_over import HandedOver
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.dead_letters import require_topic
from pyspark_kafka_eos.slot.plan import TurnsBegin
from pyspark_kafka_eos.version import __version__

log = logging.getLogger(__name__)

DECISION_TIMEOUT_MS = 60_000
"""Transaction timeout of the driver's own transaction, which lasts milliseconds. It bounds how long a dead driver's
open decision holds the ledger's readers; half would abort it during a slow failover."""

TAKE_OVER_MS = 1_000
"""How long a newer run may take from the abort of this run's decision to its own epoch. Its client asks again within
0.1 s. Half would miss one on a slow link; double delays the retry of every batch whose decision timed out.
"""

_SETTLES = 3
"""How often a start looks for a decision without its marker: each time an older run may have decided since. It decides
once in a batch, so a second look finds what the first one was too early for; half is one look, double adds nothing."""

Write = Callable[[frozenset[int] | None], Sequence[Seal]]
"""Runs the batch's tasks, None for all slots, else as `Replay` does; returns the seals."""

CountTasks = Callable[[], int | None]
"""How many tasks Spark ran for the newest `Write`, called after that returns; None where Spark does not report it."""


@dataclass(frozen=True)
class Handover(HandedOver):
    """What the process that ends a batch needs from the one that began it.

    `identity`: the driver's, unused so far; None with the weaker guarantees, where nothing is taken over.
    `began_at`: seconds of this machine's monotonic clock, which its processes share; the batch's transactions
    are not older. `repair`: the only slots that write, because the broker aborted them after the batch was
    decided (with `ALL_OTHERS` where nothing of the batch is committed); None where the batch is not decided.
    `shared`: the identity that all tasks write under, None where each has its own; `turns`: where they take turns then.
    `ends`, `warnings`: what the beginning found, for the decision to record.
    """

    query_id: str
    batch_id: int
    identity: ProducerIdentity | None
    began_at: float
    repair: frozenset[int] | None = None
    shared: ProducerIdentity | None = None
    turns: TurnsBegin | None = None
    ends: tuple[tuple[str, ProducerIdentity], ...] = ()
    warnings: tuple[str, ...] = ()


class Run:
    """One run of one query under one pipeline name. Not for several threads.

    After a failure it is not used again; the next run starts over and proves. The one exception is a batch
    that got too old: then nothing was decided and everything is aborted.
    """

    def __init__(self, cluster: Cluster, options: SinkOptions, query_id: str, before: Run | None = None) -> None:
        """`before`: an earlier run in this process with the same arguments. It is not used any more; this run reads on
        in its ledger."""
        self.cluster = cluster
        self.options = options
        self.query_id = query_id
        self.ledger: Ledger = (
            before.ledger
            if before
            else Ledger(cluster, options.ledger_topic, options.pipeline, fresh=options.ephemeral)
        )
        self.beside: Collection[str] = ()
        """Other pipelines that this run of the query writes."""
        self.offset_log: admission.OffsetLog | None = None
        """What the checkpoint has for earlier batches; None where the caller has no checkpoint."""
        self.transactions = Transactions(cluster)
        known = (before.timeout_ms, before.two_phase) if before else transaction_class(cluster, options)
        self.timeout_ms: int = known[0]
        self.two_phase: bool = known[1]
        self.mender = Mender(cluster, self.ledger, self.timeout_ms, two_phase=self.two_phase)
        self.driver_id = driver_transactional_id(options.pipeline)
        self.newest: Decision | None = None
        """The pipeline's newest decision, once the run has taken it over."""
        self.newest_ended = False
        """Whether every marker of it was seen, by this run or by one that noted it in the ledger: it is not proven
        again.
        """
        self.torn: Mapping[int, frozenset[TopicPartition]] = {}
        """Slot -> the only partitions that the next replay may send to."""
        self.warnings: tuple[str, ...] = ()
        """For the next decision to record."""
        self.asks_anew = False  # whether the next tasks ask for their topics, whatever their workers know
        self._began_at, self._fenced = 0.0, 0
        self._timed_out: ProducerIdentity | None = None
        self.producer = self._new_producer()

    def _new_producer(self, identity: ProducerIdentity | None = None) -> Producer:
        return Producer(
            self.cluster,
            self.driver_id,
            transaction_timeout_ms=min(DECISION_TIMEOUT_MS, self.timeout_ms),
            delivery_timeout_ms=self.options.delivery_timeout_ms,
            identity=identity,
        )

    def forget_epoch(self) -> None:
        """Begin anew: the driver's epoch is spent, and only a start gets another one safely."""
        self.producer = self._new_producer()

    # ---- the start of a run

    def take_over(self, batch_id: int, source_offsets: Sequence[str] | None) -> Mapping[str, int]:
        """Fence the older run, which keeps its zombies out, and read the ledger. The newest decision is then `newest`,
        and still has to be finished. Returns the pipeline's ids that coordinators have, with their producer ids.

        Raises PipelineConflict where continuing would lose or repeat data; nothing is written then.
        """
        if self.options.topic is not None:
            self.cluster.topic(self.options.topic, refresh=True)
        require_topic(self.cluster, self.options.dead_letter_topic)
        self.ledger.prepare()
        # First without fencing: a conflict found here leaves the rightful query running.
        view = self._refuse_displaced(self.ledger.look())
        first, writers = view.newest, admission.warn_of_writers(self.options, view)
        warnings = self._admit(first, batch_id, source_offsets)
        self.mender.finish(view)
        # Before the check for lost decisions: a decision whose marker is missing is not visible either.
        ids, view = self._settled_ids()
        judged = (view.newest,) if view.open is None and self._refuse_lost_ledger(batch_id, ids, view) else None
        driver = self.producer.initialize()
        # A run of scope=batch decides under this id, and takes it only after its own driver's id. An older
        # run that takes it back after this line finds that it no longer owns the driver's id.
        batch = self.transactions.init_producer_id(batch_transactional_id(self.options.pipeline), self.timeout_ms)
        self.require_ownership()
        self.ledger.written_by(driver, batch)
        # From here on no older driver can decide; what the ledger contains now stays true.
        view = self._behind_a_fence()
        if view.newest is None or view.known:
            # What somebody else decides from here on counts for nothing. Beside a decision that is only believed, these
            # are named before this run's own first one.
            self.ledger.name_writers(driver, batch)
        self.newest, self.newest_ended = view.newest, view.ended
        if self.newest != first:
            writers = admission.warn_of_writers(self.options, view)
            warnings = self._admit(self.newest, batch_id, source_offsets)
        if judged != (view.newest,):
            self._refuse_lost_ledger(batch_id, ids, view)
        self.warnings = (
            *warnings,
            *writers,
            *admission.warn_of_another_topic(self.options, self.newest),
            *first_start.warn_of_gap(self.options, self.query_id, self.newest, batch_id, source_offsets, self.cluster),
        )
        return ids

    def _settled_ids(self) -> tuple[dict[str, int], LedgerView]:
        """The pipeline's ids, and the ledger with no decision that lacks its marker, as far as that can be had: an
        older run may decide meanwhile, and what shows the outcome is gone once this run has the driver's id.
        """
        for _ in range(_SETTLES):
            self.mender.settle_decision(self.driver_id, self.options.offsets_group)
            ids = self._slot_ids()
            view = self.ledger.look()
            if view.open is None:
                break
        return ids, view

    def _refuse_displaced(self, view: LedgerView) -> LedgerView:
        admission.refuse_displaced(self.options, view)
        return view

    def _admit(self, newest: Decision | None, batch_id: int, offsets: Sequence[str] | None) -> tuple[str, ...]:
        return admission.admit(self.options, self.query_id, newest, batch_id, offsets, self.offset_log)

    def _refuse_lost_ledger(self, batch_id: int, ids: Mapping[str, int], before: LedgerView) -> bool:
        """Refuse where the coordinators or the batch id show that the ledger lacks decisions. Keeps what both say of
        each id's last commit.
        `before`: the ledger's last look. False, with nothing judged, where an older driver has decided a batch since
        then.
        """
        begins = before.newest is None and not self.options.ephemeral
        asked = [*sorted(ids), *([self.driver_id] if begins else [])]
        for sure in (False, True):
            # A first start goes by what the coordinators do not know.
            views = self.transactions.describe(asked, sure=sure or begins) if asked else {}
            shown = {name: views[name].identity for name in ids if views[name].state == "CompleteCommit"}
            # The newest decision is the same before and after the coordinators' answers. An older driver that is
            # still at work decides before it ends, and its next decision does not name what it ended before that.
            after = self.ledger.look()
            if after.newest != before.newest:
                return False
            # A coordinator that was replaced shows an earlier commit than the newest decision names.
            if not unnamed_commits(after, shown):
                break
        known = [name for name in asked if name in ids or views[name].state != "NotFound"]
        after = with_every_mending(self.ledger, after, shown)
        admission.refuse_lost_ledger(self.options, after, batch_id, shown)
        if not self.options.ephemeral:
            now, offset_log = Began(self.query_id, batch_id), self.offset_log
            first_start.admit(self.ledger, self.options, now, after, known, self.beside, offset_log)
        self.ledger.last_commits = after.last_commits | shown
        return True

    def fence_leftovers(self) -> None:
        """Abort the transactions that earlier runs left open under this pipeline's slots: they would block readers at
        their offsets.
        """
        ids = self._slot_ids(["Ongoing"])
        if ids:
            log.info("aborting what an earlier run left open under %d ids, from %s on", len(ids), min(ids))
            self._fenced += len(self.transactions.fence(ids, self.timeout_ms))

    def clear_hanging(self, ids: Mapping[str, int] | None = None) -> None:
        """Abort transactions of undecided batches that brokers left without a marker.

        The next marker of the same producer id would end them too: a commit would make their records visible beside the
        rewritten ones.
        """
        ids = self._slot_ids() if ids is None else ids
        for transactional_id, parts in hanging(self.cluster, self.options.topic, self.newest, ids).items():
            self.mender.write_markers(transactional_id, parts, commit=False)

    def _slot_ids(self, states: Sequence[str] = ()) -> dict[str, int]:
        return admin.list_transactions(self.cluster, states, writing_ids(self.options.pipeline))

    # ---- who owns the pipeline

    def clean_up(self) -> None:
        """After a batch was given up: abort what else its tasks left open, unless a newer run owns that by now."""
        if not self.fenced_by_timeout():
            self.require_ownership()
        self.fence_leftovers()

    def fenced_by_timeout(self) -> bool:
        """Whether the timeout of the driver's own transaction raised its epoch, rather than a newer run."""
        mine = self.producer.session.identity
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
        mine = self.producer.session.identity
        view = self.transactions.describe([self.driver_id], sure=True)[self.driver_id]
        raised = mine is not None and view.identity == replace(mine, epoch=mine.epoch + 1)
        return raised and view.state == "CompleteAbort"

    def require_ownership(self) -> None:
        """ProducerFenced where a newer run has taken the pipeline over."""
        mine = self.producer.session.identity
        view = self.transactions.describe([self.driver_id], expected=lambda view: view.identity == mine)[self.driver_id]
        if mine is not None and view.state == "NotFound":
            reinitialize_forgotten(self.producer, self.ledger, self.newest)
        elif mine is not None and view.identity != mine:
            raise ProducerFenced(
                f"a newer run has taken over pipeline {self.options.pipeline!r} (the driver's id is at {view.identity}, "
                f"this run has {mine}); this one stops, and what it had open is aborted",
                {"pipeline": self.options.pipeline, "transactional_id": self.driver_id},
            )

    # ---- from one process to another

    def hand_over(
        self,
        batch_id: int,
        repair: frozenset[int] | None,
        shared: ProducerIdentity | None,
        turns: TurnsBegin | None,
    ) -> Handover:
        """The hand-over to the process that ends the batch. Call it after the batch is planned; this run is done
        then.
        """
        ends = tuple(sorted(self.ledger.last_commits.items()))
        return Handover(
            self.query_id, batch_id, self.producer.identity, self._began_at, repair, shared, turns, ends, self.warnings
        )  # fmt: skip

    def resume(self, handover: Handover) -> None:
        """Become the run that began the batch; ProducerFenced where another has begun since."""
        assert handover.identity is not None
        self._adopt(handover.identity, handover)
        self.read_newest()

    def fence_and_resume(self, handover: Handover) -> None:
        """Become that run as `resume` does, and fence any process of it that may be committing the batch. The newest
        decision is to be read afterwards.
        """
        assert handover.identity is not None
        try:
            bumped = self.transactions.init_producer_id(
                self.driver_id, self.producer.transaction_timeout_ms, handover.identity
            )
        except ProducerFenced:
            # If that process had its decision open, this request aborted it and was refused for its epoch. A newer run
            # would have left another state: it initialises first, and aborts only what it gives up itself.
            view = self.transactions.describe([self.driver_id])[self.driver_id]
            mine = view.identity.producer_id == handover.identity.producer_id
            if not mine or view.state != "CompleteAbort":
                raise
            bumped = view.identity
        # Two processes that send the same identity get the same answer: only one more bump separates them.
        self._adopt(bumped, handover)

    def _adopt(self, identity: ProducerIdentity, handover: Handover) -> None:
        self.producer = self._new_producer(identity)
        self.producer.initialize()
        self._began_at = handover.began_at
        self.ledger.last_commits, self.warnings = dict(handover.ends), handover.warnings

    def read_newest(self) -> None:
        """Read the newest decision; what an older process has open by then is ended first."""
        view = self._behind_a_fence()
        self.newest, self.newest_ended = view.newest, view.ended

    def _behind_a_fence(self) -> LedgerView:
        """The ledger where no older driver can decide any more."""
        # An older one may have decided until the fence, at a leader that took the place of the one that is known.
        self.ledger.find_leaders()
        return self._refuse_displaced(self.ledger.settled())

    def decided(self, batch_id: int) -> Decision | None:
        """The decision of this batch, where it is the newest one and of this query."""
        last = self.newest
        mine = last is not None and (last.query_id, last.batch_id) == (self.query_id, batch_id)
        return last if mine else None

    # ---- one batch

    def start_clock(self) -> None:
        """The transactions of the batch are not older than this moment."""
        self._began_at = runtime.monotonic()

    def left_ms(self) -> float:
        """Milliseconds until the batch's transactions time out; infinite where they have no timeout."""
        # From before the tasks began, so never later than the coordinator's own start, whatever other machines' clocks
        # show.
        if self.two_phase:
            return math.inf
        return self.timeout_ms - (runtime.monotonic() - self._began_at) * 1000

    def narrow_repair(self, torn: Mapping[int, frozenset[TopicPartition]]) -> None:
        """Let the next replay's slots send to these partitions only: their records in the others are committed."""
        self.torn = dict(torn)

    def decision(self, batch_id: int, seals: Sequence[Seal], source_offsets: Sequence[str]) -> Decision:
        """The record that decides a batch with these seals."""
        self.ledger.written_by(self.producer.session.identity)
        return Decision(
            pipeline=self.options.pipeline,
            query_id=self.query_id,
            batch_id=batch_id,
            seals=tuple(sorted(seals, key=lambda seal: seal.slot)),
            source_offsets=tuple(source_offsets),
            planned_ms=planned_ms(source_offsets),
            decided_ms=int(runtime.time() * 1000),
            connector_version=__version__,
            earlier=self.ledger.earlier(seals),
            writers=self.ledger.writers,
            number=(self.newest.number if self.newest is not None else 0) + 1,
            warnings=(*self.warnings, *admission.warn_of_expired(seals)),
            traffic=Traffic.of_all(seal.traffic for seal in seals),
            sticky_bytes=self.options.sticky_bytes,
            basis=Basis.of_all(seal.basis for seal in seals),
            row_options=RowOptions.from_settings(self.options),
        )

    def note_end(self, decision: Decision, began: float, ended_at: float, *, resumed: bool) -> CommitReport:
        """Keep the decision as the newest one and note in the ledger that every transaction of its batch is ended, so
        that no later run proves it again. Returns the report. `began`, `ended_at`: seconds of `runtime.perf_counter`, 0
        for now.
        """
        self.newest, self.newest_ended, self.asks_anew = decision, True, False
        report = self.report(decision, began, ended_at, resumed=resumed)
        try:
            if self.options.ephemeral:
                # No later run uses this name, so the ledger need not keep anything of it.
                self.ledger.forget()
            else:
                self.ledger.note(Ended.of_decision(decision, self.producer.session.identity))
        except ExactlyOnceError as error:
            # Without the note the next run proves the batch once more.
            log.warning("batch %d is ended, but the ledger has no note of it: %s", decision.batch_id, error)
        return report

    def report(self, decision: Decision, began: float, ended_at: float, *, resumed: bool) -> CommitReport:
        """What the commit of a batch did."""
        fenced, self._fenced = self._fenced, 0
        return CommitReport.of_decision(decision, began, ended_at, self.left_ms(), fenced, resumed=resumed)


__all__ = ["DECISION_TIMEOUT_MS", "CommitReport", "CountTasks", "Handover", "Run", "Write"]
