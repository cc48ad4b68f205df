"""The decision's own transaction: its contents, its outcome, and whether what it decides is whole.

Owns: the steps that both scopes share.
Does not know: which transactions are ended afterwards, what follows from an answer.
Invariants:
- Nothing here sends EndTxn for the first time.
- An answer is definite or None.
- A replay fits a torn transaction only where every partition gets the records that were decided for it, by
  count and digest. A partition without both does not fit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from connector.client.cluster import Cluster
from connector.client.producer import Producer
from connector.client.producer_states import States
from connector.commit.ledger.topic import Ledger
from connector.commit.markers import open_as_sealed
from connector.commit.proof import find_marker
from connector.machines.commit.events import Verdict
from connector.model import Decision, KeptPartition, Seal, TopicPartition


def write_decision(
    producer: Producer, ledger: Ledger, decision: Decision, group: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Begin the producer's transaction and put the ledger record and the source offsets into it.

    Returns once the broker has acknowledged all of it.
    """
    producer.begin()
    ledger.write(producer, decision)
    producer.send_offsets(group, offsets)
    producer.flush()


def ask_decision(cluster: Cluster, ledger: Ledger, producer: Producer) -> bool | None:
    """Whether a decision whose EndTxn got no answer is committed. The coordinator is asked first, then the
    ledger's log is read. None while neither shows the outcome."""
    (written,) = [each for each in producer.partitions() if each.topic == ledger.topic]
    where = TopicPartition(written.topic, written.partition)
    producer_id = producer.identity.producer_id

    def witness() -> bool | None:
        verdict = find_marker(cluster, where, producer_id, written.first_offset)
        return {Verdict.COMMITTED: True, Verdict.ABORTED: False}.get(verdict)

    return producer.ask_outcome(witness)


BATCH_IS_RETRIED = "no record of the batch is visible, and the batch is retried"


def broken_part(
    seals: Sequence[Seal], states: States | None, follows: str = BATCH_IS_RETRIED
) -> tuple[str, dict[str, str | int | float]] | None:
    """A partition whose log does not have a seal's transaction open from its first record on; None where all have.

    Where an earlier transaction of the same producer was left without a
    marker in that partition, the commit would end that one too and make its
    records visible twice. The abort that follows from this result ends both. `follows`: what the message
    says of the batch.
    """
    if states is None:
        return None
    for seal in seals:
        assert seal.identity is not None
        for part in seal.partitions:
            # The broker acknowledges some duplicates without an offset, so there is none to compare.
            if part.first_offset >= 0 and not open_as_sealed(seal.identity, part, states):
                where = TopicPartition(part.topic, part.partition)
                return (
                    f"slot {seal.slot} wrote to {where} from offset {part.first_offset} on, but its leader reports "
                    f"{states.get(where, {}).get(seal.identity.producer_id)}: an earlier transaction was left without its "
                    f"markers there, or records are gone; {follows}",
                    {"slot": seal.slot, "partition": str(where)},
                )
    return None


def unmarked(
    ledger: TopicPartition, follows: str = BATCH_IS_RETRIED
) -> tuple[str, dict[str, str | int | float]]:
    """The reason and the facts where the last decision lacks its marker in this partition of the ledger.
    `follows`: what the message says of the batch."""
    return (
        f"the broker left the last decision of this pipeline without its marker in {ledger}, and the marker of another decision "
        f"would end both; {follows}",
        {"ledger": str(ledger)},
    )


# ---- of a torn transaction: committed in some partitions, aborted in others


def kept_of(seal: Seal, lost: Collection[TopicPartition]) -> tuple[KeptPartition, ...]:
    """The part of a seal that needs no rewriting: all but its
    lost partitions, under the identity that wrote them."""
    assert seal.identity is not None
    here = [part for part in seal.partitions if TopicPartition(part.topic, part.partition) not in lost]
    return (*seal.kept, *(KeptPartition(seal.identity, part) for part in here))


def moved_rows(decided: Seal, replayed: Sequence[Seal]) -> list[TopicPartition]:
    """The partitions into which the replay puts other rows than the decided seal has there, in order."""
    again: dict[TopicPartition, tuple[int, int | None]] = {}
    for seal in replayed:
        for where, (records, digest) in seal.shares.items():
            known_records, known = again.get(where, (0, 0))
            both = None if known is None or digest is None else (known + digest) & 0xFFFFFFFFFFFFFFFF
            again[where] = (known_records + records, both)
    wanted = decided.shares
    return [
        where
        for where in sorted({*wanted, *again})
        if wanted.get(where) != again.get(where) or wanted[where][1] is None
    ]
