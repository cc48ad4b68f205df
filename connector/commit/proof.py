"""The outcome of a sealed transaction, from the coordinator first, then from the log of every partition.

Owns: reading an outcome out of DescribeTransactions, and out of what the logs show (`fates`).
Does not know: what follows from an outcome.
Invariants:
- COMMITTED and ABORTED are returned only where a marker, or a coordinator's state that can mean nothing else,
  proves them. Everything else is OPEN, GONE or UNKNOWN.
- A transaction that is committed in one partition and aborted in
  another is ABORTED with the lost partitions named, never COMMITTED.
Sources: KIP-98 (control markers), KIP-664 (DescribeTransactions), KIP-890 (the epoch rises with the end in version 2).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from connector import runtime
from connector.client.cluster import Cluster
from connector.client.offsets import READ_UNCOMMITTED, Offsets
from connector.client.transactions import Transactions, TransactionView
from connector.commit.fates import Fate, fate_of, fates_of
from connector.errors import ExactlyOnceError, UnknownTopic
from connector.machines.commit.events import Verdict
from connector.model import Decision, Seal, TopicPartition

log = logging.getLogger(__name__)

_COMMITTED = frozenset({"PrepareCommit", "CompleteCommit"})
_PREPARING = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})

_SETTLE_MS = 30_000
"""How long to wait for a transaction that is being completed: markers take
milliseconds; a coordinator that moves takes some seconds. Half would give
up during a slow failover; double keeps an operator waiting without gain."""


@dataclass(frozen=True)
class Proof:
    """The verdict on one seal. `lost`: partitions where its records are aborted although they are committed
    elsewhere (the transaction that was to write its missing markers timed out); the verdict is ABORTED then.
    Empty where it was aborted everywhere. `forgotten`: UNKNOWN permanently, because the coordinator is done
    with it and retention or compaction has removed its records."""

    verdict: Verdict
    lost: frozenset[TopicPartition] = frozenset()
    forgotten: bool = False


def prove(cluster: Cluster, seals: Sequence[Seal], settle_ms: int = _SETTLE_MS) -> dict[int, Proof]:
    """The proof on each seal, by slot. Empty seals have no transaction and must not be passed."""
    transactions = Transactions(cluster)
    proofs: dict[int, Proof] = {}
    deadline = runtime.monotonic() + settle_ms / 1000
    waiting = list(seals)
    while waiting:
        views = transactions.describe([seal.transactional_id for seal in waiting])
        again: list[Seal] = []
        verdicts = {seal.slot: _by_coordinator(views[seal.transactional_id], seal) for seal in waiting}
        unproven = [seal for seal in waiting if verdicts[seal.slot] is Verdict.UNKNOWN]
        fates = fates_of(cluster, unproven)
        for seal in unproven:
            _warn_of_gone(seal, [where for where, fate in fates[seal.slot].items() if fate is Fate.GONE])
        for seal in waiting:
            proof = judge(fates[seal.slot]) if seal.slot in fates else Proof(verdicts[seal.slot])
            settling = views[seal.transactional_id].state in _PREPARING
            if settling:
                proof = replace(proof, forgotten=False)
            if proof.verdict is Verdict.UNKNOWN and settling and runtime.monotonic() < deadline:
                again.append(seal)
            else:
                proofs[seal.slot] = proof
        waiting = again
        if waiting:
            cluster.pause()
    return proofs


def _by_coordinator(view: TransactionView, seal: Seal) -> Verdict:
    identity = seal.identity
    assert identity is not None
    same_id = view.identity.producer_id == identity.producer_id
    if same_id and view.identity.epoch == identity.epoch:
        if view.state == "Ongoing":
            return Verdict.OPEN
        if view.state in _COMMITTED:
            # One identity carries one transaction, so this end belongs to the sealed one.
            return Verdict.COMMITTED
    # Version 2 ends a transaction under the next epoch, which carries nothing else before it is ended in turn.
    ended_here = seal.transaction_version >= 2 and same_id and view.identity.epoch == identity.epoch + 1
    if ended_here and view.state in _COMMITTED:
        return Verdict.COMMITTED
    # On version 1 the next epoch may have carried another transaction, whose abort this would be.
    if ended_here and view.state == "CompleteAbort":
        return Verdict.ABORTED
    return Verdict.UNKNOWN


def judge(fates: Mapping[TopicPartition, Fate]) -> Proof:
    """The proof that the fates of a transaction's partitions amount to. The
    coordinator writes the same marker to all; they differ only where it
    forgot some and a later transaction of the same producer ended those."""
    found = set(fates.values())
    lost = frozenset(where for where, fate in fates.items() if fate is Fate.ABORTED)
    if Fate.COMMITTED in found:
        return Proof(Verdict.ABORTED, lost) if lost else Proof(Verdict.COMMITTED)
    if lost:
        return Proof(Verdict.ABORTED)
    if found <= {Fate.GONE}:
        return Proof(Verdict.GONE)
    return Proof(Verdict.UNKNOWN, forgotten=Fate.NO_MARKER not in found)


def warn_of_gone(cluster: Cluster, seals: Sequence[Seal]) -> None:
    """Warn of records that are gone, as far as offsets show it without reading: the coordinator reports a
    transaction as committed whatever became of its topics. Best effort."""
    parts = {TopicPartition(part.topic, part.partition) for seal in seals for part in seal.partitions}
    try:
        offsets = Offsets(cluster)
        ends = offsets.latest(offsets.existing(parts), READ_UNCOMMITTED)
    except ExactlyOnceError as error:
        log.info("could not check whether all written records are still there: %s", error)
        return
    for seal in seals:
        firsts = {TopicPartition(part.topic, part.partition): part.first_offset for part in seal.partitions}
        _warn_of_gone(seal, [where for where, first in firsts.items() if ends.get(where, -1) <= first])


def _warn_of_gone(seal: Seal, gone: Sequence[TopicPartition]) -> None:
    if gone:
        log.warning(
            "the records of slot %d are no longer in %s: the topic was deleted, recreated or truncated since; nothing is left to end",
            seal.slot,
            ", ".join(map(str, sorted(gone))),
        )


def warn_of_made_anew(cluster: Cluster, decision: Decision, slots: Collection[int]) -> None:
    """Before these slots of a decided batch are written again: warn where one of their topics is another one of the same name now.
    Nothing that the batch wrote to the former one is there, so what is written again is the first of it in the new one."""
    written = {topic for seal in decision.seals if seal.slot in slots for topic in seal.topics}
    for topic in sorted(written):
        try:
            now = cluster.topic(topic.name, refresh=True).topic_id
        except UnknownTopic:
            # The tasks say so, where they have a row for it.
            continue
        if now != topic.topic_id:
            log.warning(
                "topic %s was deleted and made anew since batch %d was decided (its id was %s and is %s); the slots that the broker "
                "aborted are written into the new one; what the other slots had in the former one is gone",
                topic.name, decision.batch_id, topic.topic_id, now,
            )  # fmt: skip


def find_marker(cluster: Cluster, where: TopicPartition, producer_id: int, first_offset: int) -> Verdict:
    """How the transaction that wrote at `first_offset` ended. UNKNOWN where the log begins later than the records, or no marker is
    there (yet)."""
    fate = fate_of(cluster, where, producer_id, first_offset)
    return {Fate.COMMITTED: Verdict.COMMITTED, Fate.ABORTED: Verdict.ABORTED}.get(fate, Verdict.UNKNOWN)
