"""The outcome of a sealed transaction, from the coordinator first, then from the log of every partition.

Owns: reading an outcome out of DescribeTransactions, and out of what the logs show (`fates`).
Does not know: what follows from an outcome.
Invariants:
- COMMITTED and ABORTED are returned only where a marker, or a coordinator's state that can mean nothing else,
  proves them. Everything else is OPEN, GONE or UNKNOWN.
- A transaction that is committed in one partition and aborted in another is ABORTED with the lost partitions named,
  never COMMITTED.
Sources: KIP-98 (control markers), KIP-664 (DescribeTransactions), KIP-890 (the epoch rises with the end in version 2).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_core import runtime
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.every_broker import ask_every_broker
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.requests.transactions import Transactions, TransactionView
from pyspark_kafka_eos.commit.fates import Fate, fate_of, fates_of, lacking, places_of
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.noted_fates import Look, by_the_notes
from pyspark_kafka_eos.commit.open_parts import lost_parts, partitions_of, removed_parts, states_of
from pyspark_kafka_eos.model import Decision, Seal
from pyspark_kafka_eos.options import SinkOptions

log = logging.getLogger(__name__)

_COMMITTED = frozenset({"PrepareCommit", "CompleteCommit"})
_PREPARING = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})

_SETTLE_MS = 30_000
"""How long to wait for a transaction that is being completed: markers take milliseconds; a coordinator that moves takes
some seconds. Half would give up during a slow failover; double keeps an operator waiting without gain.
"""


@dataclass(frozen=True)
class Proof:
    """The verdict on one seal. `lost`: partitions where its records are aborted although they are committed elsewhere
    (the transaction that was to write its missing markers timed out, or an election lost them); the verdict is ABORTED
    then. Empty where it is committed nowhere. `forgotten`: UNKNOWN permanently, because the coordinator is done with it
    and its records are gone. `unseen`: its coordinator has it open, and a partition does not have all of it any more:
    an election lost records, they were removed, or their topic was recreated. Nothing of it was ever visible and a
    commit would show a part, so the verdict is ABORTED, and it is to be aborted. `gone`, `removed`, `doubtful`:
    partitions of which no log says whether the records were ever visible, as their fates of those names; where another
    partition shows a commit the verdict is COMMITTED all the same, but for doubtful ones.
    """

    verdict: Outcome
    lost: frozenset[TopicPartition] = frozenset()
    forgotten: bool = False
    unseen: bool = False
    gone: frozenset[TopicPartition] = frozenset()
    removed: frozenset[TopicPartition] = frozenset()
    doubtful: frozenset[TopicPartition] = frozenset()


def prove(
    cluster: Cluster,
    seals: Sequence[Seal],
    settle_ms: int = _SETTLE_MS,
    by_log: Collection[int] = (),
    look: Look | None = None,
) -> dict[int, Proof]:
    """The proof on each seal, by slot. Empty seals have no transaction and must not be passed. `by_log`: of these slots
    a coordinator's word that they are committed is not enough, because it says so also of records that an election has
    lost. `look`: at the ledger, whose notes say more where a log is gone. BrokerUnavailable where nobody answers who
    can know.
    """
    transactions = Transactions(cluster)
    proofs: dict[int, Proof] = {}
    deadline = runtime.monotonic() + settle_ms / 1000
    waiting = list(seals)
    doubted: set[int] = set()
    while waiting:
        views = transactions.describe([seal.transactional_id for seal in waiting], sure=True)
        again: list[Seal] = []
        anew: list[Seal] = []
        verdicts = {seal.slot: _by_coordinator(views[seal.transactional_id], seal) for seal in waiting}
        unproven = [
            seal
            for seal in waiting
            if verdicts[seal.slot] is Outcome.UNKNOWN
            or (verdicts[seal.slot] is Outcome.COMMITTED and seal.slot in by_log)
        ]
        fates = fates_of(cluster, unproven)
        if look is not None:
            # One look behind all fates: it asks every broker.
            once = functools.cache(look)
            fates |= {seal.slot: by_the_notes(cluster, once, seal, fates[seal.slot]) for seal in unproven}
        for seal in waiting:
            proof = Proof(verdicts[seal.slot])
            if seal.slot in fates:
                proof = judge(fates[seal.slot])
                if proof.verdict is Outcome.UNKNOWN and verdicts[seal.slot] is Outcome.COMMITTED:
                    # Its records are there and the marker is on its way or missing, or retention has removed them.
                    proof = Proof(Outcome.COMMITTED)
            settling = views[seal.transactional_id].state in _PREPARING
            if settling:
                proof = replace(proof, forgotten=False)
            if proof.verdict is Outcome.UNKNOWN and settling and runtime.monotonic() < deadline:
                again.append(seal)
            elif (
                proof.verdict is Outcome.UNKNOWN
                and seal.slot not in doubted
                and _lacks_an_end(fates.get(seal.slot, {}))
            ):
                # A leader that was cut off since the seal does not have what has ended it.
                doubted.add(seal.slot)
                anew.append(seal)
            else:
                proofs[seal.slot] = proof
        if anew:
            ask_every_broker(cluster, {where.topic for where in partitions_of(anew)})
        elif again:
            cluster.pause()
        waiting = again + anew
    opened = [seal for seal in seals if proofs[seal.slot].verdict is Outcome.OPEN]
    return proofs | _lost_while_open(cluster, opened, settle_ms, look) if opened else proofs


def led_anew(cluster: Cluster, seals: Sequence[Seal], before: Mapping[TopicPartition, int] | None = None) -> set[int]:
    """The slots with a partition whose leader was elected after their records were seen there: `before` has the
    leaders' epochs of that look, and without it they were seen when they were sealed. Asks nothing."""
    return {
        seal.slot
        for seal in seals
        for where, known in places_of([seal]).items()
        if cluster.leader_epoch(where) > (before or {}).get(where, known.leader_epoch)
    }


