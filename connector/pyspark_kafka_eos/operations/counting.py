"""Reads partitions back: counts what sealed transactions have in them, and notes every other commit of the producers
that are watched.

Owns: one pass over each partition, what a hole in the log means.
Does not know: the ledger, what was decided, what follows from a count (`audit`, `undecided`).
Invariants:
- Only what a reader of committed records gets is counted, up to the transaction's marker.
- Memory does not grow with the output.
- What a cleaner may have removed is GONE, never ABORTED or an end with fewer records. The log tells it, not the topic's
  settings of today: a leader gives out offsets without a hole, so one that is missing was removed.
Sources: KIP-98 (what a reader of committed records sees), the digest of `pyspark_kafka_eos.records` (format 1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum

from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.log_reader import RawRead, read_raw
from pyspark_kafka_eos.client.reading.offsets import ISOLATION_LEVELS, READ_COMMITTED, Offsets
from pyspark_kafka_eos.operations.undecided import CommittedRecords
from pyspark_kafka_eos.records import (
    Batch,
    BatchInfo,
    MarkerKind,
    control_marker,
    decode_many,
    digest_of,
    scan,
    topic_seed,
)
from pyspark_kafka_eos.slot.dead_letters import is_dead_letter

_LOOK_BACK = 1000
"""Offsets read first, where records of a transaction are older than the part that is read; doubled from step to
step.
"""


class TransactionEnd(str, Enum):
    """How a transaction ended in one partition, as far as its log shows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    GONE = "gone"


@dataclass
class CountedTransaction:
    """One transaction in one partition: what is expected, what was counted so far, and how it ended there.

    `last_marker_epoch`: a marker with a later one may be of a later transaction. `buried`: the pipeline and the batch
    of the dead letters that may be among the records; None where there are none. `topic_id`: of the topic that was
    written to, "" where no writer knew it. `buried_more`: what those add to `plain` less what they add to `stamped`,
    the sums of the records' digests without and with their times.
    """

    where: TopicPartition
    identity: ProducerIdentity
    last_marker_epoch: int
    first_offset: int
    expected: int
    buried: tuple[str, int] | None = None
    topic_id: str = ""
    records: int = 0
    plain: int = 0
    stamped: int = 0
    buried_more: int = 0
    end: TransactionEnd | None = None
    reason: str = ""

    def end_as(self, end: TransactionEnd, reason: str = "") -> None:
        """It ended, unless it did before."""
        if self.end is None:
            self.end, self.reason = end, reason

    def add_batch(self, batch: Batch, seed: int, thinned: bool) -> None:
        """The next batch of the producer. `thinned`: a cleaner has removed something since the part's first offset."""
        info, _ = batch
        if thinned and not self.records and info.producer_epoch > self.last_marker_epoch:
            # A marker stays as long as one record of its transaction does, so this is a later transaction.
            self.end_as(TransactionEnd.GONE, _cleaned(self.where))
        elif info.control:
            kind = control_marker(batch).kind
            if kind is MarkerKind.COMMIT and thinned and self.records < self.expected:
                self.end_as(TransactionEnd.GONE, _cleaned(self.where))
            elif kind is not MarkerKind.OTHER:
                self.end_as(TransactionEnd.COMMITTED if kind is MarkerKind.COMMIT else TransactionEnd.ABORTED)
        elif thinned and info.producer_epoch != self.identity.epoch:
            self.end_as(TransactionEnd.GONE, _cleaned(self.where))
        elif info.transactional:
            # Of any epoch: a marker of the producer ends everything that the producer has open there.
            self.records += info.count
            plain, stamped = digest_of([batch], seed, False), digest_of([batch], seed, True)
            self.plain += plain
            self.stamped += stamped
            if self.buried is not None and _is_buried(batch, *self.buried):
                self.buried_more += plain - stamped


@dataclass
class Watch:
    """The producers of which every commit is noted, in all partitions of these topics. `since_ms`: in a partition
    without parts, from the records of that time on (ms since 1970). `suspects`: whether a marker of a watched producer
    is worth looking for records that are older than what is read.
    """

    producers: Collection[int]
    topics: Collection[str]
    since_ms: int
    suspects: Callable[[TopicPartition, ProducerIdentity], bool]
    commits: list[CommittedRecords] = field(default_factory=list)
    partitions: set[TopicPartition] = field(default_factory=set)
    """Which were looked into."""


