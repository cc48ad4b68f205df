"""A source's options on its cluster: where reading begins and ends, in which logs.

Owns: startingOffsets and endingOffsets in all their forms, as positions; what is lost, and what becomes of that.
Does not know: which partitions are read (`source_partitions`), micro-batches, tasks, records.
Invariants:
- An option that names partitions names all of them.
- Nothing is read before every position is known.
- Records held back by an open transaction do not count as missing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from kafka_core.errors import DataLoss, RetriableError, UnknownTopic
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.every_broker import ask_every_broker
from pyspark_kafka_eos.client.reading.named_offsets import beyond_end, exactly, nothing_so_new
from pyspark_kafka_eos.client.reading.offsets import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    LogEnd,
    LogMark,
)
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.spark.offset_json import Position, begin_anew, pasted
from pyspark_kafka_eos.spark.source.committed_start import committed_start
from pyspark_kafka_eos.spark.source.source_logs import KnownLogs, logs_of, recreated, with_ids
from pyspark_kafka_eos.spark.source.source_offsets import Positions
from pyspark_kafka_eos.spark.source.source_partitions import SourcePartitions

OPEN_PATIENCE_MS = 10_000
"""How long a batch waits for an open transaction that holds back offsets it has to read. Most transactions
last seconds. Half would fail jobs beside a busy writer needlessly; double only delays the error for a hanging
transaction."""

END_PATIENCE_MS = 3_000
"""How long an end before a position is doubted, where it is not known under which leader the position was found: all
brokers are asked for a newer leader meanwhile. Half believes a busy cluster's one broker that is cut off; double only
delays a loss.
"""

_LOOK_AGAIN_MS = 100
_ROUNDS = 3
"""Tries to ask for the ends of partitions while topics are being deleted."""

_log = logging.getLogger(__name__)


class SourceView(SourcePartitions):
    """One query's view of its topics. Holds no connection, so it can be pickled with the reader."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self.logs = KnownLogs()

    @property
    def cluster_id(self) -> str:
        """The cluster's id, empty where its brokers do not report it."""
        return self.offsets.cluster.cluster_id()

    # ---- where reading begins and ends

    def ends(self) -> dict[TopicPartition, LogEnd]:
        """The ends of all partitions, for a reader of the query's isolation level that has no position yet."""
        ends, _ = self._ends_of(Position({}))
        return ends

    def look(self, position: Position) -> tuple[dict[TopicPartition, LogEnd], dict[TopicPartition, int]]:
        """The ends of all partitions, and where the query goes on in those whose log is not the one that it has read:
        DataLoss there, unless the user allows the loss.
        """
        ends, anew = self._ends_of(position)
        others = self.logs.other_logs(self.offsets.cluster, position, ends, anew)
        for where, other in sorted(others.items()):
            self.lose(where, other.why, anew=other.go_on is None)
        elsewhere = {where: other.go_on for where, other in others.items() if other.go_on is not None}
        first = [where for where, other in others.items() if other.go_on is None and where in ends]
        self.logs.ends = ends
        return ends, elsewhere | (self.earliest(first) if first else {})

    def _ends_of(self, position: Position) -> tuple[dict[TopicPartition, LogEnd], dict[str, tuple[str, str]]]:
        """The ends, and the topics that are other ones than the position's (`KnownLogs.recreated`)."""
        needed = frozenset(position.offsets)
        for _ in range(_ROUNDS):
            partitions = self.partitions(needed)
            try:
                # Before the ends: those of a topic that is only thought to be another one are none.
                anew = self.logs.recreated(self.offsets.cluster, position)
                same = {where: at for where, at in position.offsets.items() if where.topic not in anew}
                return self._ends_at(partitions, replace(position, offsets=same)), anew
            except UnknownTopic as error:
                gone = error  # or a broker is behind: the next request for the partitions shows which
        raise gone

    def _ends_at(self, partitions: Collection[TopicPartition], position: Position) -> dict[TopicPartition, LogEnd]:
        """The ends, for a caller that stands at a position. An end before it is believed of a leader that is at least
        as new as the one under which the position was found. Where that is not known, all brokers are asked for a newer
        leader, for a while.
        """
        give_up = time.monotonic() + END_PATIENCE_MS / 1000
        while True:
            known = self.logs.known(position)
            ends = self.offsets.ends(partitions, self.options.isolation_level, known=known)
            below = {
                where: at
                for where, at in position.offsets.items()
                if where in ends and ends[where].offset < at and not self.logs.proves(position, where, ends[where])
            }
            held = self.held_back(below, {where: ends[where].offset for where in below}, known)
            if not below.keys() - held.keys() or time.monotonic() >= give_up:
                return ends
            ask_every_broker(self.offsets.cluster, {where.topic for where in below})
            self.offsets.cluster.pause(_LOOK_AGAIN_MS)

    def on_this_cluster(self, position: Position) -> Position:
        """As `KnownLogs.on_this_cluster`."""
        return self.logs.on_this_cluster(self.offsets.cluster, self.options, position)

    def not_as_logged(self, end: Position) -> set[TopicPartition]:
        """The partitions of a logged batch that cannot be read any more, because their topic is another one now:
        DataLoss, unless the user allows the loss.
        """
        found = self.logs.not_as_logged(self.offsets.cluster, end)
        for where, why in sorted(found.items()):
            self.lose(where, f"{why}; this batch was to read it up to there", anew=True)
        return set(found)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the partitions begin; missing ones are left out."""
        asked = sorted(set(partitions))
        try:
            return self.offsets.earliest(asked)
        except UnknownTopic:
            there = set(self.partitions(asked))
            return self.offsets.earliest([where for where in asked if where in there])

    def held_back(
        self, position: Positions, latest: Positions, known: Mapping[TopicPartition, LogMark] | None = None
    ) -> dict[TopicPartition, int]:
        """The positions beyond the readable offsets because a transaction is open before them: nothing is
        lost, and there is nothing to read. `known` as in `Offsets.ends`."""
        behind = [where for where in position if where in latest and latest[where] < position[where]]
        if not behind or self.options.isolation_level != READ_COMMITTED:
            return {}
        written = self.offsets.ends(behind, READ_UNCOMMITTED, known=known)
        return {where: position[where] for where in behind if position[where] <= written[where].offset}

    def first_position(self) -> Position:
        """`beginning`, with what it stands on."""
        begin = self.beginning()
        logs = with_ids(self.offsets.cluster, begin, logs_of(begin, self.logs.ends, Position({})))
        return Position(begin, self.cluster_id, logs)

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
        if starting == "group":
            position = committed_start(self.offsets, self.options, partitions)
        else:
            named = {} if isinstance(starting, str) else exactly("startingOffsets", starting, partitions)
            position = self._named("startingOffsets", named, self.options.starting_entries)
        position = self._on_these_logs(partitions, position)
        asked = position.offsets
        latest = {where: end.offset for where, end in self.logs.ends.items()}
        if starting == "latest":
            return latest
        earliest = self.offsets.earliest(partitions)
        held = self.held_back(asked, latest)
        return {
            where: held[where] if where in held else self._begin_at(where, asked[where], earliest, latest)
            for where in partitions
        }

    def _on_these_logs(self, partitions: list[TopicPartition], position: Position) -> Position:
        """The named offsets, as far as the logs are those that they stand on: DataLoss for the others, unless the user
        allows the loss, and then where the query begins in their place. Looks at the ends.
        """
        anew = self._not_of_this_topic(self._whose(), position) | self._of_no_leader(position)
        asked = {where: EARLIEST if where in anew else at for where, at in position.offsets.items()}
        ids = {
            where: log.topic_id or self.offsets.cluster.topic_id(where.topic) for where, log in position.logs.items()
        }
        here = Position(
            {where: at for where, at in asked.items() if at >= 0},
            logs={
                where: replace(log, topic_id=ids[where]) for where, log in position.logs.items() if where not in anew
            },
        )
        ends = self._ends_at(partitions, here)
        others = self.logs.other_logs(self.offsets.cluster, here, ends, {})
        self.logs.ends = ends
        for where, other in sorted(others.items()):
            self.lose(where, f"{self._whose()}: {other.why}")
            if other.go_on is not None:
                asked[where] = other.go_on
        return replace(position, offsets=asked)

    def _of_no_leader(self, position: Position) -> set[TopicPartition]:
        """The partitions whose offset was committed under a leader's epoch that none of their leaders has had:
        DataLoss, unless the user allows the loss. Other clients commit no topic's id that would show it.
        """
        cluster = self.offsets.cluster
        marks = {where: log.leader_epoch for where, log in position.logs.items() if not log.topic_id}
        if not any(epoch > cluster.leader_epoch(where) for where, epoch in marks.items()):
            return set()
        ask_every_broker(cluster, {where.topic for where in marks})
        newer = {where for where, epoch in marks.items() if epoch > cluster.leader_epoch(where)}
        for where in sorted(newer):
            self.lose(
                where,
                f"{self._whose()}: offset {position.offsets[where]} was committed under leader epoch {marks[where]}, and the newest leader "
                f"has epoch {cluster.leader_epoch(where)}: the topic was recreated",
                anew=True,
            )
        return newer

    def _whose(self) -> str:
        """What names the offsets at which a query begins."""
        group = self.options.starting_offsets == "group"
        return f"the group {self.options.group_id}" if group else "startingOffsets"

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
        asked = exactly("endingOffsets", self.options.ending_offsets, partitions)
        self._not_of_this_topic("endingOffsets", self._named("endingOffsets", asked, self.options.ending_entries))
        wanted = {where: begin.get(where, 0) if offset == LATEST else offset for where, offset in asked.items()}
        latest = self._readable(partitions, wanted, "endingOffsets")
        for where, offset in asked.items():
            if offset > latest[where]:
                self.lose(where, f"endingOffsets has offset {offset}, but the partition ends at {latest[where]}")
        return {
            where: latest[where] if asked[where] == LATEST else min(asked[where], latest[where]) for where in partitions
        }

    def _named(self, option: str, asked: Positions, entries: tuple[str, ...]) -> Position:
        """Offsets that an option names, with what a checkpoint's entries say of them. OptionsError where that is
        another cluster.
        """
        if not entries:
            return Position(asked)
        return self.logs.on_this_cluster(
            self.offsets.cluster, self.options, pasted(option, asked, entries), whose=option
        )

    def _not_of_this_topic(self, option: str, position: Position) -> set[TopicPartition]:
        """The partitions whose topic is another one than the entries name: DataLoss, unless the user allows the
        loss.
        """
        anew = self.logs.recreated(self.offsets.cluster, position) if position.logs else {}
        for where, offset in sorted(position.offsets.items()):
            if where.topic in anew:
                self.lose(where, f"{option}: {recreated(where, offset, *anew[where.topic])}", anew=True)
        return {where for where in position.offsets if where.topic in anew}

    def _readable(self, partitions: list[TopicPartition], wanted: Positions, whose: str) -> dict[TopicPartition, int]:
        """The ends of the partitions. Waits where a transaction is still open before a wanted offset."""
        give_up = time.monotonic() + OPEN_PATIENCE_MS / 1000
        while True:
            self.logs.ends = self._ends_at(partitions, Position(wanted))
            latest = {where: end.offset for where, end in self.logs.ends.items()}
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
            raise beyond_end(has, where, offset, latest[where])
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
            else exactly(f"{side}OffsetsByTimestamp", times, partitions)
        )
        found = self.offsets.at_time(asked, self.options.isolation_level)
        newer_only = [where for where, offset in found.items() if offset is None]
        if newer_only and starting and self.options.fail_on_no_match:
            where = min(newer_only)
            raise nothing_so_new(where, asked[where])
        ends = self.offsets.latest(newer_only, self.options.isolation_level) if newer_only else {}
        return {where: ends[where] if offset is None else offset for where, offset in found.items()}

    # ---- data loss

    def lose(self, where: TopicPartition, lost: str, *, anew: bool = False) -> None:
        """Raise DataLoss, or warn and return where the user allows it. `anew`: the topic is another one, whose records
        the query has not read.
        """
        ways = (
            f"{begin_anew()}, or set failOnDataLoss=false to begin the topic at its first record"
            if anew
            else "set failOnDataLoss=false to continue with the records that are left"
        )
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"{where}: {lost}; records may be lost, so the query stops and nothing was skipped; {ways}",
                {"partition": str(where)},
            )
        goes_on = "; the query begins it at its first record" if anew else ""
        _log.warning("%s: %s; records may be lost (failOnDataLoss=false)%s", where, lost, goes_on)
