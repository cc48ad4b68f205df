"""Is a decided batch in the output, whole and unchanged? Counted from the log and compared with the ledger.

Owns: what a read_committed reader sees of each sealed transaction, and the verdict on it.
Does not know: coordinators (they are not asked: the log is the evidence), what follows from a verdict.
Invariants:
- MATCHES is returned only where every record of the transaction was read below the last stable offset, up to
  its commit marker, and their count and digest equal the ledger's.
- Memory does not grow with the output.
- What a cleaner may have removed is GONE, never DIFFERS or ABORTED. The log tells it, not the topic's settings of today: a leader
  gives out offsets without a hole, so one that is missing was removed.
Sources: KIP-98 (what a reader of committed records sees), the digest of `connector.records` (format 1).

A record that is a dead letter has the time of its writing, which no replay would give again: it is digested without,
also where the rows beside it have times of their own. Each batch holds only the ones or only the others.

One transaction may belong to several slots (scope=batch writes them all under one producer). So a verdict is
on a transaction: on the sum of its slots' counts and digests. The digest does not depend on the order of
records, so each partition is read once from the first sealed offset on, and the records found are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from connector.client import absence
from connector.client.cluster import Cluster
from connector.client.log_reader import read_raw
from connector.client.offsets import ISOLATION_LEVELS, READ_COMMITTED, Offsets
from connector.commit.fates import places_of
from connector.model import Decision, ProducerIdentity, Seal, SealedPartition, TopicPartition
from connector.records import (
    Batch,
    BatchInfo,
    MarkerKind,
    control_marker,
    decode_many,
    digest_of,
    scan,
    topic_seed,
)
from connector.slot.dead_letters import is_dead_letter

_64_BITS = 0xFFFFFFFFFFFFFFFF


class Verdict(str, Enum):
    """What the log shows of one sealed transaction."""

    MATCHES = "matches"
    DIFFERS = "differs"
    ABORTED = "aborted"
    OPEN = "open"
    GONE = "gone"


@dataclass(frozen=True)
class Finding:
    """The verdict on one transaction of a batch. `slots`: the
    slots that wrote in it; found and expected are sums over them.

    `digest` is the log's (the variant with timestamps where
    that one fits), None where not all records could be read.
    """

    slots: tuple[int, ...]
    transactional_id: str
    verdict: Verdict
    expected_records: int
    found_records: int
    expected_digest: int
    digest: int | None
    reason: str = ""


@dataclass
class _Part:
    """One transaction in one partition: what was counted so far, and how it ended there."""

    where: TopicPartition
    identity: ProducerIdentity
    last_marker_epoch: int
    """A marker with a later epoch may be of a later transaction."""
    first_offset: int
    expected: int
    records: int = 0
    plain: int = 0
    stamped: int = 0
    buried: int = 0
    """What the dead letters among the records add to `plain` less what they add to `stamped`."""
    end: Verdict | None = None
    reason: str = ""


@dataclass
class _Transaction:
    seals: list[Seal] = field(default_factory=list)
    parts: list[_Part] = field(default_factory=list)


def verify(cluster: Cluster, decision: Decision) -> list[Finding]:
    """The verdict on every transaction of a decided batch; slots that wrote nothing have none.

    Reads each output partition from the first sealed offset to the last marker. AuthorizationFailed without READ on an
    output topic, BrokerUnavailable where a partition cannot be read now.
    """
    transactions = _transactions(decision)
    by_partition: dict[TopicPartition, dict[int, _Part]] = {}
    for transaction in transactions:
        for identity, last_marker_epoch, sealed in _written(transaction.seals):
            where = TopicPartition(sealed.topic, sealed.partition)
            parts = by_partition.setdefault(where, {})
            part = parts.get(identity.producer_id)
            if part is None:
                part = _Part(where, identity, last_marker_epoch, sealed.first_offset, sealed.records)
                parts[identity.producer_id] = part
                transaction.parts.append(part)
            else:
                part.first_offset = min(part.first_offset, sealed.first_offset)
                part.expected += sealed.records
    _count(cluster, by_partition, decision)
    return [_judge(transaction) for transaction in transactions]


def _transactions(decision: Decision) -> list[_Transaction]:
    """The seals in groups that have to be summed. Where the broker lost a part of the batch, which was
    rewritten under other identities, the whole batch is one group."""
    if any(seal.kept for seal in decision.seals):
        return [_Transaction([seal for seal in decision.seals if seal.records])]
    found: dict[ProducerIdentity, _Transaction] = {}
    for seal in decision.seals:
        if seal.identity is not None:
            found.setdefault(seal.identity, _Transaction()).seals.append(seal)
    return list(found.values())


def _written(seals: Iterable[Seal]) -> Iterator[tuple[ProducerIdentity, int, SealedPartition]]:
    """(identity, epoch of its commit marker, what it wrote to a partition). Of what a repair kept, the
    transaction version is not known, so the epoch is the lower one of both."""
    for seal in seals:
        yield from ((each.identity, each.identity.epoch, each.part) for each in seal.kept)
        if seal.identity is not None and seal.end_identity is not None:
            yield from ((seal.identity, seal.end_identity.epoch, part) for part in seal.partitions)


# ---- counting


def _count(
    cluster: Cluster, by_partition: Mapping[TopicPartition, Mapping[int, _Part]], decision: Decision
) -> None:
    """Fill in the parts of each partition, all in one reading of it. What topics and ends are is asked for all partitions at once:
    an answer about a topic is as long as the topic has partitions."""
    places = places_of(decision.seals)
    there = {where: places[where] for where in sorted(absence.existing(cluster, places))}
    ends = absence.ends(cluster, there)
    begins = Offsets(cluster).earliest(there)
    for where, parts in sorted(by_partition.items()):
        if where not in begins:
            _close(
                parts.values(), Verdict.GONE, f"{where} does not exist any more, or its topic was recreated"
            )
            continue
        begin, end = begins[where], ends[where]
        for part in parts.values():
            if part.first_offset < 0:
                _close([part], Verdict.GONE, f"the ledger has no first offset of its records in {where}")
            elif part.first_offset < begin:
                _close([part], Verdict.GONE, f"{where} begins at offset {begin} by now (retention)")
            elif part.first_offset >= end:
                _close([part], Verdict.GONE, f"{where} ends at offset {end}: an election lost the records")
        _read_committed(cluster, where, parts, decision)
        for part in parts.values():
            if part.end is None:
                part.end, part.reason = _beyond(cluster, part)


def _read_committed(
    cluster: Cluster, where: TopicPartition, parts: Mapping[int, _Part], decision: Decision
) -> None:
    """Count up to the last marker of the parts, or as far as a read_committed reader may read."""
    waiting = [part for part in parts.values() if part.end is None]
    offset = min((part.first_offset for part in waiting), default=0)
    seed = topic_seed(where.topic)
    holes = _Holes(offset)
    while any(part.end is None for part in waiting):
        read = read_raw(cluster, where, offset, isolation=ISOLATION_LEVELS[READ_COMMITTED])
        if read.out_of_range:
            _close(waiting, Verdict.GONE, f"{where} lost records while they were read (retention)")
            return
        following = offset
        for batch in scan(read.records):
            following = max(following, batch[0].last_offset + 1)
            holes.pass_by(batch[0])
            part = parts.get(batch[0].producer_id)
            if part is not None and part.end is None and batch[0].base_offset >= part.first_offset:
                _take(part, batch, seed, decision, holes.last >= part.first_offset)
        if following == offset:
            return
        offset = following


class _Holes:
    """The last offset that is missing in what was passed by: its record, or its marker, was removed by a cleaner."""

    def __init__(self, begin: int) -> None:
        self.last = -1
        self._next = begin

    def pass_by(self, info: BatchInfo) -> None:
        """The next batch of the log."""
        if info.base_offset > self._next:
            self.last = info.base_offset - 1
        if info.count <= info.last_offset - info.base_offset:
            # Which ones of a batch are missing takes unpacking; the last one is late enough for every use.
            self.last = info.last_offset
        self._next = max(self._next, info.last_offset + 1)


def _take(part: _Part, batch: Batch, seed: int, decision: Decision, thinned: bool) -> None:
    """`thinned`: a cleaner has removed something between the part's first offset and this batch."""
    info, _ = batch
    if thinned and not part.records and info.producer_epoch > part.last_marker_epoch:
        # A marker stays as long as one record of its transaction does, so this is a later transaction.
        part.end, part.reason = Verdict.GONE, _cleaned(part.where)
    elif info.control:
        kind = control_marker(batch).kind
        if kind is not MarkerKind.OTHER:
            # MATCHES here means: ended by a commit; the sums are compared when all partitions are read.
            part.end = Verdict.MATCHES if kind is MarkerKind.COMMIT else Verdict.ABORTED
            if thinned and part.records < part.expected and part.end is Verdict.MATCHES:
                part.end, part.reason = Verdict.GONE, _cleaned(part.where)
    elif thinned and info.producer_epoch != part.identity.epoch:
        part.end, part.reason = Verdict.GONE, _cleaned(part.where)
    elif info.transactional:
        # Of any epoch: a marker of the producer ends everything that the producer has open there.
        part.records += info.count
        plain, stamped = digest_of([batch], seed, False), digest_of([batch], seed, True)
        part.plain += plain
        part.stamped += stamped
        if decision.dead_letters and _is_buried(batch, decision):
            part.buried += plain - stamped