def _lost_while_open(cluster: Cluster, seals: Sequence[Seal], settle_ms: int, look: Look | None) -> dict[int, Proof]:
    """The proofs of slots whose coordinator has the transaction open while a partition has lost some of its records."""
    states = states_of(cluster, partitions_of(seals), seals)
    there = absence.existing(cluster, places_of(seals)) if states is None else set(states)
    gone = {seal.slot: sorted(partitions_of([seal]) - there) for seal in seals}
    removed = removed_parts(cluster, seals, there)
    lost = {seal.slot: lost_parts(seal, states) for seal in seals} if states is not None else {}
    suspects = [seal for seal in seals if lost.get(seal.slot) or seal.slot in removed or gone[seal.slot]]
    if not suspects:
        return {}
    # Asked once more behind the leaders' answers: what was ended in between is open nowhere either.
    views = Transactions(cluster).describe([seal.transactional_id for seal in suspects], sure=True)
    opened = [seal for seal in suspects if _by_coordinator(views[seal.transactional_id], seal) is Outcome.OPEN]
    proofs: dict[int, Proof] = {}
    for seal in opened:
        places = removed.get(seal.slot)
        why = "retention or DeleteRecords removed them while their transaction was open"
        if gone[seal.slot]:
            places, why = (
                gone[seal.slot],
                "the topic was deleted or recreated while their transaction was open",
            )
        if not places:
            # The question about producers carries no epoch, so whoever was asked may not be the leader that the
            # metadata name. A Fetch does.
            places, why = lacking(cluster, seal, lost[seal.slot]), "an election lost them before their commit"
        if places:
            log.warning(
                "records of slot %d are no longer in %s: %s; none of the slot was visible, and it counts as aborted",
                seal.slot,
                ", ".join(map(str, places)),
                why,
            )
            proofs[seal.slot] = Proof(Outcome.ABORTED, unseen=True)
    moved = [seal for seal in suspects if seal not in opened]
    return proofs | prove(cluster, moved, settle_ms, look=look)