def count(
    cluster: Cluster, parts: Iterable[CountedTransaction], watch: Watch, there: absence.Places,
    progress: Callable[[int, int], None],
) -> None:  # fmt: skip
    """Fill in the parts and the watch's commits. `there`: the partitions that exist, of the parts and of the watch's
    topics, with what has to be known of the logs that the parts are in.

    Each partition is read once, from its first part on, or where it has none from the watch's time on.
    AuthorizationFailed without READ on a topic, BrokerUnavailable where a partition cannot be read now.
    """
    by_partition: dict[TopicPartition, list[CountedTransaction]] = {where: [] for where in there}
    for part in parts:
        if part.where in by_partition and there[part.where].topic_id in ("", part.topic_id):
            by_partition[part.where].append(part)
        else:
            part.end_as(TransactionEnd.GONE, f"{part.where} does not exist any more, or its topic was recreated")
    offsets = Offsets(cluster)
    ends, begins = absence.ends(cluster, there), offsets.earliest(there)
    apart = {where: watch.since_ms for where, own in by_partition.items() if not own}
    since = offsets.at_time(apart) if apart else {}
    for where, own in sorted(by_partition.items()):
        progress(len(watch.partitions), len(by_partition))
        watch.partitions.add(where)
        begin, end = begins[where], ends[where]
        for part in own:
            if part.first_offset < 0:
                part.end_as(TransactionEnd.GONE, f"the ledger has no first offset of its records in {where}")
            elif part.first_offset < begin:
                part.end_as(TransactionEnd.GONE, f"{where} begins at offset {begin} by now (retention)")
            elif part.first_offset >= end:
                part.end_as(TransactionEnd.GONE, f"{where} ends at offset {end}: an election lost the records")
        # What is gone says where to begin, too: the watch goes on behind it.
        start = min((part.first_offset for part in own), default=since.get(where))
        if start is not None and start < end:
            _Reading(cluster, where, own, watch, begin, there[where].topic_id).read_transactions(max(start, begin), end)
        for part in own:
            if part.end is None:
                part.end, part.reason = _beyond(cluster, part, end)


