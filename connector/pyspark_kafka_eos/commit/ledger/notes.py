"""Notes: the records in the ledger beside a pipeline's decisions, under keys of their own.

Owns: the notes, their keys and their bytes.
Does not know: how a note is written or found, which `ledger` does.
Invariants:
- A note states a fact that stays true, so a late write of one does no harm, and what becomes of its transaction says
  nothing.
- A note of another version is refused.
- Notes have keys that are not the pipeline's.

The notes:
- `Ended`: every transaction of a decided batch is committed and every marker of it was seen. Such a batch is
  never proven again: its ids may expire, and retention may remove its records. It names the driver's identity
  of that moment, which the next initialisation of the driver's id replaces.
- `Settled`: a decision is committed although the broker forgot its marker. The note carries the decision, because the
  transaction that holds the record may still be aborted while its marker is being mended. A decision that is larger
  than a record goes before it in parts (`SettledInParts`).
- `Mending`: the identity under which missing markers are being written, noted before the transaction holds anything.
  Any process that finds a transaction open under exactly this identity commits it.
- `Aborted`: the broker has aborted a decided transaction, and its own log no longer shows that: its topic was
  recreated, or its records were removed. Noted before the slot is written again, because that erases the coordinator's
  record of it.
- `Moved`: the ledger topic has more partitions, and the pipeline's next decision goes into another one (`places`).
- `DecisionPart`: a piece of a decision that is larger than a record (`parts`).
- `Renamed`: the query goes on under another name. It points to where a later batch of the query may be, whose number
  decides.
- `Named`: the producer ids under which the pipeline decides and notes. It is there before a decision under one that the
  decision before does not name.
- `Began`: a pipeline's first start. It is there before any transactional id is, so ids without it are of another
  ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_core.errors import LedgerUnreadable
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.commit.ledger.parts import MOST_PARTS, DecisionPart, Manifest, sha256_of
from pyspark_kafka_eos.model import Decision, require_format, strict
from pyspark_kafka_eos.model.seal import identity_of
from pyspark_kafka_eos.version import __version__

NOTE_VERSION = 1
"""Version of the notes' JSON. Raised when another version's reader would misread a note."""

ENDED, SETTLED = "ended", "settled"
"""Of the keys of these two kinds."""

_SEPARATOR = b"/"
"""Between the pipeline and the note's kind. No pipeline's name may contain it, so no note has the key of a decision."""


@dataclass(frozen=True)
class Ended:
    """Every transaction of this decision is committed, with all markers. `decided_ms` and `repaired` tell it from
    another decision of the same batch id. `driver`: the identity of the driver's id then, None where it is not known.
    """

    query_id: str
    batch_id: int
    decided_ms: int
    repaired: int
    driver: ProducerIdentity | None = field(default=None, compare=False)

    @staticmethod
    def of_decision(decision: Decision, driver: ProducerIdentity | None = None) -> Ended:
        """The note for a decision."""
        return Ended(decision.query_id, decision.batch_id, decision.decided_ms, decision.repaired, driver)


@dataclass(frozen=True)
class Settled:
    """The decision at `offset` of the ledger's partition, written by `identity`, is committed."""

    offset: int
    identity: ProducerIdentity
    decision: Decision


@dataclass(frozen=True)
class Mending:
    """Markers are being written under `transactional_id` by a transaction of `identity`, which holds nothing else."""

    transactional_id: str
    identity: ProducerIdentity
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Aborted:
    """The transaction of this identity was aborted, and no record of it was ever visible."""

    transactional_id: str
    identity: ProducerIdentity


@dataclass(frozen=True)
class SettledInParts:
    """`Settled` of a decision that is larger than a record: its parts are in front of this note, under keys of their
    own.
    """

    offset: int
    identity: ProducerIdentity
    manifest: Manifest


@dataclass(frozen=True)
class Began:
    """The query (`batch-write` for those of `df.write`, whose `batch.id` it is) began the pipeline with this batch,
    when no coordinator knew the pipeline, or its user had confirmed the batch (`adopted`), and no other one. While the
    ledger has no decision beside it, nothing of the pipeline was ever committed.
    """

    query_id: str
    batch_id: int
    adopted: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Renamed:
    """The query has begun to write under another pipeline name, by its user's word."""

    query_id: str
    pipeline: str


@dataclass(frozen=True)
class Moved:
    """A decision behind this note may be in another partition: the topic has so many by now."""

    partitions: int


@dataclass(frozen=True)
class Named:
    """The pipeline decides and notes under these producer ids."""

    producer_ids: tuple[int, ...]


Note = Ended | Settled | SettledInParts | Mending | Aborted | DecisionPart | Began | Renamed | Moved | Named


def note_key(pipeline: bytes, note: Note) -> bytes:
    """The record's key: one for each kind of note, for `Mending` and `Aborted` one for each transactional id, for a
    `DecisionPart` one for each number and group.
    """
    if isinstance(note, DecisionPart):
        group = f"{note.group}/" if note.group else ""
        return _part_prefix(pipeline) + f"{group}{note.number}".encode()
    key = pipeline + _SEPARATOR + kind_of(note).encode()
    if isinstance(note, Mending | Aborted):
        key += _SEPARATOR + note.transactional_id.encode()
    return key


_KINDS: Mapping[type[Note], str] = {
    Ended: "ended",
    Settled: "settled",
    SettledInParts: "settled",
    Mending: "mending",
    Aborted: "aborted",
    DecisionPart: "part",
    Began: "began",
    Renamed: "renamed",
    Moved: "moved",
    Named: "named",
}
"""The words of the format, which keys and values have. They stay when a class gets another name."""


def kind_of(note: Note) -> str:
    """The note's word in the ledger: of its key and of its value."""
    return _KINDS[type(note)]


