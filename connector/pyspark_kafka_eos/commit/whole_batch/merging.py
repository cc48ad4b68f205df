"""The one seal of a batch in one transaction, made of its tasks' seals.

Owns: what the tasks' counts and sequences, the coordinator's partitions and the leaders' states have to agree on.
Does not know: turns, Spark, sockets.
Invariants:
- Sequences of a partition begin at 0 and have no gap, so the last one gives the number of its records, and one task has
  the first.
- Seals that count more or fewer records, or leave out a partition of the transaction, are never committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka_core.errors import AttemptRefused, Fact, IllegalMove, RepairPending
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.producer_states import States
from pyspark_kafka_eos.client.requests.transactions import TransactionView
from pyspark_kafka_eos.client.writing.sequences import SEQUENCE_LIMIT
from pyspark_kafka_eos.commit.decision import Found, broken_part
from pyspark_kafka_eos.commit.gone.absent import removed_part
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.open_parts import no_longer_open, partitions_of
from pyspark_kafka_eos.commit.proof import led_anew, prove
from pyspark_kafka_eos.model import Basis, Expired, Routes, Seal, SealedPartition, Traffic


def merge(
    seals: Sequence[Seal],
    *,
    transactional_id: str,
    identity: ProducerIdentity | None,
    transaction_version: int,
    two_phase: bool,
) -> Seal:
    """One seal of the whole batch; AttemptRefused where the tasks' record counts do not match their last sequences."""
    by_partition: dict[TopicPartition, list[SealedPartition]] = {}
    for seal in seals:
        shares = seal.shares
        for sealed in seal.partitions:
            part = replace(sealed, digest=shares[TopicPartition(sealed.topic, sealed.partition)][1])
            by_partition.setdefault(TopicPartition(part.topic, part.partition), []).append(part)
    routes = Routes.of_all((seal.slot, seal.topics) for seal in seals)
    return Seal(
        transactional_id=transactional_id,
        slot=0,
        identity=identity,
        transaction_version=transaction_version,
        two_phase=two_phase,
        records=sum(seal.records for seal in seals),
        bytes=sum(seal.bytes for seal in seals),
        digest=sum(seal.digest for seal in seals) & 0xFFFFFFFFFFFFFFFF,
        dead_letters=sum(seal.dead_letters for seal in seals),
        retries=sum(seal.retries for seal in seals),
        traffic=Traffic.of_all(seal.traffic for seal in seals),
        opened_ms=min((seal.opened_ms for seal in seals if seal.opened_ms), default=0),
        basis=Basis.of_all(seal.basis for seal in seals),
        expired=Expired.of_all(each for seal in seals for each in seal.expired),
        partitions=tuple(_merged(where, parts) for where, parts in sorted(by_partition.items())),
        topics=routes.usual,
        apart=routes.apart,
    )


def require_every_slot(seals: Sequence[Seal], tasks: int | None) -> None:
    """IllegalMove unless each task that ran has exactly one seal.
    `tasks`: None where Spark does not report the number."""
    slots = sorted(seal.slot for seal in seals)
    if slots != list(range(len(slots) if tasks is None else tasks)):
        raise IllegalMove(
            "the job is over but not every slot has its seal; nothing of the batch is decided",
            {"slots": len(slots) if tasks is None else tasks, "sealed": len(slots)},
        )


def _merged(where: TopicPartition, parts: Sequence[SealedPartition]) -> SealedPartition:
    records = sum(part.records for part in parts)
    last = (records - 1) % SEQUENCE_LIMIT
    if last not in {part.last_sequence for part in parts}:
        raise AttemptRefused(
            "the tasks' seals count a different number of records than was written to a partition: a task was "
            "started again after its result was lost; no record of the batch is visible; the batch is aborted "
            "and retried under a new epoch",
            {
                "partition": str(where),
                "records": records,
                "last_sequence": max(part.last_sequence for part in parts),
            },
        )
    # Only the task whose turn was first has the offset of sequence 0; the others report -1.
    begins = [part.first_offset for part in parts if part.first_offset >= 0]
    if len(begins) != 1:
        raise AttemptRefused(
            f"{len(begins)} tasks have the beginning of what the batch wrote to a partition, and one has to: a broker took records of one "
            "task for those of another, or for somebody else's; no record of the batch is visible; the batch is aborted and retried under "
            "a new epoch",
            {"partition": str(where), "records": records, "beginnings": len(begins)},
        )
    return SealedPartition(
        where.topic,
        where.partition,
        begins[0],
        last,
        records,
        _digest(parts),
        max(part.leader_epoch for part in parts),
    )