def _cleaned(where: TopicPartition) -> str:
    return f"{where} is compacted: its cleaner has removed records of the batch, which newer ones of their keys replaced"


def _is_buried(batch: Batch, decision: Decision) -> bool:
    """Whether a batch has dead letters of this decision. The first record tells it for all."""
    rows = decode_many([batch])
    return (
        rows.headers is not None
        and len(rows) > 0
        and is_dead_letter(rows.headers[0].as_py(), decision.pipeline, decision.batch_id)
    )


def _beyond(cluster: Cluster, part: _Part) -> tuple[Verdict, str]:
    """Why a reader of committed records does not get to the end
    of a transaction: that transaction is open, or another."""
    offset = part.first_offset
    holes = _Holes(offset)
    while True:
        read = read_raw(cluster, part.where, offset)
        following = offset
        for batch in scan(read.records):
            info = batch[0]
            following = max(following, info.last_offset + 1)
            holes.pass_by(info)
            if holes.last >= part.first_offset:
                # A cleaner stops at the first transaction that is open, so this one ended, and its marker is gone.
                return Verdict.GONE, _cleaned(part.where)
            if info.control and info.producer_id == part.identity.producer_id:
                kind = control_marker(batch).kind
                if kind is MarkerKind.COMMIT:
                    return Verdict.OPEN, (
                        f"it is committed, but readers of {part.where} wait at offset {read.last_stable_offset} for another "
                        "transaction; see `transactions list`"
                    )
                if kind is MarkerKind.ABORT:
                    return Verdict.ABORTED, ""
        if following == offset:
            return Verdict.OPEN, f"it has no marker in {part.where} yet; see `transactions explain`"
        offset = following


