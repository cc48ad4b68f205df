"""What a source's options mean on its cluster: which partitions are read now, where reading begins and where it ends.

Owns: subscribe, subscribePattern and assign; startingOffsets and endingOffsets in all their forms, as positions.
Does not know: micro-batches, tasks, records.
Invariants: an option that names partitions names all of them; nothing is read before every position is known; a topic
that is missing for a moment, because its broker restarts, is not taken for deleted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from connector.client.cluster import Cluster
from connector.client.offsets import EARLIEST, LATEST, Offsets
from connector.errors import DataLoss, OptionsError, UnknownTopic
from connector.java_pattern import to_python
from connector.model import TopicPartition
from connector.options import SourceOptions
from connector.spark.source_offsets import Positions

TOPIC_PATIENCE_MS = 10_000
"""How long a topic may be unknown after it has been seen once: a broker that restarts has to hear of its topics first."""

_LOOK_AGAIN_MS = 100

_log = logging.getLogger(__name__)


class SourceView:
    """One query's view of its topics. Holds no connection, so it travels with the reader."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._known: set[str] = set()

    @property
    def offsets(self) -> Offsets:
        """Questions to the cluster, over this process's connections."""
        return Offsets(Cluster.shared(self.options.client))

    @property
    def beginning_depends_on_latest(self) -> bool:
        """Whether the beginning, asked for again, may lie behind records that were there the first time."""
        if self.options.starting_times is not None:
            return not self.options.fail_on_no_match
        starting = self.options.starting_offsets
        if isinstance(starting, str):
            return starting == "latest"
        return any(offset == LATEST for each in starting.values() for offset in each.values())

    # ---- which partitions

    def partitions(self) -> list[TopicPartition]:
        """The partitions to read now, in order; none where a pattern matches no topic. UnknownTopic where one that is
        named does not exist."""
        if self.options.subscribe_pattern is not None:
            return self._matching()
        if self.options.assign is not None:
            return self._assigned(self.options.assign)
        found = self.offsets.partitions(self.options.subscribe, patience_ms=self._patience_ms())
        self._known.update(self.options.subscribe)
        return found

    def _patience_ms(self) -> int:
        return TOPIC_PATIENCE_MS if self._known else 0

    def _matching(self) -> list[TopicPartition]:
        pattern = to_python(self.options.subscribe_pattern or "")
        offsets = self.offsets
        give_up = time.monotonic() + self._patience_ms() / 1000
        while True:
            names = {name for name in offsets.topic_names() if pattern.search(name)}
            if names >= self._known or time.monotonic() >= give_up:
                try:
                    found = offsets.partitions(names)
                except UnknownTopic:
                    # Deleted since the names were asked for: the next list is without it.
                    continue
                self._known = names
                return found
            offsets.cluster.pause(_LOOK_AGAIN_MS)

    def _assigned(self, assign: Mapping[str, tuple[int, ...]]) -> list[TopicPartition]:
        there = set(self.offsets.partitions(assign, patience_ms=self._patience_ms()))
        asked = [TopicPartition(topic, number) for topic in sorted(assign) for number in assign[topic]]
        missing = [where for where in asked if where not in there]
        if missing and not self._known:
            raise UnknownTopic(
                f"assign names {_names(set(missing))}, which does not exist; nothing was read; correct the numbers or add "
                "partitions to the topic",
                {"partition": str(missing[0])},
            )
        self._known.update(assign)
        return [where for where in asked if where in there]

    # ---- where reading begins and ends

    def latest(self) -> dict[TopicPartition, int]:
        """The ends of all partitions, for a reader of the query's isolation level."""
        return self.offsets.latest(self.partitions(), self.options.isolation_level)

    def beginning(self) -> dict[TopicPartition, int]:
        """Where a new query begins. OptionsError where the options ask for what is not there, DataLoss for what is gone."""
        partitions = self.partitions()
        if self.options.starting_times is not None:
            return self._at_times(partitions, self.options.starting_times, starting=True)
        starting = self.options.starting_offsets
        if starting == "earliest":
            return self.offsets.earliest(partitions)
        latest = self.offsets.latest(partitions, self.options.isolation_level)
        if isinstance(starting, str):
            return latest
        asked = _exactly("startingOffsets", starting, partitions)
        earliest = self.offsets.earliest(partitions)
        return {where: self._begin_at(where, asked[where], earliest, latest) for where in partitions}

    def ending(self) -> dict[TopicPartition, int]:
        """Where a batch ends."""
        partitions = self.partitions()
        if self.options.ending_times is not None:
            return self._at_times(partitions, self.options.ending_times, starting=False)
        latest = self.offsets.latest(partitions, self.options.isolation_level)
        if isinstance(self.options.ending_offsets, str):
            return latest
        asked = _exactly("endingOffsets", self.options.ending_offsets, partitions)
        for where, offset in asked.items():
            if offset > latest[where]:
                self.lose(
                    where, f"endingOffsets has offset {offset}, but the partition ends at {latest[where]}"
                )
        return {
            where: latest[where] if asked[where] == LATEST else min(asked[where], latest[where])
            for where in partitions
        }

    def _begin_at(self, where: TopicPartition, offset: int, earliest: Positions, latest: Positions) -> int:
        if offset == EARLIEST:
            return earliest[where]
        if offset == LATEST:
            return latest[where]
        if offset > latest[where]:
            raise OptionsError(
                f"startingOffsets has offset {offset} for {where}, which ends at {latest[where]}; nothing was read",
                {"partition": str(where), "offset": offset, "latest": latest[where]},
            )
        if offset < earliest[where]:
            self.lose(
                where, f"startingOffsets has offset {offset}, but the partition begins at {earliest[where]}"
            )
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

    # ---- what is gone

    def lose(self, where: TopicPartition, lost: str) -> None:
        """Raise DataLoss, or warn and return where the user allows it."""
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"{where}: {lost}; records may be lost, so the query stops and nothing was skipped; set "
                "failOnDataLoss=false to go on with what is there",
                {"partition": str(where)},
            )
        _log.warning("%s: %s; records may be lost (failOnDataLoss=false)", where, lost)


def _exactly(
    option: str, given: Mapping[str, Mapping[int, int]], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """What the option says of each partition; OptionsError unless it names them all and no other."""
    asked = {
        TopicPartition(topic, number): value
        for topic, each in given.items()
        for number, value in each.items()
    }
    if set(asked) != set(partitions):
        raise OptionsError(
            f"{option} must name every partition of the topics and no other: missing "
            f"{_names(set(partitions) - set(asked))}, not there {_names(set(asked) - set(partitions))}; "
            "nothing was read"
        )
    return asked


def _names(partitions: set[TopicPartition]) -> str:
    return ", ".join(str(each) for each in sorted(partitions)) or "none"
