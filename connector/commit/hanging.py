"""Transactions that the coordinator holds for ended, but whose markers are missing in some partitions (KIP-664: hanging).

Owns: finding them, and having the coordinator write the missing markers.
Does not know: whether a batch is decided; the caller says which way a transaction is to end.
Invariants: nothing here ends a transaction that the coordinator still holds for open or being completed; the markers
are written by a new transaction of the same id over the same partitions, so no right but that of writing is needed; one
that is merely late is waited for.

How they come about: a coordinator that completes a transaction while its broker does not know the partitions' leaders yet
("likely deleted already and hence can be skipped") writes no marker there and calls it complete. Seen on 3.9.1 and 4.3.1 after
SIGKILL and restart of a broker. The records then neither show nor vanish: they hold the last stable offset for ever, and
the next marker of the same producer id, whatever it is for, ends them too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence

from connector.client.cluster import Cluster
from connector.client.ends import EndRequest
from connector.client.producer_states import States, describe_producers
from connector.client.transactions import Transactions, TransactionView
from connector.commit.ledger import Ledger
from connector.commit.proof import prove
from connector.errors import OutcomeUnknown
from connector.machines.commit import Verdict
from connector.model import (
    Decision,
    ProducerIdentity,
    Seal,
    SealedPartition,
    TopicPartition,
    batch_transactional_id,
)

log = logging.getLogger(__name__)

UNSETTLED = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States in which the coordinator itself still has something to end or to write."""

_SETTLE_MS = 30_000
"""How long markers that are on their way are waited for: they take milliseconds, a coordinator that moves some seconds."""

_FIRST_PAUSE_MS = 1.0
_LONGEST_PAUSE_MS = 100.0


def open_parts(seals: Iterable[Seal], states: States) -> dict[int, list[TopicPartition]]:
    """Slot -> the partitions in which its transaction has not ended yet."""
    found: dict[int, list[TopicPartition]] = {}
    for seal in seals:
        assert seal.identity is not None
        for part in seal.partitions:
            where = TopicPartition(part.topic, part.partition)
            state = states[where].get(seal.identity.producer_id)
            # A later epoch's transaction began after this one ended, or the broker would have refused it.
            if state is not None and state.open_from >= 0 and state.epoch <= seal.identity.epoch:
                found.setdefault(seal.slot, []).append(where)
    return found


def partitions_of(seals: Iterable[Seal]) -> set[TopicPartition]:
    """Where the sealed transactions wrote."""
    return {TopicPartition(part.topic, part.partition) for seal in seals for part in seal.partitions}


def open_as_sealed(identity: ProducerIdentity, part: SealedPartition, states: States) -> bool:
    """Whether the partition's leader has the transaction open from the first sealed record on, and nothing before it."""
    state = states[TopicPartition(part.topic, part.partition)].get(identity.producer_id)
    return state is not None and (state.epoch, state.open_from) == (identity.epoch, part.first_offset)


def await_markers(cluster: Cluster, seals: Sequence[Seal], timeout_ms: int, *, commit: bool) -> bool:
    """Return when every partition of these ended transactions has its marker, written here where the broker did not.
    True where one was: its transactional id has a new epoch since.

    The coordinator has said of each that it is committed (`commit`) or aborted. Returns at once where the right to look
    (READ on the topics) is missing. OutcomeUnknown where the markers do not appear.
    """
    transactions = Transactions(cluster)
    left = [seal for seal in seals if seal.identity is not None]
    deadline, pause, mended = time.monotonic() + _SETTLE_MS / 1000, _FIRST_PAUSE_MS, set[int]()
    views: dict[str, TransactionView] = {}
    while left:
        states = describe_producers(cluster, partitions_of(left))
        if states is None:
            log.info("no right to describe producers: that every marker is written is taken on trust")
            break
        parts = open_parts(left, states)
        left = [seal for seal in left if seal.slot in parts]
        if not left:
            break
        if time.monotonic() > deadline:
            raise OutcomeUnknown(
                f"the transaction of slot {left[0].slot} is ended, but its marker does not appear in "
                f"{parts[left[0].slot][0]}; nothing is skipped; the next run looks again",
                {"transactional_id": left[0].transactional_id, "slots": tuple(seal.slot for seal in left)},
            )
        for seal in left:
            # What the coordinator said before the leaders were asked: the other way round, markers that are written in
            # between would look as if they were missing.
            view = views.get(seal.transactional_id)
            if view is not None and view.state not in UNSETTLED and seal.slot not in mended:
                write_markers(cluster, seal.transactional_id, parts[seal.slot], timeout_ms, commit=commit)
                mended.add(seal.slot)
        cluster.pause(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_MS)
        views = transactions.describe([seal.transactional_id for seal in left])
    return bool(mended)


