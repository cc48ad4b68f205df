"""The contents of a decision, with their one JSON form, which the ledger keeps.

Owns: the fields, the format's version.
Does not know: how they are made, sent or stored.
Invariants:
- `from_bytes(to_bytes(x)) == x`.
- A field that a newer version adds without raising the format's version is ignored by an older reader.
- A record of another format version is refused, with the version that wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka_core.errors import Fact, LedgerUnreadable
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.model import strict
from pyspark_kafka_eos.model.basis import NO_BASIS, Basis
from pyspark_kafka_eos.model.ids import batch_transactional_id, prefix_of
from pyspark_kafka_eos.model.routes import RoutedTopic, Routes
from pyspark_kafka_eos.model.seal import Seal, identity_of
from pyspark_kafka_eos.model.traffic import Traffic
from pyspark_kafka_eos.model.write_settings import NO_ROW_OPTIONS, RowOptions


class LoggedOffsets(tuple[str, ...]):
    """A batch's entry of Spark's offset log: a text for each source. `planned_ms`: when Spark planned the batch, where
    those texts do not tell which rows they are; None where they do.
    """

    planned_ms: int | None

    def __new__(cls, texts: Iterable[str], planned_ms: int | None = None) -> LoggedOffsets:
        """A tuple of the texts."""
        made = super().__new__(cls, texts)
        made.planned_ms = planned_ms
        return made


def planned_ms(source_offsets: Sequence[str] | None) -> int | None:
    """When Spark planned the batch that has these offsets, as far as they were read from its log."""
    return source_offsets.planned_ms if isinstance(source_offsets, LoggedOffsets) else None


_SHOWN = 60
"""Characters of an id that an error shows."""

_MOST_DECISIONS = 2**62
"""No pipeline makes so many, and the decisions after a made up one still have room."""

LEDGER_FORMAT_VERSION = 1
"""Version of the decision's JSON. Raised when another version's reader would misread a record."""


@dataclass(frozen=True)
class Decision:
    """The driver's durable decision to commit a batch: which slots wrote what, and from which source offsets.

    `source_offsets` is Spark's offset-log line per source (JSON text); `planned_ms` as in `LoggedOffsets`. `repaired`
    counts rewrites of lost slots.
    `earlier`: the ids of this pipeline that have no part in this batch, each with the identity that its last
    commit left, and after a repair those whose missing markers were written under another identity than the
    sealed one. `warnings`: the warnings that were logged for the batch. `traffic`: what its tasks needed to
    send its records, as far as this run wrote them; None where nothing was sent.
    `sticky_bytes`: of the plan that its tasks had (`slot.plan`), which a repair has to have too. `basis`: what they
    read and judged their rows by, likewise. `row_options`: the query's options that they had, likewise. `number`: how
    many decisions the pipeline has made with this one, repairs included; of two decisions in different partitions of
    the ledger the higher one is the newer. `writers`: the producer ids that the pipeline's ids for decisions and notes
    had then.
    """

    pipeline: str
    query_id: str
    batch_id: int
    seals: tuple[Seal, ...]
    source_offsets: tuple[str, ...] = ()
    decided_ms: int = 0
    connector_version: str = ""
    repaired: int = 0
    earlier: tuple[tuple[str, ProducerIdentity], ...] = ()
    warnings: tuple[str, ...] = ()
    traffic: Traffic | None = None
    sticky_bytes: int = 1
    basis: Basis = NO_BASIS
    row_options: RowOptions = NO_ROW_OPTIONS
    number: int = 0
    planned_ms: int | None = None
    writers: tuple[int, ...] = ()

    @property
    def ends(self) -> dict[str, ProducerIdentity]:
        """Transactional id -> the identity under which its coordinator shows its last commit, as of this decision."""
        own = {seal.transactional_id: seal.end_identity for seal in self.seals}
        return {name: each for name, each in own.items() if each is not None} | dict(self.earlier)

    def repaired_by(
        self, seals: tuple[Seal, ...], last_commits: Mapping[str, ProducerIdentity] | None = None
    ) -> Decision:
        """This decision with the seals after one more repair. `last_commits`: id -> the identity that its last commit
        left it at, which is not the sealed one where missing markers of a slot were written since.
        """
        before = {seal.slot: seal for seal in self.seals}
        again = [seal for seal in seals if seal != before.get(seal.slot)]
        traffic = Traffic.of_all([self.traffic, *(seal.traffic for seal in again)])
        written = {seal.transactional_id for seal in again if seal.identity is not None}
        left = {**self.ends, **(last_commits or {})}
        sealed = {seal.transactional_id: seal.end_identity for seal in seals}
        earlier = [
            (name, each) for name, each in sorted(left.items()) if name not in written and each != sealed.get(name)
        ]
        return replace(
            self,
            seals=seals,
            repaired=self.repaired + 1,
            number=self.number + 1,
            traffic=traffic,
            earlier=tuple(earlier),
        )

    @property
    def routes(self) -> Routes:
        """What its slots routed by, which a repair has to route by too."""
        return Routes.of_all(
            [
                *((seal.slot, seal.topics) for seal in self.seals),
                *(each for seal in self.seals for each in seal.apart),
            ]
        )

    @property
    def records(self) -> int:
        """Records of the whole batch."""
        return sum(seal.records for seal in self.seals)

    @property
    def dead_letters(self) -> int:
        """How many of the batch's records are dead letters."""
        return sum(seal.dead_letters for seal in self.seals)

    @property
    def in_one_transaction(self) -> bool:
        """True where the records were in the decision's own transaction
        (transaction.scope=batch): a decided batch is committed then."""
        whole = batch_transactional_id(self.pipeline)
        return any(seal.transactional_id == whole for seal in self.seals)

    def to_bytes(self) -> bytes:
        """The ledger record's value: versioned JSON in UTF-8."""
        topics = {topic.name: topic for topic in self.routes.usual}
        before = {
            "version": LEDGER_FORMAT_VERSION,
            "connector_version": self.connector_version,
            "pipeline": self.pipeline,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
        }
        body: dict[str, Any] = {
            "topics": [topic.to_json() for topic in topics.values()],
            "source_offsets": list(self.source_offsets),
            "decided_ms": self.decided_ms,
            "repaired": self.repaired,
            "number": self.number,
            "writers": list(self.writers),
            "earlier": [[name, each.producer_id, each.epoch] for name, each in self.earlier],
            "warnings": list(self.warnings),
            "traffic": None if self.traffic is None else self.traffic.to_json(),
            "sticky_bytes": self.sticky_bytes,
        }
        if self.basis != NO_BASIS:
            body["basis"] = self.basis.to_json()
        if self.planned_ms is not None:
            body["planned_ms"] = self.planned_ms
        body["row_options"] = self.row_options.to_json()
        # Seal by seal: all of them as dicts at once take 11 MB for 10,000 slots, of which the process keeps the pages.
        seals = ",".join(_text_of(_without_usual(seal, topics)) for seal in self.seals)
        return f'{_text_of(before)[:-1]},"seals":[{seals}],{_text_of(body)[1:]}'.encode()

    @staticmethod
    def from_bytes(value: bytes) -> Decision:
        """Read a ledger record's value; LedgerUnreadable where it is garbled or of another format version."""
        reading = _Reading()
        try:
            body = strict.load(value, reading.seal_in)
            require_format(body, LEDGER_FORMAT_VERSION, "the ledger record")
            pipeline = strict.text(body["pipeline"])
            return Decision(
                pipeline=pipeline,
                query_id=strict.text(body["query_id"]),
                batch_id=strict.whole(body["batch_id"]),
                seals=_of_pipeline(pipeline, reading.with_topics(body["seals"], body["topics"])),
                source_offsets=strict.texts(body["source_offsets"]),
                decided_ms=strict.time_ms(body["decided_ms"]),
                connector_version=strict.text(body["connector_version"]),
                repaired=strict.whole(body["repaired"]),
                number=strict.whole(body["number"], 0, _MOST_DECISIONS),
                writers=tuple(strict.whole(each) for each in strict.several(body["writers"])),
                earlier=_identities(body["earlier"]),
                warnings=strict.texts(body["warnings"]),
                traffic=Traffic.from_json(body["traffic"]),
                sticky_bytes=strict.positive(body["sticky_bytes"]),
                basis=Basis.from_json(body["basis"]) if "basis" in body else NO_BASIS,
                row_options=RowOptions.from_json(body["row_options"]),
                planned_ms=strict.time_ms(body["planned_ms"]) if "planned_ms" in body else None,
            )
        except strict.MALFORMED as error:
            raise LedgerUnreadable(
                f"a ledger record is not a decision of this connector ({strict.shown(error)}); nothing was changed; "
                "look at the record with a console consumer and name another ledger topic or restore this one",
                {"value_start": value[:80].decode("utf-8", "replace")},
            ) from error


