"""The ledger: one compacted topic that holds the newest decision of each pipeline, and notes beside it.

Owns: the topic's settings, asking for a pipeline's newest decision, writing a new one and the notes.
Does not know: how a decision comes about, slots, Spark; the bytes of a note (`notes`); how the topic is read, which
`reader` does.
Invariants:
- A decision is written inside the driver's transaction only, a note in one of the id for notes (`notary`).
- A decision that is returned as the newest is committed.
- A record that cannot be read stops the query; it is never skipped.
- Nothing is inferred from a ledger that could not be read to its end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, LedgerUnreadable, OptionsError, UnknownTopic
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.every_broker import ask_every_broker
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.requests.own_topics import MARK
from pyspark_kafka_eos.client.writing.appending import append_record, lone_batch, one_record
from pyspark_kafka_eos.client.writing.delivery import stamper
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.ledger.mendings import mendings_in
from pyspark_kafka_eos.commit.ledger.notary import Notary
from pyspark_kafka_eos.commit.ledger.notes import (
    Ended,
    Moved,
    Named,
    Note,
    Settled,
    SettledInParts,
    kind_of,
    note_key,
    to_bytes,
)
from pyspark_kafka_eos.commit.ledger.parts import DecisionPart, cut
from pyspark_kafka_eos.commit.ledger.places import LAG_MS, Places
from pyspark_kafka_eos.commit.ledger.reader import LedgerRecord, LedgerView
from pyspark_kafka_eos.commit.ledger.writers import Writers
from pyspark_kafka_eos.model import Decision, Seal, driver_transactional_id
from pyspark_kafka_eos.records import MAX_OWN_BYTES, Packed, pack

log = logging.getLogger(__name__)

PARTITIONS = 8
"""Pipelines share the topic. One partition would do; a few spread many drivers' writes over brokers; many
more would cost open files for a few small records."""

SETTINGS = {
    "cleanup.policy": "compact",
    # The active segment is never compacted: small segments keep what a restart may have to read small.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    # A decision names every slot and partition of its batch; 8 MB are some 400,000 of those. A larger one goes in
    # parts.
    "max.message.bytes": str(8 * 1024 * 1024),
    # A source whose pattern matches the name leaves the topic out.
    **MARK,
}

_WAIT_MS = 90_000
"""How long to wait for a decision of this pipeline that has no end yet. Fencing ends a dead driver's decision at once.
The wait is for a coordinator that moves, and covers the driver's timeout of 60 s, which the broker checks every 10 s.
At half, a start would give up before that; at double, a hanging transaction is reported late.
"""

_SMALL_BYTES = 1024 * 1024
"""Decisions up to this size fit any ledger topic whose limit was not lowered on purpose. Larger ones are always
compared with the topic's limit; a process that has not read the limit sends one more request for it.
"""

_LARGEST_BYTES = MAX_OWN_BYTES // 2
"""Of a record's value: readers pass over what is larger than a record of this package can be."""

_REPLICAS_FOR_TWO = 3
"""Replicas from which on the ledger asks for two in sync: with three one may fail; with two none could."""


_NAMED = 16
"""How many producer ids a note names, the newest ones: they grow. A start after a long rest adds three; half would
leave out what two of them had, double lengthens a note that few starts write."""


