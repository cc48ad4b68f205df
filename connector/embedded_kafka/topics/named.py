"""Topics and partitions that one request may name more than once.

Owns: which entry of a partition counts. As in Kafka, the last entry counts, at the position of the first.
Does not know: what the entries request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import groupby
from typing import Any, TypeVar

_Name = TypeVar("_Name", bound=Hashable)

Merged = list[tuple[_Name, list[Any]]]
"""Topics with the entries of their partitions; each partition occurs once."""


def last_of_each(
    topics: Iterable[Any], entries_of: Callable[[Any], tuple[_Name, Iterable[Any]]], number_of: Callable[[Any], int]
) -> Merged[_Name]:  # fmt: skip
    """The entries that count. `entries_of` maps a topic to its name, or its id, and its partitions' entries,
    `number_of` an entry to its partition.
    """
    last: dict[tuple[_Name, int], Any] = {}
    for topic in topics:
        name, entries = entries_of(topic)
        for entry in entries:
            last[name, number_of(entry)] = entry
    return [
        (name, [entry for _, entry in each]) for name, each in groupby(last.items(), key=lambda item: item[0][0])
    ]  # fmt: skip


def more_than_once(names: Iterable[_Name]) -> dict[_Name, int]:
    """The names that occur several times, with their counts, in the order of first occurrence."""
    return {name: count for name, count in Counter(names).items() if count > 1}
