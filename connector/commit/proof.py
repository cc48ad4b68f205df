"""What became of a sealed transaction: the coordinator is asked first, then the log is the witness.

Owns: reading an outcome out of DescribeTransactions and out of control markers.
Does not know: what is done about it.
Invariants: COMMITTED and ABORTED are said only where a marker, or a coordinator's state that can mean nothing else,
proves them; everything else is OPEN or UNKNOWN.
Sources: KIP-98 (control markers), KIP-664 (DescribeTransactions), KIP-890 (the epoch rises with the end in version 2).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from connector.client.cluster import Cluster
from connector.client.log_reader import read_raw
from connector.client.transactions import Transactions, TransactionView
from connector.machines.commit import Verdict
from connector.model import ProducerIdentity, Seal, SealedPartition, TopicPartition
from connector.records import MarkerKind, control_marker, scan

_COMMITTED = frozenset({"PrepareCommit", "CompleteCommit"})
_PREPARING = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})

_SETTLE_MS = 30_000
"""How long a transaction that is being completed is waited for: markers take milliseconds, a coordinator that moves
some seconds. Half would give up during a slow failover; double keeps an operator waiting for nothing."""


def prove(cluster: Cluster, seals: Sequence[Seal], settle_ms: int = _SETTLE_MS) -> dict[int, Verdict]:
    """The verdict on each seal, by slot. Empty seals have no transaction and must not be given."""
    transactions = Transactions(cluster)
    verdicts: dict[int, Verdict] = {}
    deadline = time.monotonic() + settle_ms / 1000
    waiting = list(seals)
    while waiting:
        views = transactions.describe([seal.transactional_id for seal in waiting])
        again: list[Seal] = []
        for seal in waiting:
            assert seal.identity is not None
            verdict = _by_coordinator(views[seal.transactional_id], seal)
            if verdict is Verdict.UNKNOWN:
                verdict = _by_log(cluster, seal.identity, seal.partitions)
            settling = views[seal.transactional_id].state in _PREPARING
            if verdict is Verdict.UNKNOWN and settling and time.monotonic() < deadline:
                again.append(seal)
            else:
                verdicts[seal.slot] = verdict
        waiting = again
        if waiting:
            cluster.pause()
    return verdicts


def _by_coordinator(view: TransactionView, seal: Seal) -> Verdict:
    identity = seal.identity
    assert identity is not None
    same_id = view.identity.producer_id == identity.producer_id
    if same_id and view.identity.epoch == identity.epoch:
        if view.state == "Ongoing":
            return Verdict.OPEN
        if view.state in _COMMITTED:
            # One identity carries one transaction, so this end is this transaction's.
            return Verdict.COMMITTED
    # Version 2 ends a transaction under the next epoch, which carries nothing else before it is ended in turn.
    ended_here = seal.transaction_version >= 2 and same_id and view.identity.epoch == identity.epoch + 1
    if ended_here and view.state in _COMMITTED:
        return Verdict.COMMITTED
    # On version 1 the next epoch may have carried another transaction, whose abort this would be.
    if ended_here and view.state == "CompleteAbort":
        return Verdict.ABORTED
    return Verdict.UNKNOWN


def _by_log(cluster: Cluster, identity: ProducerIdentity, partitions: Sequence[SealedPartition]) -> Verdict:
    for partition in partitions:
        verdict = find_marker(
            cluster,
            TopicPartition(partition.topic, partition.partition),
            identity.producer_id,
            partition.first_offset,
        )
        # All partitions of a transaction get the same marker; another is asked only where this one cannot say (its
        # marker is not written yet, or retention has removed the data).
        if verdict is not Verdict.UNKNOWN:
            return verdict
    return Verdict.UNKNOWN


def find_marker(cluster: Cluster, where: TopicPartition, producer_id: int, first_offset: int) -> Verdict:
    """How the transaction that wrote at `first_offset` ended: the first marker of its producer from there on.

    A producer's records are followed by their own marker before it can begin another transaction, so the first marker
    is this transaction's. UNKNOWN where the log begins later than the records, or no marker is there (yet).
    """
    if first_offset < 0:
        return Verdict.UNKNOWN
    offset = first_offset
    while True:
        read = read_raw(cluster, where, offset)
        if read.out_of_range or read.log_start_offset > first_offset:
            return Verdict.UNKNOWN
        following = offset
        for info, data in scan(read.records):
            if info.control and info.producer_id == producer_id and info.base_offset >= first_offset:
                kind = control_marker((info, data)).kind
                if kind is not MarkerKind.OTHER:
                    return Verdict.COMMITTED if kind is MarkerKind.COMMIT else Verdict.ABORTED
            following = max(following, info.last_offset + 1)
        if following == offset:
            return Verdict.UNKNOWN
        offset = following