class Ledger:
    """Decisions and notes of one pipeline."""

    def __init__(self, cluster: Cluster, topic: str, pipeline: str, *, fresh: bool = False) -> None:
        """`fresh`: the name was made up for this process, so nobody else has written under it."""
        self.cluster = cluster
        self.topic = topic
        self.pipeline = pipeline
        self.fresh = fresh
        self.last_commits: dict[str, ProducerIdentity] = {}
        """Transactional id -> the identity that its last commit left it at, as far as this process knows. What a
        decision or a note said of an id goes into each later decision, until a batch has a part for that id again.
        """
        self._key = pipeline.encode()
        self._writers = Writers(cluster, pipeline, fresh=fresh)
        self._places = Places(cluster, topic, pipeline, self._writers, fresh=fresh)
        self._notary = Notary(cluster, pipeline)
        self._limit: int | None = None
        self._parts_written = 0

    def prepare(self) -> None:
        """Make sure that the topic exists and is compacted; create it where it is missing. Afterwards its newest
        leaders are known: one that was cut off from the cluster would have an older decision, or none.
        """
        # One broker that has just started, or was cut off, lacks topics that are there.
        self.find_leaders()
        try:
            self.cluster.topic(self.topic, new_topic_ms=0)
        except UnknownTopic:
            settings = SETTINGS | self._durability()
            admin.ensure_topic(self.cluster, self.topic, partitions=PARTITIONS, settings=settings, wait_ms=_WAIT_MS)
        found = admin.topic_settings(self.cluster, self.topic, ["cleanup.policy", "max.message.bytes"])
        limit = (found or {}).get("max.message.bytes")
        self._limit = None if limit is None else int(limit)
        if found is None:
            log.warning(
                "cannot check whether ledger topic %r is compacted: the right to read its settings "
                "(DESCRIBE_CONFIGS) is missing. If the topic is not compacted, retention deletes decisions",
                self.topic,
            )
        policy = (found or {}).get("cleanup.policy")
        if policy is not None and policy != "compact":
            raise LedgerUnreadable(
                f"the ledger topic {self.topic!r} has cleanup.policy={policy}: decisions would be deleted; nothing was "
                "written; set cleanup.policy=compact or name another topic with ledger.topic",
                {"topic": self.topic, "cleanup_policy": policy},
            )

    def find_leaders(self) -> None:
        """Learn the ledger's newest leaders from every broker, before anything is concluded from what the ledger does
        not have.
        """
        ask_every_broker(self.cluster, [self.topic])

    def _durability(self) -> dict[str, str]:
        """The setting that keeps a decision when one broker is lost, where new topics get enough replicas."""
        found = admin.broker_settings(self.cluster, ["default.replication.factor"]) or {}
        replicas = int(found.get("default.replication.factor") or 1)
        return {"min.insync.replicas": "2"} if replicas >= _REPLICAS_FOR_TWO else {}

    @property
    def partition(self) -> TopicPartition:
        """Where this pipeline's next decision goes: Java's partitioning of the key, so any client finds it."""
        return self._places.own

    @property
    def home(self) -> TopicPartition:
        """Where notes go: beside the newest decision."""
        return self._places.home

    # ---- reading

    def look(self, lag_ms: int = LAG_MS) -> LedgerView:
        """What the ledger contains of this pipeline now, in every partition where that may be; reads on from where the
        last look ended. Does not wait, so a decision may be open; only for partitions that a note names, and the
        brokers do not show yet, up to `lag_ms`. LedgerUnreadable for a record under this pipeline's keys that cannot be
        read.
        """
        return self._places.look(lag_ms)

    def look_anew(self) -> LedgerView:
        """`look` at the newest leaders that any broker names: for who concludes from a note that it is not there."""
        self.find_leaders()
        return self.look()

    def mended(self) -> set[tuple[str, ProducerIdentity]]:
        """Every mending of this pipeline that the ledger has a note of, however old: the whole topic is read."""
        known = self.producer_ids
        return {each for where in self._places.all() for each in mendings_in(self.cluster, where, self.pipeline, known)}

    def settled(self) -> LedgerView:
        """The same, once no decision of this pipeline is open any more; the wait is bounded. The caller has
        fenced its own pipeline's driver, or would wait for that driver's timeout."""
        deadline = runtime.monotonic() + _WAIT_MS / 1000
        while True:
            view = self.look()
            if view.open is None or view.settled:
                return view
            if runtime.monotonic() > deadline:
                where = view.open.where
                raise BrokerUnavailable(
                    f"a decision of this pipeline at offset {view.open.offset} of {where} is neither committed nor aborted, "
                    "so the newest one cannot be read; nothing was written; look for its owner with Kafka's "
                    "find-hanging",
                    {"partition": str(where), "offset": view.open.offset},
                )
            self.cluster.pause()

    def newest(self, *, settle: bool) -> Decision | None:
        """The newest committed decision of this pipeline, None where it has none. `settle`: as `settled`
        reads it. Without it the answer may be one decision behind, never a wrong one."""
        return (self.settled() if settle else self.look()).newest

    def decision(self, record: LedgerRecord) -> Decision:
        """The decision of a record of the last view; LedgerUnreadable where it is none of this pipeline's."""
        return self._places.decision(record)

    # ---- writing

    def left_at(self, transactional_id: str, identity: ProducerIdentity) -> None:
        """A commit of the id was asked for under this identity. Whatever becomes of that, no earlier one is shown of it
        any more.
        """
        if transactional_id != driver_transactional_id(self.pipeline):
            self.last_commits[transactional_id] = identity

    def earlier(self, seals: Iterable[Seal]) -> tuple[tuple[str, ProducerIdentity], ...]:
        """What the decision of these seals says of the ids without a part in it: the identity that each one's last
        commit left.
        """
        known = self.last_commits
        # Whatever becomes of the batch: no earlier commit is shown of these ids any more.
        now = {seal.transactional_id: end for seal in seals if (end := seal.end_identity) is not None}
        earlier = sorted((name, each) for name, each in known.items() if name not in now)
        known |= now
        return tuple(earlier)

    @property
    def writers(self) -> tuple[int, ...]:
        """The producer ids under which the pipeline decides and notes, for a decision to name."""
        return self._writers.named

    @property
    def producer_ids(self) -> frozenset[int] | None:
        """The pipeline's producer ids as of the last look; None where nobody can tell, and every record counted."""
        return self._places.known

    def written_by(self, *identities: ProducerIdentity | None) -> None:
        """This process has these identities of the pipeline's ids."""
        self._writers.learn(each.producer_id for each in identities if each is not None)

    def add_decision(self, producer: Producer, decision: Decision) -> None:
        """Put a decision into the driver's open transaction, in parts where it is larger than a record of the topic may
        be. It becomes visible when, and only if, that commits.

        OptionsError where not even parts fit; nothing of it is sent then.
        """
        self._name(producer.identity, decision)
        value = decision.to_bytes()
        packed = _packed(self._key, value)
        room = self._room(len(packed), len(value))
        batches = [packed]
        if room is not None:
            manifest, parts = cut(value, room - len(self._key))
            batches = [_packed(note_key(self._key, part), to_bytes(part)) for part in parts]
            batches.append(_packed(self._key, manifest.to_bytes()))
            self._require_fit(decision, batches, room)
            self._parts_written = max(self._parts_written, len(parts))
        if (left := self._places.leaves()) is not None:
            # Behind the decision before: who looks for the newest one there looks for this one too.
            self._append_note(Moved(self._places.count), left)
        self._places.moved()
        for batch in batches:
            producer.send(self.partition, 1, stamper(batch, producer.identity), machine_time=batch.machine_time)
            if room is not None:
                crash_points.reached("decision-part-sent")

    def name_writers(self, *identities: ProducerIdentity | None) -> None:
        """Have it on record that the pipeline writes under these identities, before it decides under any of them."""
        self.written_by(*identities)
        mine = {each.producer_id for each in identities if each is not None}
        if not self.fresh and not mine <= self._places.on_record:
            # Whoever dies behind this note has the decision on record that was believed.
            believed = set() if self._places.believed is None else {self._places.believed}
            # Those of before as well: this note takes the place of the one that named them.
            self.note(Named(tuple(sorted({*believed, *(self._places.known or ()), *self.writers})[-_NAMED:])))
            self._places.on_record |= frozenset(self.writers)

    def _name(self, identity: ProducerIdentity, decision: Decision) -> None:
        """Have it on record that the pipeline decides under this identity, before it does. A coordinator may forget it
        while it knows the pipeline's other ids; beside an older decision this one would be somebody else's then.
        """
        # A run has named its first ones when it took the pipeline over.
        if decision.number > 1:
            self.name_writers(identity)
        else:
            self.written_by(identity)
        self._places.on_record |= frozenset(decision.writers)

    def _room(self, packed_bytes: int, value_bytes: int) -> int | None:
        """What a batch may have where one of this size has more, else None. `value_bytes`: of its record's value."""
        bomb = value_bytes > _LARGEST_BYTES
        if self._limit is None:
            if packed_bytes <= _SMALL_BYTES and not bomb:
                return None
            self._limit = admin.max_message_bytes(self.cluster, self.topic)
        return min(self._limit, _LARGEST_BYTES) if bomb or packed_bytes > self._limit else None

    def _require_fit(self, decision: Decision, batches: Iterable[Packed], room: int) -> None:
        largest = max(len(batch) for batch in batches)
        if largest > room:
            raise OptionsError(
                f"the records of ledger topic {self.topic!r} are too small for any decision: a part of this one has {largest} "
                f"bytes where max.message.bytes={room}; nothing of the batch is visible; raise max.message.bytes of that topic",
                {
                    "topic": self.topic,
                    "size_bytes": largest,
                    "limit_bytes": room,
                    "tasks": len(decision.seals),
                },
            )

    def note(self, note: Note, where: TopicPartition | None = None) -> None:
        """Put a note beside the newest decision, or into the partition `where`; returns when it is
        acknowledged. BrokerUnavailable where it may not be."""
        crash_points.reached(f"before-note-{kind_of(note)}")
        where = where or self._places.home
        self._append_note(self._settled_in_parts(note, where) if isinstance(note, Settled) else note, where)
        crash_points.reached(f"after-note-{kind_of(note)}")

    def _settled_in_parts(self, note: Settled, where: TopicPartition) -> Settled | SettledInParts:
        """The note as it fits a record; the parts of its decision are in the ledger then.

        Their keys are of this note alone: the note before may still be needed when this process dies among them.
        """
        key, value = note_key(self._key, note), to_bytes(note)
        room = self._room(len(lone_batch(key, value)), len(value))
        if room is None:
            return note
        manifest, parts = cut(note.decision.to_bytes(), room - len(self._key), str(note.offset))
        for part in parts:
            self._append_note(part, where)
            crash_points.reached("settled-part-noted")
        return SettledInParts(note.offset, note.identity, manifest)

    def _append_note(self, note: Note, where: TopicPartition) -> None:
        batch = _packed(note_key(self._key, note), to_bytes(note))
        what = f"a note of pipeline {self.pipeline!r}"
        # Without the note that it is ended a batch is proven once more.
        author = self._notary.write_note(where, batch, what, needed=not isinstance(note, Ended))
        self._writers.learn([author])

    def forget(self) -> None:
        """Mark this pipeline's decision for removal (a record without value, which compaction takes with the
        others).
        """
        what = f"the end of pipeline {self.pipeline!r}"
        for number in range(self._parts_written):
            self._append(note_key(self._key, DecisionPart("", number, "")), None, what)
        self._append(self._key, None, what)

    def _append(self, key: bytes, value: bytes | None, what: str, where: TopicPartition | None = None) -> None:
        grant = f"grant WRITE on topic {self.topic!r}"
        append_record(self.cluster, where or self.partition, key, value, what=what, grant=grant)


def _packed(key: bytes, value: bytes) -> Packed:
    return pack(one_record(key, value), transactional=True, compression="gzip", max_batch_bytes=None)
