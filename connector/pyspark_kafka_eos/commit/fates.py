"""How transactions ended, by the control markers in the partitions' logs, without asking a coordinator.

Owns: reading control markers and the sealed records' places.
Does not know: what follows from a fate; who may say that something is not there (`client.reading.absence`).
Invariants:
- A log is read from a leader of at least the epoch under which the records were acknowledged, and ends where that
  leader says so once its high watermark is known. Where no such leader is found in time, there is no fate.
- A partition is read once, however many slots wrote there: 1,000 slots of one partition would read its end 1,000 times
  otherwise.
- Each topic's metadata are asked for once: an answer has all partitions of the topic.
Sources: KIP-98 (control markers).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import LogMark, Offsets
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.records import Batch, MarkerKind, control_marker, scan


class Fate(Enum):
    """What the log of one partition shows of a transaction that wrote there."""

    COMMITTED = "a commit marker ended it"
    ABORTED = "an abort marker ended it"
    NO_MARKER = "its records are there, and nothing has ended it"
    GONE = "the topic was deleted or recreated: its records are not there, and never will be"
    LOST = "the log of that very topic does not have them any more: an election lost them"
    REMOVED = "the log begins behind it: retention or DeleteRecords removed it, whether it was ever visible or not"
    DOUBTFUL = (
        "its marker was missing when its log went, and nothing shows how the transaction ended that was to write it"
    )
    UNKNOWN = "the log does not show where it begins, or what became of it"


@dataclass(eq=False)
class _Sought:
    """A transaction in one partition. `leader_epoch`: see `SealedPartition`. `seen`: the producer has a batch at
    `first_offset` or later; `records`: how many records these batches hold."""

    producer_id: int
    first_offset: int
    leader_epoch: int = -1
    seen: bool = False
    records: int = 0
    fate: Fate | None = None

    def known(self) -> Fate:
        """Its fate, when the partition has been read."""
        assert self.fate is not None
        return self.fate


def fates_of(cluster: Cluster, seals: Sequence[Seal]) -> dict[int, dict[TopicPartition, Fate]]:
    """Slot -> the fate of its transaction in each of its partitions. `seals`: one for each slot, none empty.

    AuthorizationFailed without READ on a topic; BrokerUnavailable where a partition cannot be read now, or no broker
    answers that can know of its records.
    """
    # A batch in one transaction may have no row at all: it has a transaction, and wrote to no partition.
    found: dict[int, dict[TopicPartition, _Sought]] = {seal.slot: {} for seal in seals}
    sought: dict[TopicPartition, list[_Sought]] = {}
    for seal in seals:
        assert seal.identity is not None
        for part in seal.partitions:
            where = TopicPartition(part.topic, part.partition)
            each = _Sought(seal.identity.producer_id, part.first_offset, part.leader_epoch)
            found[seal.slot][where] = each
            sought.setdefault(where, []).append(each)
    places = places_of(seals)
    there = absence.existing(cluster, places)
    for where in sorted(sought):
        for each in sought[where]:
            if each.first_offset < 0:
                each.fate = Fate.UNKNOWN
            elif where not in there:
                each.fate = Fate.GONE
        if where in there:
            _read(cluster, where, sought[where], places[where].topic_id)
    return {slot: {where: each.known() for where, each in parts.items()} for slot, parts in found.items()}


def places_of(seals: Iterable[Seal]) -> dict[TopicPartition, LogMark]:
    """Where the sealed transactions wrote, and what has to be known there."""
    found: dict[TopicPartition, LogMark] = {}
    for seal in seals:
        ids = {topic.name: topic.topic_id for topic in seal.topics}
        for part in (*seal.partitions, *(each.part for each in seal.kept)):
            where = TopicPartition(part.topic, part.partition)
            known = found.get(where, LogMark(ids.get(part.topic, "")))
            found[where] = replace(known, leader_epoch=max(known.leader_epoch, part.leader_epoch))
    return found


def lacking(cluster: Cluster, seal: Seal, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Those of the partitions whose logs do not have all records of an open transaction. The same errors."""
    assert seal.identity is not None
    found = []
    places = places_of([seal])
    for part in seal.partitions:
        where = TopicPartition(part.topic, part.partition)
        if where in partitions:
            sought = _Sought(seal.identity.producer_id, part.first_offset, part.leader_epoch)
            _read(cluster, where, [sought], places[where].topic_id)
            if sought.fate in (Fate.LOST, Fate.NO_MARKER) and sought.records < part.records:
                found.append(where)
    return found


