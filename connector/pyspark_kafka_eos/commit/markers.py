"""Hanging transactions (KIP-664): complete for the coordinator, with markers missing in some partitions.

Owns: finding them, and having the coordinator write the missing markers.
Does not know: whether a batch is decided; the caller chooses between commit and abort.
Invariants:
- Nothing here ends a transaction that the coordinator still has open under the sealed identity, or is completing.
- The markers are written by a new transaction of the same id over the same partitions, so no right other than that of
  writing is needed.
- A marker that is merely late is waited for.
- A mending that commits is noted in the ledger before it holds anything. So the next process that looks
  commits everything open under the noted identity, no matter which process began the mending.

The cause: a coordinator completes a transaction while its broker has no leaders for the partitions in its
metadata yet ("likely deleted already and hence can be skipped"). It writes no marker there and marks the
transaction as complete. Seen on 3.9.1 and 4.3.1 after SIGKILL and restart of a broker. The records then are
neither visible nor aborted: they hold the last stable offset indefinitely, and the next marker of the same
producer id, whatever its transaction, ends them too.

A mending whose process stops and that no other process completes is aborted by its timeout, together with the records
that it was to commit. The proof of the batch finds that abort in each partition's log, and only these partitions are
rewritten.

A transactional id that expired, or whose epochs ran out, gets another producer id. No client can
then write the missing marker: see `stops.stranded`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from kafka_core import runtime
from kafka_core.errors import AuthorizationFailed, OutcomeUnknown
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.every_broker import ask_every_broker
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.requests.ends import EndRequest
from pyspark_kafka_eos.client.requests.producer_states import States
from pyspark_kafka_eos.client.requests.transactions import Transactions, TransactionView
from pyspark_kafka_eos.commit.ledger.notes import Ended, Mending, Settled
from pyspark_kafka_eos.commit.ledger.reader import LedgerRecord, LedgerView
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.open_parts import open_parts, partitions_of, states_of
from pyspark_kafka_eos.commit.proof import prove
from pyspark_kafka_eos.commit.stops import RETRIED, stranded
from pyspark_kafka_eos.model import Decision, Seal, batch_transactional_id

log = logging.getLogger(__name__)

UNSETTLED = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States in which the coordinator itself still has something to end or to write."""

_SETTLE_MS = 30_000
"""How long to wait for markers on their way: they take milliseconds; a coordinator that moves takes some seconds."""

_FIRST_PAUSE_MS = 1.0
_LONGEST_PAUSE_MS = 100.0


# ---- mending


