"""A decided transaction that is committed in some partitions and aborted in others: what is kept, and whether a replay fits.

Owns: comparing a replay with the decision partition by partition.
Does not know: how a part was lost, how it is written again.
Invariants: a replay fits only where every partition would get the records that were decided for it, by count and digest; what
cannot be compared does not fit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from connector.model import KeptPartition, Seal, TopicPartition


def kept_of(seal: Seal, lost: Collection[TopicPartition]) -> tuple[KeptPartition, ...]:
    """What needs no rewriting of a seal: its partitions but the lost ones, under the identity that wrote them."""
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