def _of_pipeline(pipeline: str, seals: tuple[Seal, ...]) -> tuple[Seal, ...]:
    """The seals; ValueError where one is of an id that no slot of the pipeline has. Whoever reads the decision asks
    coordinators for these ids, and may end them.
    """
    whole, prefix = batch_transactional_id(pipeline), prefix_of(pipeline)
    for seal in seals:
        name = seal.transactional_id
        if name != f"{prefix}{seal.slot}" and name != whole:
            raise ValueError(f"{name[:_SHOWN]!r} is no transactional id of slot {seal.slot} of the pipeline")
    return seals


def require_format(body: Mapping[str, Any], known: int, what: str) -> None:
    """LedgerUnreadable where `what` is of another format than `known`; one of `strict.MALFORMED` where it states
    none.
    """
    found = strict.whole(body["version"])
    if found == known:
        return
    facts: dict[str, Fact] = {
        "format": found,
        "known_format": known,
        "written_by": str(body.get("connector_version", "unknown"))[:40],
    }
    if found > known:
        raise LedgerUnreadable(
            f"{what} was written by a newer version of this connector; nothing was changed; run at least that version",
            facts,
        )
    raise LedgerUnreadable(
        f"{what} was written by an older version of this connector, in a format that this one does not read; nothing was changed; "
        "let that version finish the batch, then give this one a pipeline name of its own, with adopt.checkpoint=true once",
        facts,
    )


