"""Has a pipeline committed more than it decided? What the ledger says of its producers, held against each transaction
in the output.

Owns: which producers are a pipeline's, from which of their epochs on each commit has to be named by a decision.
Does not know: logs, offsets; who reads them (`audit`) or the ledger (`history`).
Invariants:
- Nothing is called undecided that a decision names which is older than those that are known here: the ledger's
  compaction removes old decisions, so what is older than the oldest known one is not judged.
- Of the ids that wrote in no known decision only those are known that the oldest one lists with their last commit.
Sources: KIP-98 and KIP-890. A producer's epoch grows from transaction to transaction, each has one of its own, and its
commit marker has the same epoch (version 1) or the next one (version 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.model import Decision


@dataclass(frozen=True)
class CommittedRecords:
    """Records of one producer in one partition, up to its commit marker. `marker_epoch`: that of the marker."""

    where: TopicPartition
    identity: ProducerIdentity
    marker_epoch: int
    first_offset: int
    records: int


@dataclass(frozen=True)
class Undecided:
    """Committed records that no known decision names. `named`: a decision names the transaction, but not this
    partition.
    """

    pipeline: str
    transactional_id: str
    commit: CommittedRecords
    named: bool

    @property
    def reason(self) -> str:
        """What was found, and where."""
        commit = self.commit
        found = (
            f"{commit.where}: {commit.records} records from offset {commit.first_offset} on are committed under "
            f"{self.transactional_id} ({commit.identity})"
        )
        if self.named:
            return f"{found}; the decision that has this transaction does not name the partition"
        return f"{found}, and no decision names this transaction"


class KnownCommits:
    """A pipeline's commits, as its decisions name them. `decisions`: those that are known, oldest first and
    without a gap; one at least."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self.pipeline = decisions[0].pipeline
        self.names: dict[int, str] = {}
        """Producer id -> transactional id."""
        self.topics: set[str] = set()
        self._decided: dict[ProducerIdentity, set[TopicPartition]] = {}
        self._before: dict[int, tuple[int, bool]] = {}
        """Producer id -> the last epoch of before, and whether a transaction of version 2 may come with the same
        one.
        """
        for name, end in decisions[0].earlier or ():
            self.names[end.producer_id] = name
            self._before[end.producer_id] = end.epoch, True
        for decision in decisions:
            self._add(decision)

    def _add(self, decision: Decision) -> None:
        for seal in decision.seals:
            self.topics |= {topic.name for topic in seal.topics} | set(seal.topic_names)
            written = [(each.identity, each.part) for each in seal.kept]
            if seal.identity is not None:
                written += [(seal.identity, part) for part in seal.partitions]
                self._decided.setdefault(seal.identity, set())
            for identity, part in written:
                self._decided.setdefault(identity, set()).add(TopicPartition(part.topic, part.partition))
            for identity in dict.fromkeys(each for each, _ in written):
                self.names.setdefault(identity.producer_id, seal.transactional_id)
                # The first decision of a producer: what it did before is older than what is known.
                self._before.setdefault(identity.producer_id, (identity.epoch, False))

    def undecided(self, commit: CommittedRecords) -> Undecided | None:
        """None where a decision names it, or where it is older than what is known."""
        identity = commit.identity
        decided = self._decided.get(identity)
        if decided is None:
            before, version_2 = self._before[identity.producer_id]
            later = identity.epoch > before
            if version_2 and identity.epoch == before:
                later = commit.marker_epoch > before
            if not later:
                return None
        elif commit.where in decided:
            return None
        return Undecided(self.pipeline, self.names[identity.producer_id], commit, decided is not None)

    def may_be_undecided(self, where: TopicPartition, marker: ProducerIdentity) -> bool:
        """Whether a commit marker, of whose records nothing is known, may be of a transaction that no decision
        names.
        """
        same, before = marker, ProducerIdentity(marker.producer_id, marker.epoch - 1)
        if any(where in self._decided.get(each, ()) for each in (same, before)):
            return False
        return any(self.undecided(CommittedRecords(where, each, marker.epoch, -1, 0)) for each in (same, before))


def by_producer(known: Iterable[KnownCommits]) -> dict[int, KnownCommits]:
    """Producer id -> its pipeline."""
    return {producer_id: each for each in known for producer_id in each.names}