def _part_prefix(pipeline: bytes) -> bytes:
    return pipeline + _SEPARATOR + b"part" + _SEPARATOR


def mending_prefix(pipeline: bytes) -> bytes:
    """What the keys of all mendings of a pipeline begin with."""
    return pipeline + _SEPARATOR + b"mending" + _SEPARATOR


def is_part_of(pipeline: bytes, key: bytes | None) -> bool:
    """Whether a record's key is that of a part of one of this pipeline's decisions."""
    return key is not None and key.startswith(_part_prefix(pipeline))


def is_note_of(pipeline: bytes, key: bytes | None) -> bool:
    """Whether a record's key is that of a note of this pipeline."""
    return key is not None and key.startswith(pipeline + _SEPARATOR)


def to_bytes(note: Note) -> bytes:
    """The record's value: versioned JSON in UTF-8."""
    body: dict[str, Any] = {
        "version": NOTE_VERSION,
        "connector_version": __version__,
        "note": kind_of(note),
    }
    if isinstance(note, Ended):
        body |= {
            "query_id": note.query_id,
            "batch_id": note.batch_id,
            "decided_ms": note.decided_ms,
            "repaired": note.repaired,
            "driver": None if note.driver is None else [note.driver.producer_id, note.driver.epoch],
        }
    elif isinstance(note, Settled):
        body |= {
            "offset": note.offset,
            "producer": [note.identity.producer_id, note.identity.epoch],
            "decision": json.loads(note.decision.to_bytes()),
        }
    elif isinstance(note, SettledInParts):
        body |= {
            "offset": note.offset,
            "producer": [note.identity.producer_id, note.identity.epoch],
            "manifest": note.manifest.to_json(),
        }
    elif isinstance(note, Began):
        body |= {"query_id": note.query_id, "batch_id": note.batch_id, "adopted": note.adopted}
    elif isinstance(note, Renamed):
        body |= {"query_id": note.query_id, "pipeline": note.pipeline}
    elif isinstance(note, Moved):
        body |= {"partitions": note.partitions}
    elif isinstance(note, Named):
        body |= {"producer_ids": list(note.producer_ids)}
    elif isinstance(note, DecisionPart):
        body |= {"digest": note.digest, "number": note.number, "group": note.group, "text": note.text}
    else:
        body |= {
            "transactional_id": note.transactional_id,
            "producer": [note.identity.producer_id, note.identity.epoch],
        }
        if isinstance(note, Mending):
            body |= {"partitions": [[where.topic, where.partition] for where in note.partitions]}
    return json.dumps(body, separators=(",", ":")).encode()


def from_bytes(value: bytes) -> Note:
    """Read a note back; LedgerUnreadable where it is garbled or of another version."""
    try:
        body = strict.load(value)
        require_format(body, NOTE_VERSION, "a note in the ledger")
        return _READERS[strict.text(body["note"])](body)
    except strict.MALFORMED as error:
        raise LedgerUnreadable(
            f"a note in the ledger is not in this connector's format ({strict.shown(error)}); nothing was changed; look at the "
            "record with a console consumer; if a newer version of this connector wrote it, run that version; if another "
            "program did, write a tombstone (a record without value) under its key, and start again when compaction has "
            "removed the record, which is read until then",
            {"value_start": value[:80].decode("utf-8", "replace")},
        ) from error


def _ended(body: Mapping[str, Any]) -> Ended:
    return Ended(
        strict.text(body["query_id"]),
        strict.whole(body["batch_id"]),
        strict.time_ms(body["decided_ms"]),
        strict.whole(body["repaired"]),
        None if body["driver"] is None else identity_of(body["driver"]),
    )


def _settled(body: Mapping[str, Any]) -> Settled | SettledInParts:
    offset, identity = strict.whole(body["offset"]), identity_of(body["producer"])
    if "manifest" in body:
        return SettledInParts(offset, identity, Manifest.from_json(body["manifest"]))
    return Settled(offset, identity, Decision.from_bytes(json.dumps(body["decision"]).encode()))


def _part(body: Mapping[str, Any]) -> DecisionPart:
    number = strict.whole(body["number"], 0, MOST_PARTS)
    return DecisionPart(sha256_of(body["digest"]), number, strict.text(body["text"]), strict.text(body["group"]))


def _began(body: Mapping[str, Any]) -> Began:
    return Began(strict.text(body["query_id"]), strict.whole(body["batch_id"]), strict.flag(body["adopted"]))


def _renamed(body: Mapping[str, Any]) -> Renamed:
    return Renamed(strict.text(body["query_id"]), strict.text(body["pipeline"]))


def _moved(body: Mapping[str, Any]) -> Moved:
    return Moved(strict.int32(body["partitions"]))


def _named(body: Mapping[str, Any]) -> Named:
    return Named(tuple(strict.whole(each) for each in strict.several(body["producer_ids"])))


def _aborted(body: Mapping[str, Any]) -> Aborted:
    return Aborted(strict.text(body["transactional_id"]), identity_of(body["producer"]))


def _mending(body: Mapping[str, Any]) -> Mending:
    places = (strict.several(each, 2) for each in strict.several(body["partitions"]))
    return Mending(
        strict.text(body["transactional_id"]),
        identity_of(body["producer"]),
        tuple(TopicPartition(strict.topic(topic), strict.int32(number)) for topic, number in places),
    )


_READERS: dict[str, Callable[[Mapping[str, Any]], Note]] = {
    "ended": _ended,
    "settled": _settled,
    "mending": _mending,
    "aborted": _aborted,
    "part": _part,
    "began": _began,
    "renamed": _renamed,
    "moved": _moved,
    "named": _named,
}