def _digest(parts: Sequence[SealedPartition]) -> int | None:
    digests = [part.digest for part in parts if part.digest is not None]
    return sum(digests) & 0xFFFFFFFFFFFFFFFF if len(digests) == len(parts) else None


def require_whole(cluster: Cluster, seal: Seal, led: Mapping[TopicPartition, int], facts: Mapping[str, Fact]) -> None:
    """RepairPending where an election has lost records of the batch since the check before its decision. `led`: the
    leader epochs at that check; brokers are asked only where a leader has changed."""
    moved = led_anew(cluster, [seal], led)
    if not moved or prove(cluster, [seal], by_log=moved)[seal.slot].verdict is not Outcome.ABORTED:
        return
    raise RepairPending(
        "the batch is decided, and an election lost records of it between the look at its partitions and its commit; the next run writes "
        "them again; nothing is skipped",
        dict(facts),
    )


def is_as_sealed(seal: Seal, view: TransactionView) -> bool:
    """Whether the coordinator has the batch's transaction as its tasks sealed it: open, over their partitions alone.
    Without records it has nothing of the batch.
    """
    sealed = partitions_of([seal])
    return view.partitions == sealed if view.is_open_under(seal.identity) else not sealed


def mismatch(
    seal: Seal, view: TransactionView, states: States | None, starts: Mapping[TopicPartition, int]
) -> Found | None:
    """How the batch's transaction differs from what its tasks sealed, before anything of the decision is in it; None
    where it does not.

    `view` is the coordinator's view of the transaction, `states` that of the partitions' leaders (None: no right to
    ask), `starts` where their logs begin.
    """
    sealed = partitions_of([seal])
    if not is_as_sealed(seal, view):
        if not view.is_open_under(seal.identity):
            return (
                no_longer_open("the batch's transaction", seal.identity, view, "another write"),
                {"state": view.state},
            )
        where = min(view.partitions ^ sealed)
        why = (
            "the coordinator does not have it in the batch's transaction, whose end would not reach it"
            if where in sealed
            else "a task wrote there whose seal is not among those of the batch: it was started again after its result was lost"
        )
        return f"{where}: {why}; no record of the batch is visible, and the batch is retried", {"partition": str(where)}
    unsealed = _unsealed_records(seal, states)
    if unsealed is not None:
        where, last = unsealed
        return (
            f"{where} has records of the batch that no task's seal counts (its last sequence is {last}): a task was started "
            "again after its result was lost; no record of the batch is visible, and the batch is retried",
            {"partition": str(where), "last_sequence": last},
        )
    return (broken_part([seal], states) or removed_part([seal], starts)) if sealed else None


def _unsealed_records(seal: Seal, states: States | None) -> tuple[TopicPartition, int] | None:
    """A partition whose leader has a later last sequence than the seal, with the leader's; None where there is none.

    A task then wrote under the identity, and its seal is not among those of the batch.
    """
    if states is None or seal.identity is None:
        return None
    for part in seal.partitions:
        where = TopicPartition(part.topic, part.partition)
        state = states.get(where, {}).get(seal.identity.producer_id)
        if state is None or state.epoch != seal.identity.epoch:
            continue
        # Sequences wrap, so "later" is the shorter way round.
        ahead = (state.last_sequence - part.last_sequence) % SEQUENCE_LIMIT
        if 0 < ahead < SEQUENCE_LIMIT // 2:
            return where, state.last_sequence
    return None