def _by_coordinator(view: TransactionView, seal: Seal) -> Outcome:
    identity = seal.identity
    assert identity is not None
    same_id = view.identity.producer_id == identity.producer_id
    if same_id and view.identity.epoch == identity.epoch:
        if view.state == "Ongoing":
            return Outcome.OPEN
        if view.state in _COMMITTED:
            # One identity carries one transaction, so this end belongs to the sealed one.
            return Outcome.COMMITTED
        if view.state == "CompleteAbort":
            return Outcome.ABORTED
    # Version 2 ends a transaction under the next epoch, which carries nothing else before it is ended in turn.
    ended_here = seal.transaction_version >= 2 and same_id and view.identity.epoch == identity.epoch + 1
    if ended_here and view.state in _COMMITTED:
        return Outcome.COMMITTED
    # On version 1 the next epoch may have carried another transaction, whose abort this would be.
    if ended_here and view.state == "CompleteAbort":
        return Outcome.ABORTED
    return Outcome.UNKNOWN


def _lacks_an_end(fates: Mapping[TopicPartition, Fate]) -> bool:
    return not {Fate.NO_MARKER, Fate.UNKNOWN}.isdisjoint(fates.values())


def judge(fates: Mapping[TopicPartition, Fate]) -> Proof:
    """The proof that the fates of a transaction's partitions amount to. The coordinator writes the same marker to all;
    they differ only where it forgot some and a later transaction of the same producer ended those, or where an election
    lost what was written. What was lost and is shown as committed nowhere counts as aborted: the log is what readers
    see, so it is written again.
    """
    found = set(fates.values())
    lost = frozenset(where for where, fate in fates.items() if fate in (Fate.ABORTED, Fate.LOST))
    said = Proof(
        Outcome.UNKNOWN,
        forgotten=Fate.NO_MARKER not in found,
        gone=_with(fates, Fate.GONE),
        removed=_with(fates, Fate.REMOVED),
        doubtful=_with(fates, Fate.DOUBTFUL),
    )
    if not found:
        return Proof(Outcome.GONE)
    if Fate.DOUBTFUL in found:
        return said
    if Fate.COMMITTED in found:
        # One end for all partitions; where a marker was missing, a note names the partition, and it would be doubtful.
        return Proof(Outcome.ABORTED, lost) if lost else replace(said, verdict=Outcome.COMMITTED, forgotten=False)
    if Fate.ABORTED in found or (lost and not found & {Fate.UNKNOWN, Fate.REMOVED}):
        return Proof(Outcome.ABORTED)
    return said


def _with(fates: Mapping[TopicPartition, Fate], wanted: Fate) -> frozenset[TopicPartition]:
    return frozenset(where for where, fate in fates.items() if fate is wanted)


def verdict_on(decision: Decision, proof: Proof, options: SinkOptions | None = None) -> Outcome:
    """The verdict that a run acts on, given the proof of a decided slot. `options`: the run's own, by which somebody
    may have confirmed something.

    In one transaction with the decision, a decided slot is committed, even where the log no longer shows that; but
    where its marker was missing in a partition, only what shows that marker counts.
    """
    confirmed = options is not None and options.adopt_checkpoint
    verdict = proof.verdict
    if verdict is Outcome.UNKNOWN and (
        (decision.in_one_transaction and not proof.doubtful) or (proof.forgotten and confirmed)
    ):
        verdict = Outcome.COMMITTED
    strict = options is not None and options.on_expired == "refuse" and not confirmed
    if verdict is Outcome.COMMITTED and proof.removed and strict:
        return Outcome.UNKNOWN
    return verdict


def find_marker(cluster: Cluster, where: TopicPartition, producer_id: int, first_offset: int) -> Outcome:
    """How the transaction that wrote at `first_offset` ended. UNKNOWN where the log begins later than the records, or
    no marker is there (yet).
    """
    fate = fate_of(cluster, where, producer_id, first_offset)
    return {Fate.COMMITTED: Outcome.COMMITTED, Fate.ABORTED: Outcome.ABORTED}.get(fate, Outcome.UNKNOWN)
