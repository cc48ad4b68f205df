"""What a batch's rows are read and judged by, and its one JSON form. A replay reads and judges them by the same.

Owns: the rules of a topic that decide whether a row may become a record, the zone and the moment they are applied with.
Does not know: how a cluster is asked for them, rows.
Invariants:
- What is decided as a record is a record in every replay, and a dead letter stays one, whatever session and topics are
  set to by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pyspark_kafka_eos.model import strict

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default max.message.bytes, assumed where an ACL hides the topic's settings. A topic with a lower
limit then answers MESSAGE_TOO_LARGE, which aborts the micro-batch with a message that names the setting."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What a topic takes, by its settings; what they do not tell is no rule.

    `max_batch_bytes`: the largest record batch. `needs_keys`: it is compacted. `back_ms`, `ahead_ms`: how far a
    record's own time may lie before or after now, None for any. `keeps_ms`: how long it keeps a record after the
    record's own time, None for ever;
    `must_keep`: whether a row that is older than that is refused (on.expired.record).
    """

    max_batch_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    needs_keys: bool = False
    back_ms: int | None = None
    ahead_ms: int | None = None
    keeps_ms: int | None = None
    must_keep: bool = False

    @property
    def by_time(self) -> bool:
        """Whether what it takes depends on the moment."""
        return any(span is not None for span in (self.back_ms, self.ahead_ms, self.keeps_ms))

    def to_json(self) -> list[Any]:
        """In the order of the fields; a newer version may add some at the end."""
        return [getattr(self, each.name) for each in fields(self)]

    @staticmethod
    def from_json(data: Any) -> TopicRules:
        """Read it back; one of `strict.MALFORMED` where it is none."""
        limit, needs_keys, back_ms, ahead_ms, keeps_ms, must_keep = strict.several(data, 6)
        spans = (_number(back_ms), _number(ahead_ms), _number(keeps_ms))
        return TopicRules(strict.whole(limit), strict.flag(needs_keys), *spans, strict.flag(must_keep))


@dataclass(frozen=True, slots=True)
class Expired:
    """Rows that were written although their topic does not keep records of their time: how many, the oldest time, how
    long it keeps.
    """

    topic: str
    rows: int
    oldest_ms: int
    keeps_ms: int

    def __add__(self, other: Expired) -> Expired:
        """Of several tasks, in one topic."""
        oldest_ms = min(self.oldest_ms, other.oldest_ms)
        return Expired(self.topic, self.rows + other.rows, oldest_ms, self.keeps_ms)

    @staticmethod
    def of_all(several: Iterable[Expired]) -> tuple[Expired, ...]:
        """All together, one for each topic."""
        found: dict[str, Expired] = {}
        for each in several:
            found[each.topic] = found[each.topic] + each if each.topic in found else each
        return tuple(found[name] for name in sorted(found))

    def to_json(self) -> list[Any]:
        """In the order of the fields."""
        return [self.topic, self.rows, self.oldest_ms, self.keeps_ms]

    @staticmethod
    def from_json(data: Any) -> Expired:
        """Read it back; one of `strict.MALFORMED` where it is none."""
        topic, rows, oldest_ms, keeps_ms = strict.several(data, 4)
        return Expired(strict.text(topic), strict.whole(rows), strict.whole(oldest_ms), strict.whole(keeps_ms))


@dataclass(frozen=True, slots=True)
class Basis:
    """What tasks read and judge their rows by.

    `time_zone`: the zone of times without one, "" where there were none. `judged_ms`: the moment from which the rows'
    own times are judged, 0 where no row had one. `topics`: the rules of each topic that rows went to.
    """

    time_zone: str = ""
    judged_ms: int = 0
    topics: tuple[tuple[str, TopicRules], ...] = ()

    @staticmethod
    def of_all(several: Iterable[Basis | None]) -> Basis:
        """What several tasks of one plan had, together. A topic whose settings are changed between two of them has
        either's rules.
        """
        known = [each for each in several if each is not None]
        topics = {name: rules for each in known for name, rules in each.topics}
        return Basis(
            max((each.time_zone for each in known), default=""),
            max((each.judged_ms for each in known), default=0),
            tuple(sorted(topics.items(), key=lambda entry: entry[0])),
        )

    def to_json(self) -> dict[str, Any]:
        """As seals and the ledger keep it."""
        topics = {name: rules.to_json() for name, rules in self.topics}
        return {"time_zone": self.time_zone, "judged_ms": self.judged_ms, "topics": topics}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Basis:
        """Read it back; one of `strict.MALFORMED` where it is none."""
        topics = tuple((strict.topic(name), TopicRules.from_json(rules)) for name, rules in data["topics"].items())
        return Basis(strict.text(data["time_zone"]), strict.time_ms(data["judged_ms"]), topics)


NO_BASIS = Basis()
"""Of a plan whose batch is not decided: the session, the topics and the plan's own moment say it all."""


def _number(value: Any) -> int | None:
    return None if value is None else strict.whole(value)