def fate_of(cluster: Cluster, where: TopicPartition, producer_id: int, first_offset: int) -> Fate:
    """The fate of what a producer wrote at an offset of a partition that exists. The same errors.

    A producer's records are followed by their own marker before it can begin another transaction, so the first marker
    of the producer from there on is this transaction's.
    """
    sought = _Sought(producer_id, first_offset)
    if first_offset < 0:
        sought.fate = Fate.UNKNOWN
    _read(cluster, where, [sought])
    return sought.known()


def _read(cluster: Cluster, where: TopicPartition, sought: Sequence[_Sought], topic_id: str = "") -> None:
    """Read a partition until every fate is known. Those that are known already are left alone. `topic_id`: of the topic
    that was written to; a later one of the name is not read.
    """
    waiting = _Waiting(sought)
    if not waiting.left:
        return
    offset = 0
    known = LogMark(leader_epoch=max(each.leader_epoch for each in waiting.left))
    absence.require_leaders(cluster, {where: known})
    give_up = runtime.monotonic() + absence.WITNESS_MS / 1000
    while waiting.left:
        offset = max(offset, waiting.left[0].first_offset)
        read = read_raw(cluster, where, offset, topic_id=topic_id)
        if read.out_of_range:
            # That answer never contains the log's start, so the offset may be before the start or behind the end.
            earliest = Offsets(cluster).earliest([where])[where]
            for each in waiting.left:
                if earliest > each.first_offset:
                    each.fate = Fate.REMOVED
                elif offset >= earliest:
                    each.fate = Fate.LOST
            waiting.drop_known()
            continue
        for each in waiting.left:
            if read.log_start_offset > each.first_offset:
                each.fate = Fate.REMOVED
        following = offset
        for batch in scan(read.records):
            waiting.look_at(batch)
            following = max(following, batch[0].last_offset + 1)
        if following == offset:
            if absence.ends(cluster, {where: known})[where] <= offset:
                _at_the_end(waiting.left, offset)
            elif runtime.monotonic() >= give_up:
                raise BrokerUnavailable(
                    f"{where} ends behind offset {offset}, and its leader returned nothing from there on within the time allowed; "
                    "nothing is concluded from this",
                    {"partition": str(where), "offset": offset, "timeout_ms": absence.WITNESS_MS},
                )
            else:
                # The leader learned its high watermark only after it had answered.
                cluster.pause()
        offset = following
        waiting.drop_known()


def _at_the_end(left: Sequence[_Sought], end: int) -> None:
    """The log ends here."""
    for each in left:
        if each.fate is None:
            each.fate = Fate.NO_MARKER if each.seen else Fate.UNKNOWN
            if not each.seen and end <= each.first_offset:
                each.fate = Fate.LOST


class _Waiting:
    """Those whose fate is not known yet, by where they begin and by producer."""

    def __init__(self, sought: Sequence[_Sought]) -> None:
        self.left = sorted((each for each in sought if each.fate is None), key=lambda each: each.first_offset)
        self._by_producer: dict[int, list[_Sought]] = {}
        for each in self.left:
            self._by_producer.setdefault(each.producer_id, []).append(each)
        self._beginning: Iterator[_Sought] = iter(self.left)
        self._next = next(self._beginning, None)

    def look_at(self, batch: Batch) -> None:
        """The next batch of the log."""
        info, _ = batch
        for each in self._by_producer.get(info.producer_id, ()):
            if each.fate is None and info.last_offset >= each.first_offset:
                each.seen = True
                each.records += 0 if info.control else info.count
                if info.control and (kind := control_marker(batch).kind) is not MarkerKind.OTHER:
                    each.fate = Fate.COMMITTED if kind is MarkerKind.COMMIT else Fate.ABORTED
                    if each.fate is Fate.COMMITTED and not each.records and info.base_offset == each.first_offset:
                        # The commit marker stands where the first record was, so the records were lost before it was
                        # written.
                        each.fate = Fate.LOST
        while self._next is not None and self._next.first_offset <= info.last_offset:
            begins = self._next
            if begins.first_offset >= info.base_offset and begins.producer_id != info.producer_id:
                # Another producer's records are at this offset: compaction removes records but puts none in their
                # place.
                begins.fate = begins.fate or Fate.LOST
            self._next = next(self._beginning, None)

    def drop_known(self) -> None:
        """Keep those whose fate is not known."""
        self.left = [each for each in self.left if each.fate is None]