class Mender:
    """Has missing markers written, on behalf of one pipeline. Stateless except for its settings."""

    def __init__(self, cluster: Cluster, ledger: Ledger, timeout_ms: int, *, two_phase: bool = False) -> None:
        """`two_phase`: the transactions that write markers have no timeout (KIP-939), so none is lost between two
        runs.
        """
        self._cluster = cluster
        self._ledger = ledger
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        self._transactions = Transactions(cluster)

    def finish(self, view: LedgerView) -> None:
        """Commit the mendings noted in the ledger that earlier processes left open."""
        noted = {note.transactional_id: note for note in view.unfinished}
        if not noted:
            return
        for name, found in self._transactions.describe(sorted(noted), sure=True).items():
            if self._is_noted(found, noted):
                log.warning(
                    "an earlier process began to write the missing markers of %s; they are committed now",
                    name,
                )
                self._end(name, found.identity, commit=True)

    @staticmethod
    def _is_noted(found: TransactionView, noted: Mapping[str, Mending]) -> bool:
        note = noted.get(found.transactional_id)
        return note is not None and found.is_open_under(note.identity)

    def await_markers(self, seals: Sequence[Seal], *, commit: bool) -> bool:
        """Return when no partition has these ended transactions open any more;
        write the markers that the broker did not. True where something was sent:
        an id has a new epoch since, and the outcome has to be proven again.

        The coordinator has reported each one as committed (`commit`) or aborted. Returns at once where the right to
        look (READ on the topics) is missing. OutcomeUnknown where the markers do not appear, DecisionBroken where no
        client can write them.
        """
        left = [seal for seal in seals if seal.identity is not None]
        deadline, pause, mended = runtime.monotonic() + _SETTLE_MS / 1000, _FIRST_PAUSE_MS, set[int]()
        views: dict[str, TransactionView] = {}
        sure = False
        while left:
            states = states_of(self._cluster, partitions_of(left), left)
            if states is None:
                log.info("no right to describe producers: every marker is assumed to be written, unchecked")
                break
            parts = open_parts(left, states)
            left = [seal for seal in left if seal.slot in parts]
            if not left:
                break
            if runtime.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"the transaction of slot {left[0].slot} is ended, but its marker does not appear in "
                    f"{next(iter(parts[left[0].slot]))}; nothing is skipped; the next run looks again",
                    {
                        "transactional_id": left[0].transactional_id,
                        "slots": tuple(seal.slot for seal in left),
                    },
                )
            # The coordinators' answers are older than the leaders'. In the other order, markers that are written in
            # between would look as if they were missing.
            missing = [
                seal
                for seal in left
                if seal.transactional_id in views
                and seal.slot not in mended
                and not _at_work(views[seal.transactional_id], seal)
            ]
            for seal in missing if sure else ():
                assert seal.identity is not None
                if not self._mend(seal, views[seal.transactional_id], parts[seal.slot], commit):
                    raise stranded(seal.transactional_id, seal.identity, parts[seal.slot])
                mended.add(seal.slot)
            self._cluster.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_MS)
            # A coordinator that was replaced does not know of the transaction, a leader that was not of its marker.
            sure = bool(missing)
            if sure:
                ask_every_broker(self._cluster, {where.topic for where in partitions_of(missing)})
            views = self._transactions.describe([seal.transactional_id for seal in left], sure=sure)
        return bool(mended)

    def _mend(self, seal: Seal, view: TransactionView, partitions: Collection[TopicPartition], commit: bool) -> bool:
        """Have the missing markers of a slot written; False where its id has another producer id by now."""
        assert seal.identity is not None
        owner = seal.identity.producer_id
        if view.identity.producer_id != owner:
            return False
        if view.state == "Ongoing":
            noted = self._ledger.look().mendings
            if commit and self._is_noted(view, noted):
                self._end(seal.transactional_id, view.identity, commit=True)
                return True
            # This is a late attempt of a task, which Spark does not count; the mending's new epoch fences it. Where it
            # wrote to the same partition, its abort ends the sealed records there too, which the next proof finds.
            log.warning("%s is open under %s, which is not of this batch", seal.transactional_id, view.identity)
        return self.write_markers(seal.transactional_id, partitions, commit=commit, owner=owner)

    def write_markers(
        self,
        transactional_id: str,
        partitions: Collection[TopicPartition],
        *,
        commit: bool,
        group: str | None = None,
        owner: int | None = None,
    ) -> bool:
        """Have markers written to partitions (and to a group's offsets), ending what the id's producer has open there.
        False, with no marker written, where the id no longer has the producer id `owner`, which has it open.

        OutcomeUnknown where the end got no definite answer.
        `finish` completes a commit that stopped in the middle.
        """
        log.warning(
            "the broker left the transaction of %s without a marker in %s; it is %s now",
            transactional_id,
            ", ".join(map(str, sorted(partitions))) or "its group",
            "committed" if commit else "aborted",
        )
        crash_points.reached("before-mend")
        identity = self._transactions.init_producer_id(transactional_id, self._timeout_ms, two_phase=self._two_phase)
        crash_points.reached("mend-initialized")
        if owner not in (None, identity.producer_id):
            return False
        if commit:
            self._ledger.note(Mending(transactional_id, identity, tuple(sorted(partitions))))
        # An empty transaction over partitions exists in the classic class only: version 2 adds a partition by writing
        # to it. The note's own partition is among them: its marker shows how the mending ended, also where the others
        # are gone by then (`noted_fates`).
        marked = {*partitions, self._ledger.home} if commit and partitions else {*partitions}
        if marked:
            self._transactions.add_partitions(transactional_id, identity, marked)
        if group:
            self._transactions.add_offsets(transactional_id, identity, group)
        crash_points.reached("mend-added")
        self._end(transactional_id, identity, commit=commit)
        crash_points.reached("mend-ended")
        return True

    def _end(self, transactional_id: str, identity: ProducerIdentity, *, commit: bool) -> None:
        if commit:
            self._ledger.left_at(transactional_id, identity)
        answer = self._transactions.end(EndRequest(transactional_id, identity, commit, transaction_version=1))
        if not answer.definite:
            raise OutcomeUnknown(
                f"writing missing markers of {transactional_id!r} got no definite answer ({answer.reason}); the next run looks "
                "again",
                {"transactional_id": transactional_id, "producer": str(identity)},
            )

    # ---- a decision without a marker

    def settle_decision(self, driver_id: str, group: str) -> None:
        """End a decision that the broker left without a marker, before a new driver's epoch erases the evidence of it.

        It is committed where the coordinator, a note or any of its slots shows a commit: slots are ended only after the
        decision. Otherwise it is aborted, which is safe: none of it is visible. A transaction that the coordinator
        itself still has to end is left to the coordinator, whether it holds the next decision or, with scope=batch, a
        try of the next batch: whatever marker ends that one ends both, and the note keeps the older decision.
        """
        view = self._ledger.look()
        if view.open is None:
            if view.newest is not None:
                self._settle_offsets(view.newest, driver_id, group)
            return
        whole = batch_transactional_id(self._ledger.pipeline)
        views = self._transactions.describe([driver_id, whole], sure=True)
        # Read again after the coordinator's answer: a marker that was written meanwhile is not missing.
        view = self._ledger.look()
        if view.open is None:
            return
        decision = self._ledger.decision(view.open)
        name = whole if decision.in_one_transaction else driver_id
        busy = views[name].state in UNSETTLED
        # Also of one that the coordinator still has to end, ends and slots show that it was made: with transaction
        # version 1 an AddPartitionsToTxn that the network delivers late opens the decision's transaction again.
        decided = {each.offset: self.is_decided(each, view, views[name]) for each in view.all_open}
        # Noted first: a timeout may abort the mending transaction, and the decision's own record with it.
        for each in view.all_open:
            if decided[each.offset] and not (view.settled and each == view.open):
                self._note_settled(each)
        if busy:
            return
        crash_points.reached("decision-settled")
        # One marker ends all of them. Where one is not decided, the notes keep those that are. With scope=batch the
        # records are in the same transaction, and the check before a decision lets none stand behind another.
        commit = decided[view.open.offset] and (decision.in_one_transaction or all(decided.values()))
        owner = view.open.identity
        assert owner is not None
        parts = {view.open.where: view.open.offset, **self._open_with(decision)}
        written = self.write_markers(name, parts, commit=commit, group=group, owner=owner.producer_id)
        # Where the decision is made, its note stands for the marker.
        if not written and not commit:
            raise stranded(name, owner, parts, RETRIED)

    def _settle_offsets(self, newest: Decision, driver_id: str, group: str) -> None:
        """Have the group's marker written where the broker left only that one out: the offsets stay pending, and
        the abort of a later decision would drop them."""
        try:
            if not Offsets(self._cluster).unstable(group):
                return
            name = batch_transactional_id(self._ledger.pipeline) if newest.in_one_transaction else driver_id
            state = self._transactions.describe([name], sure=True)[name].state
            # Asked again after the coordinator's answer: a marker that was written meanwhile is not missing.
            if state in ("CompleteCommit", "CompleteAbort") and Offsets(self._cluster).unstable(group):
                self.write_markers(name, (), commit=state == "CompleteCommit", group=group)
        except AuthorizationFailed as error:
            log.info("whether offsets of group %s lack their marker is unchecked: %s", group, error)

    def is_decided(self, record: LedgerRecord, view: LedgerView, coordinator: TransactionView) -> bool:
        """Whether a note, the coordinator or a slot shows that a decision without a marker is made."""
        decision = self._ledger.decision(record)
        return (
            (record == view.open and view.settled)
            or Ended.of_decision(decision) in view.ends
            or self._shown(decision, self._before(record, view))
            or _says_committed(coordinator, record)
        )

    def _note_settled(self, record: LedgerRecord) -> None:
        assert record.identity is not None
        self._ledger.note(Settled(record.offset, record.identity, self._ledger.decision(record)), record.where)

    def misses_marker(self, transactional_id: str, producer_id: int, states: States | None) -> bool:
        """Whether the ledger has an ended transaction of this producer open: the broker left a decision without
        its marker. A marker that is merely late is waited for. `states`: as the leaders reported them before
        the producer's next decision; None where the right to look is missing.
        """
        deadline, pause, ended = runtime.monotonic() + _SETTLE_MS / 1000, _FIRST_PAUSE_MS, False
        sure = False
        while states is not None:
            state = states.get(self._ledger.partition, {}).get(producer_id)
            if state is None or state.open_from < 0:
                return False
            if ended or runtime.monotonic() > deadline:
                if sure:
                    return True
                # A leader that was replaced does not have the marker, such a coordinator shows the end before.
                sure = True
                ask_every_broker(self._cluster, {self._ledger.partition.topic})
            # Asked before the leader: in the other order, a marker that is written in between would look missing.
            # Ongoing is the next transaction, which begins behind the last one's markers.
            view = self._transactions.describe([transactional_id], sure=sure)[transactional_id]
            ended = view.state == "Ongoing" or view.state not in UNSETTLED
            if not ended:
                self._cluster.pause(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_MS)
            states = states_of(self._cluster, [self._ledger.partition])
        return False

    def _before(self, record: LedgerRecord, view: LedgerView) -> list[Decision]:
        """The decisions that stand before an open one in the ledger, as far as the view has them."""
        open_ = [(each.offset, self._ledger.decision(each)) for each in view.all_open]
        before = [decision for offset, decision in open_ if offset < record.offset]
        # A note may make an open decision the newest; then it has its place among those.
        if view.newest is not None and all(view.newest != decision for _, decision in open_):
            before.append(view.newest)
        return before

    def _shown(self, decision: Decision, before: Sequence[Decision]) -> bool:
        # A slot's commit shows the first decision that names its transaction. A repair names also those of the slots
        # that it keeps, which were committed before it was written.
        kept = {seal.identity for each in before for seal in each.seals}
        seals = [seal for seal in decision.seals if seal.identity is not None and seal.identity not in kept]
        return any(
            proof.verdict is Outcome.COMMITTED or proof.lost
            for proof in prove(self._cluster, seals, look=self._ledger.look_anew).values()
        )

    def _open_with(self, decision: Decision) -> dict[TopicPartition, int]:
        """Where else the decision's own transaction is open: with scope=batch in the records' partitions, from these
        offsets on.
        """
        if not decision.in_one_transaction:
            return {}
        seals = [seal for seal in decision.seals if seal.identity is not None]
        states = states_of(self._cluster, partitions_of(seals), seals) or {}
        return {where: at for parts in open_parts(seals, states).values() for where, at in parts.items()}


def _at_work(view: TransactionView, seal: Seal) -> bool:
    """Whether the coordinator is still ending the sealed transaction or writing the id's last markers."""
    return view.state in UNSETTLED and (view.state != "Ongoing" or view.identity == seal.identity)


def _says_committed(view: TransactionView, record: LedgerRecord) -> bool:
    """Whether the coordinator's last transaction is that of the record, and committed."""
    identity = record.identity
    if identity is None or view.identity.producer_id != identity.producer_id:
        return False
    # Version 2 ends a transaction under the next epoch.
    return view.state == "CompleteCommit" and view.identity.epoch - identity.epoch in (0, 1)
