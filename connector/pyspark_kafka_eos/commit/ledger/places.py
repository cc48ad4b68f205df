"""In which partitions of the ledger a pipeline's records are: a ledger topic that got more partitions moves the keys.

Owns: finding the newest decision over the partitions, where notes and the next decision go.
Does not know: how one partition is read (`reader`), what follows from a decision.
Invariants:
- "No decision" is said only after every partition was read, whose number was asked for anew.
- A run writes to one partition, that of the key as the topic was when the run began to read, whatever the topic gets
  meanwhile.
- A note about a decision is in the decision's own partition.
- Before a decision goes into another partition than the one before it, a note (`Moved`) is behind that one.

Why the key's partition is enough where it has a decision with no such note behind it. Every writer of a later decision
was an owner of the pipeline: it had fenced the one before, had waited for what that one had open, and knew the newest
decision. Had it written elsewhere, its note would be there. A run whose metadata are older finds the note too, and in
it how many partitions there are. Where several partitions have a decision, the one with the highest number is the
newest: a decision counts from the one before it, so clocks and offsets play no part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from kafka_core.errors import BrokerUnavailable
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.client.writing.appending import one_value
from pyspark_kafka_eos.commit.ledger.reader import LedgerReader, LedgerRecord, LedgerView
from pyspark_kafka_eos.commit.ledger.writers import Writers
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.records import murmur2_of

LAG_MS = 30_000
"""How long the brokers' metadata may lack partitions that a note names. A broker that has just started has them within
seconds; half would fail a start during a slow one, double only delays the error.
"""


class Places:
    """One pipeline's partitions of the ledger, as one process knows them. Not for several threads."""

    def __init__(self, cluster: Cluster, topic: str, pipeline: str, writers: Writers, *, fresh: bool = False) -> None:
        """`fresh`: the name was made up for this process, so no other partition is looked at."""
        self._cluster = cluster
        self._topic = topic
        self._pipeline = pipeline
        self._fresh = fresh
        self._writers = writers
        self.known: frozenset[int] | None = None
        """The pipeline's producer ids as of the last look; None where nobody can tell."""
        self.on_record = frozenset[int]()
        """The producer ids that the pipeline's newest decision or a note names, as of the last look."""
        self._judged = False
        """Whether a decision or a note of producer ids was found of which it is known that the pipeline wrote it."""
        self.believed: int | None = None
        """The producer id of the newest decision, where it was believed because nobody could tell."""
        self._believed = False
        """Whether a record of somebody unknown was believed, because nobody could tell."""
        self._count: int | None = None
        self._home: TopicPartition | None = None
        self._readers: dict[TopicPartition, LedgerReader] = {}

    @property
    def count(self) -> int:
        """The partitions of the topic by which the key is placed."""
        if self._count is None:
            self._count = len(self._cluster.topic(self._topic).leaders)
        return self._count

    @property
    def own(self) -> TopicPartition:
        """Where the next decision goes: Java's partitioning of the key, so any client finds it."""
        hashed = int(murmur2_of(one_value(self._pipeline.encode()))[0])
        return TopicPartition(self._topic, (hashed & 0x7FFFFFFF) % self.count)

    @property
    def home(self) -> TopicPartition:
        """Where the newest decision is, and the notes about it go; that of the next one where there is none yet."""
        return self._home or self.own

    def leaves(self) -> TopicPartition | None:
        """The partition that a note has to be put into before the next decision is written; None where that one
        stays.
        """
        return self._home if self._home not in (None, self.own) else None

    def moved(self) -> None:
        """A decision is being written to the key's partition."""
        self._home = self.own

    def all(self, at_least: int = 0, lag_ms: int = LAG_MS, *, vouched: bool = True) -> list[TopicPartition]:
        """Every partition, as the topic is now. BrokerUnavailable where there are not so many, which a note names.
        `vouched`: whether it is known that the pipeline wrote that.
        """
        offsets, last = Offsets(self._cluster), TopicPartition(self._topic, at_least - 1)
        lag_ms, expected = (lag_ms, [last]) if at_least else (0, [])
        found = offsets.partitions_of([self._topic], patience_ms=lag_ms, expected=expected)
        if len(found) < at_least:
            raise BrokerUnavailable(
                f"the brokers report {len(found)} partitions of ledger topic {self._topic!r}, and a note in it names {at_least}: "
                + ("" if vouched else "no coordinator knows who wrote that note, or ")
                + "their metadata are behind, so the newest decision may be in a partition that they do not show; nothing was "
                "written; it is retried. If the topic was deleted and recreated, restore it",
                {"topic": self._topic, "partitions": len(found), "noted": at_least},
            )
        self._count = max(self._count or 0, len(found))
        return found

    def look(self, lag_ms: int = LAG_MS) -> LedgerView:
        """What the ledger has of the pipeline now: of the partitions where its newest decision may be, or of all.
        `lag_ms`: how long to wait for partitions that a note names.
        """
        self._writers.ask_coordinators()
        view = self._read({self.own, self.home})
        # A decision of somebody unknown may stand where the pipeline's own is in another partition.
        while view.moved is not None or self._unsure(view):
            found = self.all(view.moved.partitions if view.moved is not None else 0, lag_ms, vouched=view.known)
            view = self._read(found)
            if view.moved is None or view.moved.partitions <= len(found):
                break
        self._home = view.where
        # What others have is not read again before it is needed.
        kept = {self.own, self.home} | ({view.open.where} if view.open is not None else set())
        if self._home is not None:
            self._readers = {where: reader for where, reader in self._readers.items() if where in kept}
        return view

    def _unsure(self, view: LedgerView) -> bool:
        return not self._fresh and (view.newest is None or not view.known)

    def decision(self, record: LedgerRecord) -> Decision:
        """The decision of a record of the last view; LedgerUnreadable where it is none of this pipeline's."""
        return self._reader(record.where).decision(record)

    def _reader(self, where: TopicPartition) -> LedgerReader:
        return self._readers.setdefault(where, LedgerReader(self._cluster, where, self._pipeline, self._writers))

    def _read(self, places: Collection[TopicPartition]) -> LedgerView:
        offsets = Offsets(self._cluster)
        # Not the last stable offset: another pipeline's open decision would hide what this one has decided since.
        ends = offsets.latest(places, READ_UNCOMMITTED)
        unread = [where for where in places if self._reader(where).unread]
        begins = offsets.earliest(unread) if unread else {}
        readers = {where: self._reader(where) for where in sorted(places)}
        for where, reader in readers.items():
            reader.read_on(begins.get(where), ends[where])
        known = self.known = self._judge(list(readers.values()))
        if known is not None and self._believed:
            self._believed, self._readers = False, {}
            return self._read(places)
        views = {where: reader.view(known) for where, reader in readers.items()}
        view = next(iter(views.values())) if len(views) == 1 else _of_all(views, self.own)
        self.believed = view.writer if known is None else None
        displaced = known is None and view.newest is not None and self._writers.decided
        return replace(view, known=known is not None, displaced=displaced, believed=known is None and self._believed)

    def _judge(self, readers: Collection[LedgerReader]) -> frozenset[int] | None:
        """The pipeline's producer ids, with those that its decisions name; None where it is not known to have made any
        decision.
        """
        known, made = self._named(readers)
        others = any(reader.has_others(known) for reader in readers)
        if others:
            self._writers.ask_coordinators(again=True)
            known, made = self._named(readers)
        self._judged = self._judged or made
        self._believed = self._believed or (others and not self._judged)
        return known if self._judged else None

    def _named(self, readers: Collection[LedgerReader]) -> tuple[frozenset[int], bool]:
        """The producer ids that are known, with those that the newest decision and note of these name, and so on;
        whether there is such a decision or note.
        """
        known = more = self._writers.producer_ids
        while more:
            self.on_record = frozenset[int]().union(*(reader.names(known) for reader in readers))
            more = self.on_record - known
            known |= more
        return known, any(reader.named or reader.newest_of(known) is not None for reader in readers) and bool(known)