def write_markers(
    cluster: Cluster,
    transactional_id: str,
    partitions: Collection[TopicPartition],
    timeout_ms: int,
    *,
    commit: bool,
    group: str | None = None,
) -> None:
    """Have markers written to partitions (and to a group's offsets), ending what the id's producer has open there.

    Stopped in the middle, the transaction may end the other way by its timeout; whoever looks next finds that in the log.
    """
    log.warning(
        "the broker left the transaction of %s without a marker in %s; it is %s now",
        transactional_id,
        ", ".join(map(str, sorted(partitions))) or "its group",
        "committed" if commit else "aborted",
    )
    transactions = Transactions(cluster)
    identity = transactions.init_producer_id(transactional_id, timeout_ms)
    # An empty transaction over partitions exists in the classic class only: version 2 adds a partition by writing to it.
    if partitions:
        transactions.add_partitions(transactional_id, identity, partitions)
    if group:
        transactions.add_offsets(transactional_id, identity, group)
    answer = transactions.end(EndRequest(transactional_id, identity, commit, transaction_version=1))
    if not answer.definite:
        raise OutcomeUnknown(
            f"writing missing markers of {transactional_id!r} got no definite answer ({answer.reason}); the next run looks "
            "again",
            {"transactional_id": transactional_id, "producer": str(identity)},
        )


def never_ended(cluster: Cluster, seal: Seal) -> bool:
    """Whether all that a seal stands for is in the log as it was written, and nothing there or later ended it."""
    assert seal.identity is not None
    states = describe_producers(cluster, partitions_of([seal]))
    return states is not None and all(open_as_sealed(seal.identity, part, states) for part in seal.partitions)


def settle_decision(
    cluster: Cluster, ledger: Ledger, transactional_id: str, timeout_ms: int, *, group: str
) -> None:
    """End a decision that the broker left without a marker, before a new driver's epoch wipes out what is known of it.

    It is committed where the coordinator says so or any of its slots is: those are ended only after it. Else it is aborted,
    which is safe: nothing of it shows. What the coordinator itself still has to end is left to it.
    """
    if ledger.still_open() is None:
        return
    transactions = Transactions(cluster)
    whole = batch_transactional_id(ledger.pipeline)
    views = transactions.describe([transactional_id, whole])
    still = ledger.still_open()
    if still is None:
        return
    decision = Decision.from_bytes(still.value)
    seals = [seal for seal in decision.seals if seal.identity is not None]
    partitions = [ledger.partition]
    if decision.in_one_transaction:
        # Its records are in the decision's own transaction: what has no marker there ends with it.
        transactional_id = whole
        states = describe_producers(cluster, partitions_of(seals))
        if states is not None:
            partitions += [where for parts in open_parts(seals, states).values() for where in parts]
    view = views[transactional_id]
    shown = any(verdict is Verdict.COMMITTED for verdict in prove(cluster, seals).values())
    if view.state in UNSETTLED:
        if shown and view.state == "Ongoing":
            # An earlier run was killed while it did what is done below.
            transactions.end(EndRequest(transactional_id, view.identity, True, transaction_version=1))
        return
    commit = shown or view.state == "CompleteCommit"
    write_markers(cluster, transactional_id, partitions, timeout_ms, commit=commit, group=group)