def _usual_of(seal: Seal, topics: Mapping[str, RoutedTopic]) -> tuple[RoutedTopic, ...]:
    return tuple(topics[name] for name in sorted(seal.topic_names) if name in topics)


def _without_usual(seal: Seal, topics: Mapping[str, RoutedTopic]) -> dict[str, Any]:
    """The seal's JSON, with topics of its own only where it did not route as most did."""
    body = seal.to_json()
    if seal.topics == _usual_of(seal, topics):
        del body["topics"]
    return body


class _Reading:
    """The seals of one record while it is parsed."""

    def __init__(self) -> None:
        self._usual: list[Seal] = []

    def seal_in(self, data: dict[str, Any]) -> Any:
        """A seal as soon as it is read, so that its dict is free again. What is none stays as it is and is judged after
        the version.
        """
        if "transactional_id" not in data:
            return data
        usual = "topics" not in data
        try:
            seal = Seal.from_json({**data, "topics": []} if usual else data)
        except strict.MALFORMED:
            return data
        if usual:
            self._usual.append(seal)
        return seal

    def with_topics(self, seals: Any, entries: Any) -> tuple[Seal, ...]:
        """All seals, those without topics of their own with the record's."""
        topics = {topic.name: topic for topic in map(RoutedTopic.from_json, strict.several(entries))}
        found = tuple(each if isinstance(each, Seal) else Seal.from_json(each) for each in strict.several(seals))
        known: dict[frozenset[str], tuple[RoutedTopic, ...]] = {}
        for seal in self._usual:
            names = seal.topic_names
            if names not in known:
                known[names] = _usual_of(seal, topics)
            # Of this record's own seals, which nobody else has yet: a copy of 10,000 takes as long as the parse.
            object.__setattr__(seal, "topics", known[names])
        return found


_text_of = json.JSONEncoder(separators=(",", ":")).encode


def _identities(entries: Any) -> tuple[tuple[str, ProducerIdentity], ...]:
    return tuple((strict.text(name), identity_of(identity)) for name, *identity in strict.several(entries))