class _Reading:
    """One pass over one partition."""

    def __init__(
        self, cluster: Cluster, where: TopicPartition, parts: Iterable[CountedTransaction], watch: Watch, begin: int, topic_id: str
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._topic_id = topic_id
        self._where = where
        self._watch = watch
        self._begin = begin
        self._seed = topic_seed(where.topic)
        self._open: dict[int, list[CountedTransaction]] = {}
        """Producer id -> its parts that have not ended, the last one first."""
        for part in sorted(parts, key=lambda each: each.first_offset, reverse=True):
            if part.end is None:
                self._open.setdefault(part.identity.producer_id, []).append(part)
        self._others: dict[int, tuple[BatchInfo, int]] = {}
        """Producer id -> the first batch of its transaction that is no part, and how many records that has so far."""
        self._markers: list[BatchInfo] = []
        """Commits of watched producers whose records, if any, are older than the part that is read."""

    def read_transactions(self, start: int, end: int) -> None:
        """From `start` on, to `end` or as far as a reader of committed records may read."""
        offset, holes = start, _Holes(start)
        while offset < end or self._open:
            read = self._fetch(offset, end)
            if read.out_of_range:
                for part in (each for own in self._open.values() for each in own):
                    part.end_as(TransactionEnd.GONE, f"{self._where} lost records while they were read (retention)")
                break
            following = offset
            for batch in scan(read.records):
                if batch[0].base_offset >= end and not self._open:
                    break
                following = max(following, batch[0].last_offset + 1)
                holes.pass_by(batch[0])
                if batch[0].producer_id >= 0:
                    self._count_batch(batch, holes)
            if following == offset:
                break
            offset = following
        for marker in self._markers:
            self._look_back(marker, start)

    def _fetch(self, offset: int, end: int) -> RawRead:
        return read_raw(
            self._cluster,
            self._where,
            offset,
            isolation=ISOLATION_LEVELS[READ_COMMITTED],
            topic_id=self._topic_id,
            until=end,
        )

    def _count_batch(self, batch: Batch, holes: _Holes) -> None:
        info, _ = batch
        own = self._open.get(info.producer_id, [])
        if own and info.base_offset >= own[-1].first_offset:
            own[-1].add_batch(batch, self._seed, holes.last >= own[-1].first_offset)
            if own[-1].end is None:
                return
            ended = own.pop()
            if not own:
                del self._open[info.producer_id]
            if ended.end is not TransactionEnd.GONE:
                return
            # The batch is of a later transaction, which may be the next part.
            self._count_batch(batch, holes)
        elif info.producer_id in self._watch.producers:
            self._note(batch)

    def _note(self, batch: Batch) -> None:
        """A batch of a watched producer that is of no part."""
        info, _ = batch
        if not info.control:
            if info.transactional:
                first, records = self._others.get(info.producer_id, (info, 0))
                self._others[info.producer_id] = first, records + info.count
            return
        kind = control_marker(batch).kind
        if kind is MarkerKind.OTHER:
            return
        written = self._others.pop(info.producer_id, None)
        if kind is MarkerKind.COMMIT and written is None:
            marker = ProducerIdentity(info.producer_id, info.producer_epoch)
            if self._watch.suspects(self._where, marker):
                self._markers.append(info)
        elif kind is MarkerKind.COMMIT and written is not None:
            self._commit(*written, info)

    def _commit(self, first: BatchInfo, records: int, marker: BatchInfo) -> None:
        identity = ProducerIdentity(first.producer_id, first.producer_epoch)
        if records:
            self._watch.commits.append(
                CommittedRecords(self._where, identity, marker.producer_epoch, first.base_offset, records)
            )

    def _look_back(self, marker: BatchInfo, start: int) -> None:
        """Note what a commit has before the part that was read: a transaction may begin there, and its records may say
        that they are older than they are. Nothing where the commit is of a transaction without records here.
        """
        size, upper, found = _LOOK_BACK, start, None
        while upper > self._begin and found is None:
            lower = max(self._begin, upper - size)
            found = self._before(marker.producer_id, lower, upper)
            size, upper = 2 * size, lower
        if found is not None and found[1]:
            self._commit(*found, marker)

    def _before(self, producer_id: int, lower: int, upper: int) -> tuple[BatchInfo, int] | None:
        """The producer's last transaction between two offsets that has no marker there: its first batch, how many
        records; 0 where it has none. None where there is nothing of the producer.
        """
        offset, found = lower, None
        while offset < upper:
            read = self._fetch(offset, upper)
            following = offset
            for info, _ in scan(read.records):
                following = max(following, info.last_offset + 1)
                if info.producer_id != producer_id or info.base_offset >= upper:
                    continue
                if info.control:
                    found = info, 0
                elif info.transactional:
                    first, records = found if found is not None and found[1] else (info, 0)
                    found = first, records + info.count
            if following == offset:
                break
            offset = following
        return found


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


def _is_buried(batch: Batch, pipeline: str, batch_id: int) -> bool:
    """Whether a batch has dead letters of this decision. The first record tells it for all."""
    rows = decode_many([batch])
    return rows.headers is not None and len(rows) > 0 and is_dead_letter(rows.headers[0].as_py(), pipeline, batch_id)


def _cleaned(where: TopicPartition) -> str:
    return (
        f"{where} is compacted: its cleaner has removed records of the batch, which newer ones of their keys replaced"
    )


def _beyond(cluster: Cluster, part: CountedTransaction, end: int) -> tuple[TransactionEnd, str]:
    """Why a reader of committed records does not get to the end of a transaction: that transaction is open, or
    another. `end`: where the log ended when the reading began.
    """
    offset = part.first_offset
    holes = _Holes(offset)
    while True:
        read = read_raw(cluster, part.where, offset, topic_id=part.topic_id, until=end)
        following = offset
        for batch in scan(read.records):
            info = batch[0]
            following = max(following, info.last_offset + 1)
            holes.pass_by(info)
            if holes.last >= part.first_offset:
                # A cleaner stops at the first transaction that is open, so this one ended, and its marker is gone.
                return TransactionEnd.GONE, _cleaned(part.where)
            if info.control and info.producer_id == part.identity.producer_id:
                kind = control_marker(batch).kind
                if kind is MarkerKind.COMMIT:
                    return TransactionEnd.OPEN, (
                        f"it is committed, but readers of {part.where} wait at offset {read.last_stable_offset} for another "
                        "transaction; see `transactions list`"
                    )
                if kind is MarkerKind.ABORT:
                    return TransactionEnd.ABORTED, ""
        if following == offset:
            return TransactionEnd.OPEN, f"it has no marker in {part.where} yet; see `transactions explain`"
        offset = following


__all__ = ["CountedTransaction", "TransactionEnd", "Watch", "count"]
