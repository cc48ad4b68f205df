"""Which sealed transactions the leaders have open (DescribeProducers, KIP-664), and the words for one that its
coordinator does not have open.

Owns: which of a seal's partitions are open, as it was sealed or in another way; who may have ended a transaction that
was sealed open.
Does not know: how coordinators are asked, what follows; who may say that something is not there
(`client.reading.absence`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from kafka_core.errors import UnknownTopic
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.offsets import LogMark, Offsets
from pyspark_kafka_eos.client.requests.producer_states import ProducerState, States, describe_producers
from pyspark_kafka_eos.client.requests.transactions import TransactionView
from pyspark_kafka_eos.commit.fates import places_of
from pyspark_kafka_eos.model import Seal, SealedPartition

_ANOTHERS = frozenset({"Empty", "Ongoing", "PrepareCommit", "CompleteCommit"})
"""States that an id has under a newer identity only after somebody has initialised it: the coordinator itself raises
the epoch where it aborts after the timeout, and that ends as an abort (KIP-890). An initialisation begins with such an
abort, too, so an abort shows neither.
"""


def states_of(cluster: Cluster, partitions: Collection[TopicPartition], sealed: Iterable[Seal] = ()) -> States | None:
    """What the leaders of these partitions report about producers; partitions of a deleted topic are left out. None
    where the right to look (READ) is missing. `sealed`: seals whose records are in the partitions: only leaders count
    that can have them, so that what these do not have open is not open. BrokerUnavailable where no such leader is
    found.
    """
    places = dict.fromkeys(partitions, LogMark()) | places_of(sealed)
    there = absence.present(cluster, places)
    try:
        return describe_producers(cluster, there)
    except UnknownTopic:
        there = absence.existing(cluster, places)
        absence.require_leaders(cluster, {where: places[where] for where in there})
        return describe_producers(cluster, there)


def open_parts(seals: Iterable[Seal], states: States) -> dict[int, dict[TopicPartition, int]]:
    """Slot -> the partitions in which its transaction has not ended yet, and the offset from which on it is open."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for seal in seals:
        assert seal.identity is not None
        for part in seal.partitions:
            where = TopicPartition(part.topic, part.partition)
            state = _state(states, where, seal.identity)
            if state is None or state.open_from < 0:
                continue
            # A later epoch's transaction is another one, unless it began while this one lacked its marker: the broker
            # then adds the later records to the open transaction, and their marker will end the sealed ones too.
            if state.epoch <= seal.identity.epoch or state.open_from <= part.first_offset:
                found.setdefault(seal.slot, {})[where] = state.open_from
    return found


def partitions_of(seals: Iterable[Seal]) -> set[TopicPartition]:
    """Where the sealed transactions wrote."""
    return {TopicPartition(part.topic, part.partition) for seal in seals for part in seal.partitions}


def leaders_of(cluster: Cluster, seals: Iterable[Seal]) -> dict[TopicPartition, int]:
    """The epochs of the leaders that the known metadata name, to tell later whether they were elected anew."""
    return {where: cluster.leader_epoch(where) for where in partitions_of(seals)}


def open_as_sealed(identity: ProducerIdentity, part: SealedPartition, states: States) -> bool:
    """Whether the partition's leader has the transaction open from the first sealed record on to the last, and nothing
    before it.
    """
    state = _state(states, TopicPartition(part.topic, part.partition), identity)
    if state is None or (state.epoch, state.open_from) != (identity.epoch, part.first_offset):
        return False
    return state.last_sequence == part.last_sequence


def _state(states: States, where: TopicPartition, identity: ProducerIdentity) -> ProducerState | None:
    return states.get(where, {}).get(identity.producer_id)


def lost_parts(seal: Seal, states: States) -> list[TopicPartition]:
    """The partitions that exist and do not have the transaction open as it was sealed. Where its coordinator has it
    open before and after this look, an election has lost records there. `states`: of `states_of` with the seal.
    """
    assert seal.identity is not None
    return [
        where
        for part in seal.partitions
        # Some duplicates are acknowledged without an offset.
        if (where := TopicPartition(part.topic, part.partition)) in states and part.first_offset >= 0
        if not open_as_sealed(seal.identity, part, states)
    ]


def removed_parts(
    cluster: Cluster, seals: Sequence[Seal], there: Collection[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """Slot -> its partitions whose logs begin behind its first record there: retention or DeleteRecords removed
    records, whatever the leader has open. `there`: those that exist. A topic that was recreated begins at 0.
    """
    return parts_before(seals, Offsets(cluster).earliest(sorted(partitions_of(seals) & set(there))))


def parts_before(seals: Iterable[Seal], starts: Mapping[TopicPartition, int]) -> dict[int, list[TopicPartition]]:
    """Slot -> the partitions in which its first record stands before the log's start."""
    found: dict[int, list[TopicPartition]] = {}
    for seal in seals:
        for part in seal.partitions:
            where = TopicPartition(part.topic, part.partition)
            # Some duplicates are acknowledged without an offset.
            if starts.get(where, 0) > part.first_offset >= 0:
                found.setdefault(seal.slot, []).append(where)
    return found


def silent(cluster: Cluster, seals: Sequence[Seal]) -> list[Seal]:
    """The seals with a partition whose log no longer shows their outcome: the topic is gone, or the log begins after
    their records."""
    there = absence.existing(cluster, places_of(seals))
    removed = removed_parts(cluster, seals, there)
    return [seal for seal in seals if seal.slot in removed or not partitions_of([seal]) <= there]


def log_starts(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs begin, before a batch is decided; nothing where a topic is gone, whose leaders do not have the
    transaction open.
    """
    with suppress(UnknownTopic):
        return Offsets(cluster).earliest(sorted(partitions))
    return {}


def stable_ends(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The last stable offsets, before a batch is decided: nothing is open before them. For whoever may not ask leaders
    about producers; DESCRIBE on the topic is enough, which WRITE includes. Nothing where a topic is gone.
    """
    with suppress(UnknownTopic):
        return Offsets(cluster).latest(sorted(partitions))
    return {}


def never_ended(cluster: Cluster, seal: Seal) -> bool:
    """Whether all records of a seal are in the log as they were written, and no marker has ended them."""
    assert seal.identity is not None
    states = states_of(cluster, partitions_of([seal]), [seal])
    return states is not None and all(open_as_sealed(seal.identity, part, states) for part in seal.partitions)


def no_longer_open(what: str, identity: ProducerIdentity | None, view: TransactionView, others: str) -> str:
    """What is said of a sealed transaction that its coordinator does not have open: no cause that the coordinator's
    `view` rules out.

    `what`: the transaction; `identity`: that it was sealed under; `others`: who may write beside this process.
    """
    seen = f"{what} is no longer open under {identity} (its coordinator has {view.state} under {view.identity})"
    follows = "no record of this try is visible, and the batch is retried"
    if view.identity != identity and view.state in _ANOTHERS:
        return (
            f"{seen}: {others} took it over; {follows}; look for another run, or another df.write of the same batch.id, "
            "that writes this pipeline at the same time, and let one of them write"
        )
    return (
        f"{seen}: {others} took it over, or it timed out; {follows}; look first for another run, or another df.write of the same batch.id, that "
        "writes this pipeline at the same time; only where there is none and this repeats, raise kafka.transaction.timeout.ms"
    )