def _of_all(views: Mapping[TopicPartition, LedgerView], own: TopicPartition) -> LedgerView:
    """One view of several partitions: that of the newest decision, with what the others have open and noted."""
    newest = {where: each.newest.number for where, each in views.items() if each.newest is not None}
    home = max(newest, key=lambda where: (newest[where], where == own), default=None)
    base = views[own] if home is None else views[home]
    opened = next((each for each in (base, *views.values()) if each.open is not None), base)
    moved = [each.moved for each in views.values() if each.moved is not None]
    mendings = {name: note for each in views.values() for name, note in each.mendings.items()}
    aborted = {name: each for view in views.values() for name, each in view.aborted.items()}
    mended_at = {name: at for each in views.values() for name, at in each.mended_at.items()}
    return replace(
        base,
        where=home,
        open=opened.open,
        settled=opened.settled,
        all_open=opened.all_open,
        ends=frozenset().union(*(each.ends for each in views.values())),
        mendings=mendings | dict(base.mendings),
        mended_at=mended_at | dict(base.mended_at),
        aborted=aborted | dict(base.aborted),
        mended=frozenset().union(*(each.mended for each in views.values())),
        foreign=next((each.foreign for each in views.values() if each.foreign is not None), None),
        forgotten=home is None and any(each.forgotten for each in views.values()),
        renamed=base.renamed or next((each.renamed for each in views.values() if each.renamed is not None), None),
        began=base.began or next((each.began for each in views.values() if each.began is not None), None),
        moved=base.moved if home is not None else max(moved, key=lambda each: each.partitions, default=None),
    )


__all__ = ["Places"]
