"""By which topics, and by how many partitions of each, the slots of a batch routed their rows.

Owns: the form for a whole batch, which has what most slots did once.
Does not know: how rows are routed, who records it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark_kafka_eos.model import strict


@dataclass(frozen=True, order=True)
class RoutedTopic:
    """A topic as a task routed rows by it: the key of a row chooses one of `partitions`, so the same row goes to
    another one where partitions have been added since. `topic_id` tells it from a later topic of the same name
    (KIP-516); empty where the brokers report no ids (Metadata before version 10).
    """

    name: str
    topic_id: str
    partitions: int

    def to_json(self) -> list[Any]:
        """As a list of the three."""
        return [self.name, self.topic_id, self.partitions]

    @staticmethod
    def from_json(data: Any) -> RoutedTopic:
        """Read one back."""
        name, topic_id, partitions = strict.several(data, 3)
        return RoutedTopic(strict.topic(name), strict.text(topic_id), strict.positive(strict.int32(partitions)))


Apart = tuple[tuple[int, tuple[RoutedTopic, ...]], ...]
"""Slots, in order, each with all its topics."""


@dataclass(frozen=True)
class Routes:
    """What a batch was routed by. `usual`: each topic as most slots routed by it, by name. `apart`: the slots that did
    not; tasks that asked for a topic's partitions before and behind their addition route by different numbers.
    """

    usual: tuple[RoutedTopic, ...] = ()
    apart: Apart = ()

    @staticmethod
    def of_all(slots: Iterable[tuple[int, tuple[RoutedTopic, ...]]]) -> Routes:
        """Those of these slots, each with its topics in order."""
        slots = list(slots)
        counted = Counter(topic for _, topics in slots for topic in topics)
        # Of two with the same count the smaller one, so that the result does not depend on the order.
        ordered = sorted(counted, key=lambda topic: (topic.name, -counted[topic], topic))
        usual = {topic.name: topic for topic in reversed(ordered)}
        apart = [(slot, topics) for slot, topics in slots if any(usual[each.name] != each for each in topics)]
        return Routes(tuple(sorted(usual.values())), tuple(sorted(apart)))

    def of_slot(self, slot: int) -> dict[str, RoutedTopic]:
        """Name -> the topic as this slot routed by it, or as most slots did where it did not write to it."""
        own = next((topics for each, topics in self.apart if each == slot), ())
        return {topic.name: topic for topic in (*self.usual, *own)}
