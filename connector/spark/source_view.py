"""A source's options on its cluster: which partitions are read now, where reading begins and ends.

Owns: subscribe, subscribePattern and assign; startingOffsets and endingOffsets in all their forms, as
positions.
Does not know: micro-batches, tasks, records.
Invariants:
- An option that names partitions names all of them.
- Nothing is read before every position is known.
- A topic or partition counts as deleted only after it was missing from answers for TOPIC_PATIENCE_MS: the
  answering broker may be behind.
- Records held back by an open transaction do not count as missing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from connector.client.cluster import Cluster
from connector.client.fetcher import OffsetRange
from connector.client.leader_epochs import lost_logs
from connector.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, End, Offsets
from connector.errors import DataLoss, OptionsError, RetriableError, UnknownTopic
from connector.model import TopicPartition
from connector.options import SourceOptions
from connector.options.java_pattern import to_python
from connector.spark.committed_start import committed_start
from connector.spark.source_offsets import Positions

TOPIC_PATIENCE_MS = 10_000
"""How long a topic or partition may be missing after it was seen once: a restarted broker first has to
receive its metadata. Half would take a busy cluster's slow broker for a deletion; double would double the
cost of a deletion."""

OPEN_PATIENCE_MS = 10_000
"""How long a batch waits for an open transaction that holds back offsets it has to read. Most transactions
last seconds. Half would fail jobs beside a busy writer needlessly; double only delays the error for a hanging
transaction."""

_LOOK_AGAIN_MS = 100
_ROUNDS = 3
"""Tries to ask for the ends of partitions while topics are being deleted."""

_log = logging.getLogger(__name__)


class SourceView:
    """One query's view of its topics. Holds no connection, so it can be pickled with the reader."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._seen: frozenset[TopicPartition] = frozenset()
        self._gone: set[str] = set()
        self._ends: dict[TopicPartition, End] = {}
        pattern = options.subscribe_pattern
        self._pattern = None if pattern is None else to_python(pattern)

    @property
    def offsets(self) -> Offsets:
        """The cluster's offsets, over this process's connections."""
        return Offsets(Cluster.shared(self.options.client))

    @property
    def cluster_id(self) -> str:
        """The cluster's id, empty where its brokers do not report it."""
        return self.offsets.cluster.cluster_id()

    # ---- which partitions

    def reads(self, where: TopicPartition) -> bool:
        """Whether the options ask for this partition, whether or not it exists."""
        if self._pattern is not None:
            return self._pattern.search(where.topic) is not None
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
        names = _names(set(left)) if self.options.assign is not None else _topics(left)
        if self.options.fail_on_data_loss:
            raise OptionsError(
                f"the query's checkpoint has offsets of {names}, but {option} is {asked} now: the topics are "
                f"not those that the query was started with; nothing was read. To continue, set {option} so "
                f"that {names} is read again (more topics may be added). To read other topics from now on, "
                "start the query with a new checkpoint and with startingOffsets for them",
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
        while True:
            late = time.monotonic() >= give_up
            try:
                found = self._there(first=not expected)
                if late or expected <= set(found):
                    self._seen = frozenset(found)
                    return found
            except UnknownTopic as error:
                topic = str(error.facts.get("topic", ""))
                if late and not self._may_go_on_without(topic, expected):
                    raise
                if late and self._pattern is None:
                    _log.warning(
                        "topic %s is gone; the query continues without it (failOnDataLoss=false)", topic
                    )
                    self._gone.add(topic)
                    continue
            self.offsets.cluster.pause(_LOOK_AGAIN_MS)

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
        names = {name for name in self.offsets.topic_names() if self._pattern.search(name)}
        return self._partitions_of(names, first=first)

    def _assigned(self, assign: Mapping[str, tuple[int, ...]], *, first: bool) -> list[TopicPartition]:
        there = set(self._partitions_of(self._not_gone(assign), first=first))
        asked = [TopicPartition(topic, number) for topic in sorted(assign) for number in assign[topic]]
        missing = [where for where in asked if where not in there]
        if missing and first:
            raise UnknownTopic(
                f"assign names {_names(set(missing))}, which does not exist; nothing was read; correct the numbers or add "
                "partitions to the topic",
                {"partition": str(missing[0])},
            )
        return [where for where in asked if where in there]

    def _partitions_of(self, topics: Iterable[str], *, first: bool) -> list[TopicPartition]:
        if first:
            return self.offsets.partitions(topics)
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

    # ---- where reading begins and ends

    def latest(self, needed: Iterable[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """The ends of all partitions, for a reader of the query's isolation level. `needed` as in
        `partitions`. Where it is the query's position, a log that no longer has the records before that
        position is lost data."""
        position = needed if isinstance(needed, Mapping) else {}
        needed = frozenset(needed)
        for _ in range(_ROUNDS):
            partitions = self.partitions(needed)
            try:
                ends = self.offsets.ends(partitions, self.options.isolation_level)
                self._judge_logs(position)
                self._ends = ends
                return {where: end.offset for where, end in ends.items()}
            except UnknownTopic as error:
                gone = error  # or a broker is behind: the next request for the partitions shows which
        raise gone

    def _judge_logs(self, position: Positions) -> None:
        """Detect records that a log lost since the last look, or that a recreated topic lost. Offsets alone
        do not show the loss once the log has grown beyond the position again."""
        known = {
            where: (end.log, position[where])
            for where, end in self._ends.items()
            if where in position and position[where] <= end.offset
        }
        for where, lost in lost_logs(self.offsets.cluster, known).items():
            self.lose(where, lost)

    def marked(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The ranges, each with the log that its end was found in, so that readers detect another log."""
        return [
            replace(each, log=end.log)
            if (end := self._ends.get(each.where)) is not None and each.end <= end.offset
            else each
            for each in ranges
        ]

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the partitions begin; missing ones are left out."""
        asked = sorted(set(partitions))
        try:
            return self.offsets.earliest(asked)
        except UnknownTopic:
            there = set(self.partitions(asked))
            return self.offsets.earliest([where for where in asked if where in there])

    def held_back(self, position: Positions, latest: Positions) -> dict[TopicPartition, int]:
        """The positions beyond the readable offsets because a transaction is open before them: nothing is
        lost, and there is nothing to read."""
        behind = [where for where in position if where in latest and latest[where] < position[where]]
        if not behind or self.options.isolation_level != READ_COMMITTED:
            return {}
        written = self.offsets.latest(behind, READ_UNCOMMITTED)
        return {where: position[where] for where in behind if position[where] <= written[where]}

    def beginning(self) -> dict[TopicPartition, int]:
        """Where a new query begins. OptionsError where the options name offsets that do not exist yet or a group
        that has committed none, DataLoss for lost ones."""
        partitions = self.partitions()
        if self.options.starting_times is not None:
            return self._at_times(partitions, self.options.starting_times, starting=True)
        starting = self.options.starting_offsets
        if starting == "earliest":
            return self.offsets.earliest(partitions)
        # Before the ends: what is committed in between must not seem to lie behind them.
        committed = committed_start(self.offsets, self.options, partitions) if starting == "group" else {}
        latest = self.offsets.latest(partitions, self.options.isolation_level)
        if starting == "latest":
            return latest
        asked = committed if isinstance(starting, str) else _exactly("startingOffsets", starting, partitions)
        earliest = self.offsets.earliest(partitions)
        held = self.held_back(asked, latest)
        return {
            where: held[where] if where in held else self._begin_at(where, asked[where], earliest, latest)
            for where in partitions
        }

    def ending(self, begin: Positions) -> dict[TopicPartition, int]:
        """Where a batch that begins at `begin` ends. RetriableError where an open transaction is still in the
        way."""
        partitions = self.partitions(begin)
        for where in sorted(begin.keys() - set(partitions)):
            self.lose(where, "the partition is gone since the query was planned")
        if self.options.ending_times is not None:
            return self._at_times(partitions, self.options.ending_times, starting=False)
        if isinstance(self.options.ending_offsets, str):
            return self._readable(partitions, begin, "the beginning")
        asked = _exactly("endingOffsets", self.options.ending_offsets, partitions)
        wanted = {
            where: begin.get(where, 0) if offset == LATEST else offset for where, offset in asked.items()
        }
        latest = self._readable(partitions, wanted, "endingOffsets")
        for where, offset in asked.items():
            if offset > latest[where]:
                self.lose(
                    where, f"endingOffsets has offset {offset}, but the partition ends at {latest[where]}"
                )
        return {
            where: latest[where] if asked[where] == LATEST else min(asked[where], latest[where])
            for where in partitions
        }

    def _readable(
        self, partitions: list[TopicPartition], wanted: Positions, whose: str
    ) -> dict[TopicPartition, int]:
        """The ends of the partitions. Waits where a transaction is still open before a wanted offset."""
        give_up = time.monotonic() + OPEN_PATIENCE_MS / 1000
        while True:
            self._ends = self.offsets.ends(partitions, self.options.isolation_level)
            latest = {where: end.offset for where, end in self._ends.items()}
            held = self.held_back(wanted, latest)
            if not held:
                return latest
            if time.monotonic() >= give_up:
                where = min(held)
                raise RetriableError(
                    f"{where}: {whose} is offset {held[where]}, and the partition has it, but a transaction "
                    f"is open from offset {latest[where]} on, so it is not yet decided which records from "
                    "there on are committed. Nothing was read and nothing is lost; read again when the "
                    "transaction has ended (kafka-eos transactions list shows open ones), or with "
                    "kafka.isolation.level=read_uncommitted",
                    {"partition": str(where), "offset": held[where], "last_stable_offset": latest[where]},
                )
            self.offsets.cluster.pause(_LOOK_AGAIN_MS)

    def _begin_at(self, where: TopicPartition, offset: int, earliest: Positions, latest: Positions) -> int:
        if offset == EARLIEST:
            return earliest[where]
        if offset == LATEST:
            return latest[where]
        group = self.options.starting_offsets == "group"
        has = f"the group {self.options.group_id} has committed" if group else "startingOffsets has"
        if offset > latest[where]:
            if group:
                self.lose(where, f"{has} offset {offset}, but the partition ends at {latest[where]}")
                return earliest[where]
            raise OptionsError(
                f"{has} offset {offset} for {where}, which ends at {latest[where]}; nothing was read",
                {"partition": str(where), "offset": offset, "latest": latest[where]},
            )
        if offset < earliest[where]:
            self.lose(where, f"{has} offset {offset}, but the partition begins at {earliest[where]}")
        return max(offset, earliest[where])

    def _at_times(
        self, partitions: list[TopicPartition], times: int | dict[str, dict[int, int]], *, starting: bool
    ) -> dict[TopicPartition, int]:
        side = "starting" if starting else "ending"
        asked = (
            dict.fromkeys(partitions, times)
            if isinstance(times, int)
            else _exactly(f"{side}OffsetsByTimestamp", times, partitions)
        )
        found = self.offsets.at_time(asked, self.options.isolation_level)
        newer_only = [where for where, offset in found.items() if offset is None]
        if newer_only and starting and self.options.fail_on_no_match:
            where = min(newer_only)
            raise OptionsError(
                f"No offset matched from request of topic-partition {where} and timestamp {asked[where]}: its records are "
                "all older; nothing was read; set startingOffsetsByTimestampStrategy=latest to begin at the end",
                {"partition": str(where), "timestamp_ms": asked[where]},
            )
        ends = self.offsets.latest(newer_only, self.options.isolation_level) if newer_only else {}
        return {where: ends[where] if offset is None else offset for where, offset in found.items()}

    # ---- data loss

    def lose(self, where: TopicPartition, lost: str) -> None:
        """Raise DataLoss, or warn and return where the user allows it."""
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"{where}: {lost}; records may be lost, so the query stops and nothing was skipped; set "
                "failOnDataLoss=false to continue with the records that are left",
                {"partition": str(where)},
            )
        _log.warning("%s: %s; records may be lost (failOnDataLoss=false)", where, lost)


def _exactly(
    option: str, given: Mapping[str, Mapping[int, int]], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The option's value for each partition; OptionsError unless it names them all and no others."""
    asked = {
        TopicPartition(topic, number): value
        for topic, each in given.items()
        for number, value in each.items()
    }
    if set(asked) != set(partitions):
        raise OptionsError(
            f"{option} must name every partition of the topics and no other: missing "
            f"{_names(set(partitions) - set(asked))}, nonexistent {_names(set(asked) - set(partitions))}; "
            "nothing was read"
        )
    return asked


def _names(partitions: set[TopicPartition]) -> str:
    return ", ".join(str(each) for each in sorted(partitions)) or "none"


def _topics(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted({where.topic for where in partitions}))
