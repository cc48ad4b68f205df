"""Which partitions a source reads now: subscribe, subscribePattern and assign.

Owns: the partitions that the options ask for, and those that are gone.
Does not know: offsets, micro-batches.
Invariants:
- An option that names partitions names all of them.
- A pattern matches no topic that this package makes for itself, as it matches none of Kafka's.
- A topic or partition counts as deleted only after it was missing from answers for TOPIC_PATIENCE_MS, and more than
  half of the brokers say so: the answering broker may be behind, or cut off.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping

from kafka_core.errors import BrokerUnavailable, OptionsError, UnknownTopic
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.every_broker import ask_every_broker
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.absence import WITNESS_MS
from pyspark_kafka_eos.client.reading.named_offsets import names_of
from pyspark_kafka_eos.client.reading.offsets import LogMark, Offsets
from pyspark_kafka_eos.client.requests.own_topics import marked
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.options.java_pattern import to_python
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from pyspark_kafka_eos.slot.turn_log import turns_topic
from pyspark_kafka_eos.spark.offset_json import begin_anew

TOPIC_PATIENCE_MS = 10_000
"""How long a topic or partition may be missing, or have another id, after it was seen once: a restarted broker first
has to receive its metadata. Half would take a busy cluster's slow broker for a deletion; double would double the cost
of a deletion.
"""

_LOOK_AGAIN_MS = 100

_BEHIND = "{} could not be found although more than half of the brokers have it: the broker that answers is behind or cut off from the others"
_DELETED = (
    "topic {}, which the pattern matches, was listed and is deleted by the time that its partitions are asked for; no look in the time allowed "
    "found all topics that were listed: topics are deleted all the time, or the broker that lists them is behind"
)

OWN_NAMES = frozenset({DEFAULT_LEDGER_TOPIC, turns_topic(DEFAULT_LEDGER_TOPIC)})
"""The names of this package's topics unless the sink's option ledger.topic says something else; those are told by their
mark.
"""

_log = logging.getLogger(__name__)


class SourcePartitions:
    """One query's partitions. Holds no connection, so it can be pickled with the reader."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._seen: frozenset[TopicPartition] = frozenset()
        self._gone: set[str] = set()
        pattern = options.subscribe_pattern
        self._pattern = None if pattern is None else to_python(pattern)
        self._own = set(OWN_NAMES)
        self._users: set[str] = set()
        self._said: set[str] = set()

    @property
    def offsets(self) -> Offsets:
        """The cluster's offsets, over this process's connections."""
        return Offsets(Cluster.shared(self.options.client))

    def reads(self, where: TopicPartition) -> bool:
        """Whether the options ask for this partition, whether or not it exists."""
        if self._pattern is not None:
            return self._pattern.search(where.topic) is not None and where.topic not in self._own
        if self.options.assign is not None:
            return where.partition in self.options.assign.get(where.topic, ())
        return where.topic in self.options.subscribe

    def refuse_other_topics(self, position: Collection[TopicPartition]) -> None:
        """OptionsError where a query has a position in partitions that its options no longer ask for. Where
        the user allows data loss, the position is dropped and logged."""
        left = sorted(where for where in position if not self.reads(where))
        if not left:
            return
        option, asked = self._asked()
        names = names_of(set(left)) if self.options.assign is not None else _topics(left)
        if self.options.fail_on_data_loss:
            raise OptionsError(
                f"the query's checkpoint has offsets of {names}, but {option} is {asked} now: the topics are "
                f"not those that the query was started with; nothing was read. To continue, set {option} so "
                f"that {names} is read again (more topics may be added). To read other topics from now on, "
                f"{begin_anew('for them')}",
                {"topics": tuple(sorted({where.topic for where in left}))},
            )
        _log.warning(
            "%s is %s now and leaves out %s, but the query's checkpoint has its offsets; these are dropped, "
            "so if it is read "
            "again later, reading begins at its earliest record", option, asked, names,
        )  # fmt: skip

    def partitions(self, needed: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """The partitions to read now, in order; none where a pattern matches no topic. UnknownTopic where a
        named one does not exist.

        Partitions missing from `needed`, or from the previous answer, are requested again for a while: a
        single answer may come from a broker without current metadata. Afterwards missing partitions are left
        out; a missing topic that the options name raises UnknownTopic, unless the user allows data loss.
        """
        expected = self._seen.union(where for where in needed if self.reads(where))
        give_up = time.monotonic() + (TOPIC_PATIENCE_MS / 1000 if expected else 0)
        # Of the last look, once every broker was asked.
        why = ""
        while True:
            late = time.monotonic() >= give_up
            if why and time.monotonic() >= give_up + WITNESS_MS / 1000:
                raise BrokerUnavailable(
                    f"{why}; nothing was read and no position is dropped; make sure that the brokers reach each other",
                    {"timeout_ms": WITNESS_MS},
                )
            try:
                found = self._there(first=not expected)
                missing = expected - set(found)
                if not missing or (late and not self._still_there(missing)):
                    self._seen = frozenset(found)
                    return found
                why = _BEHIND.format(names_of(missing)) if late else ""
            except UnknownTopic as error:
                topic = str(error.facts.get("topic", ""))
                gone = late and not self._still_there(where for where in expected if where.topic == topic)
                why = _DELETED.format(topic) if gone else _BEHIND.format(topic) if late else ""
                if gone and not self._may_go_on_without(topic, expected):
                    raise _gone(error, topic, expected) from None
                if gone and self._pattern is None:
                    _log.warning("topic %s is gone; the query continues without it (failOnDataLoss=false)", topic)
                    self._gone.add(topic)
                    continue
            self.offsets.cluster.pause(_LOOK_AGAIN_MS)

    def _still_there(self, missing: Iterable[TopicPartition]) -> bool:
        """Whether any of these partitions exists although the answers lack it: they were of a broker that is cut off.
        The leaders that the others name are known then. BrokerUnavailable where too few brokers can say.
        """
        return bool(absence.existing(self.offsets.cluster, {where: LogMark() for where in missing}))

    def _may_go_on_without(self, topic: str, expected: Collection[TopicPartition]) -> bool:
        if self._pattern is not None:
            return True  # deleted since the names were listed: the next list is without it
        known = topic in self._gone or any(where.topic == topic for where in expected)
        return known and not self.options.fail_on_data_loss

    def _there(self, *, first: bool) -> list[TopicPartition]:
        """The partitions in one answer."""
        if self.options.assign is not None:
            return self._assigned(self.options.assign, first=first)
        if self._pattern is None:
            return self._partitions_of(self._not_gone(self.options.subscribe), first=first)
        names = self.offsets.topic_names(of_all=first)
        matched = {name for name in names if self._pattern.search(name)}
        there = absence.topics_there(self.offsets.cluster, matched) if first else matched
        return self._partitions_of(self._without_own(there), first=first)

    def _without_own(self, names: set[str]) -> set[str]:
        """The topics that a pattern matches, without those of this package: every micro-batch writes to them, so a
        query that reads them has another batch to run after each one. Asks the cluster where there are new names.
        """
        if new := names - self._own - self._users:
            own = marked(self.offsets.cluster, new)
            self._own |= own
            self._users |= new - own
        if left_out := (names & self._own) - self._said:
            self._said |= left_out
            _log.warning(
                "subscribePattern matches %s, which this connector keeps for itself; left out (subscribe reads it)",
                ", ".join(sorted(left_out)),
            )
        return names - self._own

    def _assigned(self, assign: Mapping[str, tuple[int, ...]], *, first: bool) -> list[TopicPartition]:
        there = set(self._partitions_of(self._not_gone(assign), first=first))
        asked = [TopicPartition(topic, number) for topic in sorted(assign) for number in assign[topic]]
        missing = [where for where in asked if where not in there]
        if missing and first:
            raise UnknownTopic(
                f"assign names {names_of(set(missing))}, which does not exist; nothing was read; correct the numbers or add "
                "partitions to the topic",
                {"partition": str(missing[0])},
            )
        return [where for where in asked if where in there]

    def _partitions_of(self, topics: Iterable[str], *, first: bool) -> list[TopicPartition]:
        if first:
            # A broker that was cut off names fewer partitions, and leaders whose logs end earlier. Nothing is known yet
            # that its answer would be too old for.
            ask_every_broker(self.offsets.cluster, names := sorted(set(topics)))
            return self.offsets.partitions_of(names)
        # `partitions` has its own wait between retries; the longer wait for a just created topic would add to
        # it.
        names, found = sorted(set(topics)), self.offsets.cluster
        found.refresh_topics(names, new_topic_ms=0)
        return [
            TopicPartition(name, number)
            for name in names
            for number in range(len(found.topic(name, new_topic_ms=0).leaders))
        ]

    def _not_gone(self, topics: Iterable[str]) -> list[str]:
        """The topics without those that were given up, as long as these are not created again."""
        if self._gone:
            self._gone -= set(self.offsets.topic_names())
        return [topic for topic in topics if topic not in self._gone]

    def _asked(self) -> tuple[str, str]:
        """The option that names the topics, and its value."""
        if self.options.subscribe_pattern is not None:
            return "subscribePattern", self.options.subscribe_pattern
        if self.options.assign is not None:
            return "assign", json.dumps(self.options.assign)
        return "subscribe", ",".join(self.options.subscribe)


def _gone(error: UnknownTopic, topic: str, expected: Collection[TopicPartition]) -> UnknownTopic:
    """What to do depends on whether the query has read the topic: one that is created now is another one."""
    if all(where.topic != topic for where in expected):
        return error
    return UnknownTopic(
        f"topic {topic!r} is gone, and the query has a position in it; nothing was read. A topic that is created now under that name is "
        f"another one, which has none of the former's records: {begin_anew()}, or set failOnDataLoss=false to go on without it",
        {"topic": topic},
    )


def _topics(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted({where.topic for where in partitions}))
