"""The assignors of the server's side (KIP-848): `uniform`, which is balanced and moves little, and `range`.

Owns: who shall have which partition.
Does not know: epochs, what members have now, how they come to their targets.
Invariants: every partition of a topic with subscribers is in exactly one target, and that member subscribes to it.
Source: KIP-848; Kafka's UniformAssignor and RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from embedded_kafka.groups.machine.consumer_value import NOTHING, Shares, TopicId

_ROUNDS_AT_MOST = 16
"""Of moves that make a balance better: Kafka's limit. Where all members subscribe to the same topics one is enough;
else each about halves what is left, and half as many would leave large groups uneven."""


@dataclass(frozen=True)
class Wish:
    """One member as an assignor sees it: the ids of the topics that it subscribes to."""

    instance_id: str | None
    topics: frozenset[TopicId]


Wishes = Mapping[str, Wish]
Targets = dict[str, Shares]
Sizes = Mapping[TopicId, int]
"""Topic -> how many partitions it has."""


def _subscribers(wishes: Wishes, order: list[str]) -> dict[TopicId, list[str]]:
    found: dict[TopicId, list[str]] = {}
    for member in order:
        for topic in wishes[member].topics:
            found.setdefault(topic, []).append(member)
    return found


def uniform(wishes: Wishes, before: Mapping[str, Shares], sizes: Sizes) -> Targets:
    """Counts that differ as little as the subscriptions allow. A member keeps what it has where that does not stand
    against it."""
    order = list(wishes)
    subscribers = _subscribers(wishes, order)
    every = {(topic, at) for topic in subscribers for at in range(sizes[topic])}
    had = {
        member: {share for share in before.get(member, NOTHING) & every if share[0] in wishes[member].topics}
        for member in order
    }
    free = every.difference(*had.values())
    # The topics with the fewest choices first, as long as everyone has room.
    ranks = {topic: (-sizes[topic] / len(members), len(members), topic) for topic, members in subscribers.items()}
    for share in sorted(free, key=lambda one: (ranks[one[0]], one[1])):
        had[min(subscribers[share[0]], key=lambda member: len(had[member]))].add(share)
    for _ in range(_ROUNDS_AT_MOST):
        if not _moved(order, had, subscribers):
            break
    return {member: frozenset(shares) for member, shares in had.items()}


def _moved(order: list[str], had: dict[str, set[tuple[TopicId, int]]], subscribers: dict[TopicId, list[str]]) -> bool:
    """Move partitions from members with more to members with two or more fewer; whether there were any."""
    moved = False
    for member in sorted(order, key=lambda one: -len(had[one])):
        # Moves only make it larger. Without it every partition of a balanced group would be looked at.
        lowest = min(map(len, had.values()))
        for share in sorted(had[member], reverse=True):
            if len(had[member]) <= lowest + 1:
                break
            least = min(subscribers[share[0]], key=lambda one: len(had[one]))
            if len(had[least]) + 1 < len(had[member]):
                had[member].remove(share)
                had[least].add(share)
                moved = True
    return moved


def in_ranges(wishes: Wishes, before: Mapping[str, Shares], sizes: Sizes) -> Targets:
    """Of each topic a range for each subscriber, in the order of their names, static members first: equal topics are
    cut at equal places."""
    order = sorted(
        wishes, key=lambda member: (wishes[member].instance_id is None, wishes[member].instance_id or member)
    )
    targets: dict[str, set[tuple[TopicId, int]]] = {member: set() for member in order}
    for topic, members in _subscribers(wishes, order).items():
        quota, more = divmod(sizes[topic], len(members))
        start = 0
        for at, member in enumerate(members):
            end = start + quota + (at < more)
            targets[member].update((topic, partition) for partition in range(start, end))
            start = end
    return {member: frozenset(shares) for member, shares in targets.items()}


ASSIGNORS: Mapping[str, Callable[[Wishes, Mapping[str, Shares], Sizes], Targets]] = {
    "uniform": uniform,
    "range": in_ranges,
}
"""Kafka's name -> function of the wishes, the targets so far, and the topics' sizes."""
