"""The outcome of a sealed transaction, from the coordinator first, then from the log of every partition.

Owns: reading an outcome out of DescribeTransactions and out of control markers.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from connector import runtime
from connector.client.cluster import Cluster
from connector.client.log_reader import read_raw
from connector.client.offsets import READ_UNCOMMITTED, Offsets
from connector.client.transactions import Transactions, TransactionView
from connector.errors import ExactlyOnceError, UnknownTopic
from connector.machines.commit.events import Verdict
from connector.model import ProducerIdentity, Seal, SealedPartition, TopicPartition
from connector.records import MarkerKind, control_marker, scan

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


class Fate(Enum):
    """What the log of one partition shows of a transaction that wrote there."""

    COMMITTED = "a commit marker ended it"
    ABORTED = "an abort marker ended it"
    NO_MARKER = "its records are there, and nothing has ended it"
    GONE = "the topic was deleted, recreated or truncated: its records are not there, and never will be"
    UNKNOWN = "retention has removed the beginning of it"


def prove(cluster: Cluster, seals: Sequence[Seal], settle_ms: int = _SETTLE_MS) -> dict[int, Proof]:
    """The proof on each seal, by slot. Empty seals have no transaction and must not be passed."""
    transactions = Transactions(cluster)
    proofs: dict[int, Proof] = {}
    deadline = runtime.monotonic() + settle_ms / 1000
    waiting = list(seals)
    while waiting:
        views = transactions.describe([seal.transactional_id for seal in waiting])
        again: list[Seal] = []
        for seal in waiting:
            proof = Proof(_by_coordinator(views[seal.transactional_id], seal))
            if proof.verdict is Verdict.UNKNOWN:
                proof = judge(fates_of(cluster, seal))
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


def fates_of(cluster: Cluster, seal: Seal) -> dict[TopicPartition, Fate]:
    """The fate of a seal's transaction in each of its partitions, read from the logs."""
    assert seal.identity is not None
    fates = {
        TopicPartition(part.topic, part.partition): _fate(cluster, seal.identity, part)
        for part in seal.partitions
    }
    _warn_of_gone(seal, [where for where, fate in fates.items() if fate is Fate.GONE])
    return fates


def warn_of_gone(cluster: Cluster, seals: Sequence[Seal]) -> None:
    """Warn of records that are gone, as far as offsets show it without reading: the coordinator reports a
    transaction as committed whatever became of its topics. Best effort."""
    parts = {TopicPartition(part.topic, part.partition) for seal in seals for part in seal.partitions}
    try:
        there = [where for where in sorted(parts) if exists(cluster, where)]
        ends = Offsets(cluster).latest(there, READ_UNCOMMITTED)
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


def _fate(cluster: Cluster, identity: ProducerIdentity, part: SealedPartition) -> Fate:
    where = TopicPartition(part.topic, part.partition)
    if part.first_offset < 0:
        return Fate.UNKNOWN
    if not exists(cluster, where):
        return Fate.GONE
    return _read_fate(cluster, where, identity.producer_id, part.first_offset)


def exists(cluster: Cluster, where: TopicPartition) -> bool:
    """Whether the topic has this partition now, from fresh
    metadata: the topic may have been deleted since."""
    try:
        return where.partition < len(cluster.topic(where.topic, refresh=True, new_topic_ms=0).leaders)
    except UnknownTopic:
        return False


def find_marker(cluster: Cluster, where: TopicPartition, producer_id: int, first_offset: int) -> Verdict:
    """How the transaction that wrote at `first_offset` ended: the first marker of its producer from there on.

    A producer's records are followed by their own marker before it can begin another transaction, so the first marker
    is this transaction's. UNKNOWN where the log begins later than the records, or no marker is there (yet).
    """
    if first_offset < 0:
        return Verdict.UNKNOWN
    fate = _read_fate(cluster, where, producer_id, first_offset)
    return {Fate.COMMITTED: Verdict.COMMITTED, Fate.ABORTED: Verdict.ABORTED}.get(fate, Verdict.UNKNOWN)


def _read_fate(cluster: Cluster, where: TopicPartition, producer_id: int, first_offset: int) -> Fate:
    offset, seen = first_offset, False
    while True:
        read = read_raw(cluster, where, offset)
        if read.log_start_offset > first_offset:
            return Fate.UNKNOWN
        if read.out_of_range:
            # That answer never contains the log's start, so the
            # offset may be before the start or behind the end.
            earliest = Offsets(cluster).earliest([where])[where]
            return Fate.UNKNOWN if earliest > first_offset else Fate.GONE
        following = offset
        for info, data in scan(read.records):
            if info.last_offset >= first_offset and info.producer_id == producer_id:
                seen = True
                if info.control:
                    kind = control_marker((info, data)).kind
                    if kind is not MarkerKind.OTHER:
                        return Fate.COMMITTED if kind is MarkerKind.COMMIT else Fate.ABORTED
            elif info.base_offset <= first_offset <= info.last_offset:
                # Another producer's records are at this offset:
                # compaction removes records but puts none in their place.
                return Fate.GONE
            following = max(following, info.last_offset + 1)
        if following == offset:
            if offset == first_offset and read.high_watermark <= first_offset:
                return Fate.GONE
            return Fate.NO_MARKER if seen else Fate.UNKNOWN
        offset = following