def _close(parts: Iterable[_Part], verdict: Verdict, reason: str) -> None:
    for part in parts:
        if part.end is None:
            part.end, part.reason = verdict, reason


# ---- judging


def _judge(transaction: _Transaction) -> Finding:
    seals = transaction.seals
    expected_records = sum(seal.records for seal in seals)
    expected_digest = sum(seal.digest for seal in seals) & _64_BITS
    records = sum(part.records for part in transaction.parts)
    plain = sum(part.plain for part in transaction.parts) & _64_BITS
    stamped = sum(part.stamped + part.buried for part in transaction.parts) & _64_BITS
    ends = {part.end: part.reason for part in reversed(transaction.parts)}
    verdict, reason, digest = Verdict.MATCHES, "", None
    # The worst first: an aborted or removed transaction stays wrong, an open one may still be committed.
    for worst in (Verdict.ABORTED, Verdict.GONE, Verdict.OPEN):
        if worst in ends:
            verdict, reason = worst, ends[worst]
            break
    else:
        digest = stamped if stamped == expected_digest else plain
        wrong = _differences(transaction, records, expected_records, digest == expected_digest)
        if wrong:
            verdict, reason = Verdict.DIFFERS, wrong
    if verdict is Verdict.ABORTED:
        reason = "the broker aborted it: readers see none of it; the query's next run writes it again"
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
        for part in transaction.parts
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
