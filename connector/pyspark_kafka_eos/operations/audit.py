"""Is a decided batch in the output, whole and unchanged, and has its pipeline committed nothing else? The log against
the ledger.

Owns: the verdict on each sealed transaction, which topics are searched for more, from when on.
Does not know: coordinators (they are not asked: the log is the evidence), how logs are read (`counting`), what follows
from a verdict.
Invariants:
- MATCHES is returned only where every record of the transaction was read below the last stable offset, up to
  its commit marker, and their count and digest equal the ledger's.
- Memory does not grow with the output, and each partition is read once, whatever the number of batches and pipelines.
Source: the digest of `pyspark_kafka_eos.records` (format 1).

A record that is a dead letter has the time of its writing, which no replay would give again: it is digested without,
also where the rows beside it have times of their own. Each batch of records holds only the ones or only the others.

One transaction may belong to several slots (scope=batch writes them all under one producer). So a verdict is
on a transaction: on the sum of its slots' counts and digests. The digest does not depend on the order of records.

What was committed and never decided is searched for in all partitions of the topics that the decisions name, and of
those that the caller adds: from the first sealed offset of the batches on, and in other partitions from the time when
they were begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum

from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.every_broker import ask_every_broker
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.commit.fates import places_of
from pyspark_kafka_eos.model import Decision, Seal, SealedPartition
from pyspark_kafka_eos.operations.counting import CountedTransaction, TransactionEnd, Watch, count
from pyspark_kafka_eos.operations.undecided import CommittedRecords, KnownCommits, Undecided, by_producer

_64_BITS = 0xFFFFFFFFFFFFFFFF

_CLOCKS_DIFFER_MS = 10 * 60_000
"""How much earlier than the tasks' clocks said a partition is searched. Clocks that differ by more hide what was
committed there at about the time of the batch; ten times as much reads an hour of other applications' records for
nothing.
"""


class Verdict(str, Enum):
    """What the log shows of one sealed transaction."""

    MATCHES = "matches"
    DIFFERS = "differs"
    ABORTED = "aborted"
    OPEN = "open"
    GONE = "gone"


@dataclass(frozen=True)
class Finding:
    """The verdict on one transaction of a batch. `slots`: the slots that wrote in it; found and expected are sums over
    them.

    `digest` is the log's (the variant with timestamps where that one fits), None where not all records could be read.
    """

    slots: tuple[int, ...]
    transactional_id: str
    verdict: Verdict
    expected_records: int
    found_records: int
    expected_digest: int
    digest: int | None
    reason: str = ""


@dataclass(frozen=True)
class History:
    """What the ledger has of a pipeline. `known`: its decisions, the oldest first, without a gap, those whose
    transaction has no end yet too; `verified`: those of them whose output is read, the newest ones; `older`: whether
    the ledger has others before.
    """

    known: Sequence[Decision]
    verified: Sequence[Decision]
    older: bool = False


@dataclass(frozen=True)
class Audit:
    """The verdicts on each verified decision, and what was found beside them in these partitions of these topics.
    `older`: the pipelines of which the ledger has batches before the verified ones.
    """

    batches: list[tuple[Decision, list[Finding]]]
    undecided: list[Undecided]
    topics: tuple[str, ...]
    partitions: Set[TopicPartition]
    older: tuple[str, ...] = ()


@dataclass
class _Transaction:
    seals: list[Seal] = field(default_factory=list)
    parts: dict[tuple[TopicPartition, int], CountedTransaction] = field(default_factory=dict)
    """(where, producer id) -> what it has there."""


def prove(
    cluster: Cluster,
    histories: Sequence[History],
    topics: Iterable[str] = (),
    newer: Callable[[str], Sequence[Decision]] = lambda _: (),
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Audit:
    """The verdict on every transaction of the verified batches (slots that wrote nothing have none), and every other
    commit of the pipelines' producers from those batches on that no decision names.

    `topics`: where the pipelines may have written, beside the topics that their decisions name. `newer`: the decisions
    of a pipeline by now, as `History.known`: a run may decide further batches while this reads. `progress` is told how
    many partitions are read, of how many. AuthorizationFailed without READ on a topic, BrokerUnavailable where a
    partition cannot be read now.
    """
    histories = [each for each in histories if each.verified]
    decided = [each for history in histories for each in history.verified]
    grouped = [(each, _transactions(each)) for each in decided]
    known = {each.known[0].pipeline: KnownCommits(each.known) for each in histories}
    owners = by_producer(known.values())
    searched = {*topics, *(name for each in known.values() for name in each.topics)} if known else set()
    begun = [seal.opened_ms for each in decided for seal in each.seals if seal.opened_ms > 0]
    begun += [each.decided_ms for each in decided]
    since_ms = max(0, min(begun, default=0) - _CLOCKS_DIFFER_MS)
    watch = Watch(owners.keys(), searched, since_ms, _suspects(owners))
    parts = [part for _, own in grouped for each in own for part in each.parts.values()]
    places = _places(decided)
    there = {where: places[where] for where in absence.existing(cluster, places)}
    count(cluster, parts, watch, _further(cluster, searched, {where.topic for where in there}) | there, progress)
    undecided = _undecided(grouped, watch.commits, owners)
    for name in {each.pipeline for each in undecided}:
        # Decided since the ledger was read: a commit comes after its decision.
        by_now = KnownCommits(newer(name) or next(h.known for h in histories if h.known[0].pipeline == name))
        undecided = [each for each in undecided if each.pipeline != name or by_now.undecided(each.commit) is not None]
    behind = {id(each): history.verified[-1] for history in histories for each in history.verified[:-1]}
    verdicts = [(decision, [_judge(each, behind.get(id(decision))) for each in own]) for decision, own in grouped]
    older = sorted(each.known[0].pipeline for each in histories if each.older)
    return Audit(verdicts, undecided, tuple(sorted(searched)), watch.partitions, tuple(older))


def together(proofs: Iterable[Audit]) -> Audit:
    """Proofs of several pipelines as one."""
    each = list(proofs)
    return Audit(
        [batch for proof in each for batch in proof.batches],
        [found for proof in each for found in proof.undecided],
        tuple(sorted({topic for proof in each for topic in proof.topics})),
        frozenset().union(*(proof.partitions for proof in each)),
        tuple(sorted(name for proof in each for name in proof.older)),
    )


def verify(cluster: Cluster, decision: Decision) -> list[Finding]:
    """`prove` for one decision alone: the verdicts on its transactions."""
    ((_, findings),) = prove(cluster, [History([decision], [decision])]).batches
    return findings


def _suspects(owners: Mapping[int, KnownCommits]) -> Callable[[TopicPartition, ProducerIdentity], bool]:
    return lambda where, marker: owners[marker.producer_id].may_be_undecided(where, marker)


def _places(decided: Iterable[Decision]) -> dict[TopicPartition, LogMark]:
    """Where the batches wrote, and what has to be known there; of a topic that was recreated since, what its
    newest batch knows."""
    found: dict[TopicPartition, LogMark] = {}
    for decision in decided:
        for where, known in places_of(decision.seals).items():
            before = found.get(where, known)
            same = before.topic_id in ("", known.topic_id)
            epoch = max(before.leader_epoch, known.leader_epoch) if same else known.leader_epoch
            found[where] = replace(known, leader_epoch=epoch)
    return found


def _further(cluster: Cluster, topics: Iterable[str], fresh: Set[str]) -> dict[TopicPartition, LogMark]:
    """All partitions of the topics, with nothing known, by leaders that every broker was asked for; of a topic that
    does not exist any more there are none. `fresh`: the topics that are known to be there.
    """
    ask_every_broker(cluster, fresh)
    return {
        TopicPartition(topic, number): LogMark()
        for topic in sorted({*absence.topics_there(cluster, set(topics) - fresh), *fresh})
        for number in range(len(cluster.topic(topic).leaders))
    }


def _undecided(
    grouped: Sequence[tuple[Decision, Sequence[_Transaction]]],
    commits: Sequence[CommittedRecords],
    owners: Mapping[int, KnownCommits],
) -> list[Undecided]:
    """The commits that no decision names. What a verified transaction has in a partition that its seals do not name
    becomes a part of it, of which nothing was expected."""
    own = {
        seal.identity: transaction for _, transactions in grouped for transaction in transactions for seal in transaction.seals
    }  # fmt: skip
    found = []
    for commit in commits:
        undecided = owners[commit.identity.producer_id].undecided(commit)
        transaction = own.get(commit.identity)
        if undecided is None:
            continue
        if transaction is None:
            found.append(undecided)
        else:
            more = CountedTransaction(commit.where, commit.identity, commit.marker_epoch, commit.first_offset, 0)
            more.records, more.end = commit.records, TransactionEnd.COMMITTED
            transaction.parts[commit.where, commit.identity.producer_id] = more
    return found


def _transactions(decision: Decision) -> list[_Transaction]:
    """The seals in groups that have to be summed, with their parts. Where the broker lost a part of the batch, which
    was rewritten under other identities, the whole batch is one group."""
    found: dict[ProducerIdentity | None, _Transaction] = {}
    together = any(seal.kept for seal in decision.seals)
    for seal in decision.seals:
        if seal.records if together else seal.identity is not None:
            found.setdefault(None if together else seal.identity, _Transaction()).seals.append(seal)
    buried = (decision.pipeline, decision.batch_id) if decision.dead_letters else None
    places = places_of(decision.seals)
    for transaction in found.values():
        for identity, last_marker_epoch, sealed in _written(transaction.seals):
            where = TopicPartition(sealed.topic, sealed.partition)
            part = transaction.parts.get((where, identity.producer_id))
            if part is None:
                transaction.parts[where, identity.producer_id] = CountedTransaction(
                    where,
                    identity,
                    last_marker_epoch,
                    sealed.first_offset,
                    sealed.records,
                    buried,
                    places[where].topic_id,
                )
            else:
                part.first_offset = min(part.first_offset, sealed.first_offset)
                part.expected += sealed.records
    return list(found.values())


def _written(seals: Iterable[Seal]) -> Iterator[tuple[ProducerIdentity, int, SealedPartition]]:
    """(identity, epoch of its commit marker, what it wrote to a partition). Of what a repair kept, the
    transaction version is not known, so the epoch is the lower one of both."""
    for seal in seals:
        yield from ((each.identity, each.identity.epoch, each.part) for each in seal.kept)
        if seal.identity is not None and seal.end_identity is not None:
            yield from ((seal.identity, seal.end_identity.epoch, part) for part in seal.partitions)


# ---- judging


def _judge(transaction: _Transaction, newest: Decision | None) -> Finding:
    """`newest`: a later decision of the pipeline, None where there is none: a run proves and repairs the newest one
    only.
    """
    seals = transaction.seals
    expected_records = sum(seal.records for seal in seals)
    expected_digest = sum(seal.digest for seal in seals) & _64_BITS
    parts = list(transaction.parts.values())
    records = sum(part.records for part in parts)
    plain = sum(part.plain for part in parts) & _64_BITS
    stamped = sum(part.stamped + part.buried_more for part in parts) & _64_BITS
    ends = {part.end: part.reason for part in reversed(parts)}
    verdict, reason, digest = Verdict.MATCHES, "", None
    # The worst first: an aborted or removed transaction stays wrong, an open one may still be committed.
    for worst in (TransactionEnd.ABORTED, TransactionEnd.GONE, TransactionEnd.OPEN):
        if worst in ends:
            verdict, reason = Verdict(worst.value), ends[worst]
            break
    else:
        digest = stamped if stamped == expected_digest else plain
        wrong = _differences(transaction, records, expected_records, digest == expected_digest)
        if wrong:
            verdict, reason = Verdict.DIFFERS, wrong
    if verdict is Verdict.ABORTED:
        reason = "the broker aborted it: readers see none of it; " + (
            "the query's next run writes it again, or says why it cannot"
            if newest is None
            else f"no run writes it again, since batch {newest.batch_id} is decided behind it"
        )
    return Finding(
        slots=tuple(sorted(seal.slot for seal in seals)),
        transactional_id=seals[0].transactional_id,
        verdict=verdict,
        expected_records=expected_records,
        found_records=records,
        expected_digest=expected_digest,
        digest=digest,
        reason=reason,
    )


def _differences(transaction: _Transaction, records: int, expected: int, same_digest: bool) -> str:
    wrong = [
        f"{part.where}: {part.records} records of {part.expected}"
        for part in transaction.parts.values()
        if part.records != part.expected
    ]
    if records != expected and not wrong:
        wrong = [f"{records} records of {expected}"]
    if not wrong and not same_digest:
        wrong = ["as many records as decided, but with other contents"]
    return "; ".join(wrong)


def without_replaced(decisions: Sequence[Decision]) -> list[Decision]:
    """The decisions without those that a later record of the same batch replaced (a repair)."""
    newest = {(each.query_id, each.batch_id): each for each in decisions}
    return [each for each in decisions if newest[each.query_id, each.batch_id] is each]
