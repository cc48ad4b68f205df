"""What exists of the topics that a group subscribes to, as far as the client that asks may know of them.

Owns: authorization, and the match of a regular expression with the topics' names.
Does not know: groups.
"""

from __future__ import annotations

from embedded_kafka.groups.machine.consumer_events import Catalogue
from embedded_kafka.groups.machine.consumer_value import Subscribed
from embedded_kafka.groups.patterns import compiled
from embedded_kafka.parts import Parts


def existing(parts: Parts, wanted: frozenset[str], expression: str) -> Catalogue:
    """What exists of the wanted topics, and the topics that match, as far as the client may know of them."""
    matches: dict[str, frozenset[str]] = {}
    if expression:
        pattern = compiled(expression)
        found = {topic.name for topic in parts.topics if pattern.matches(topic.name)}
        matches[expression] = frozenset(name for name in found if parts.authorizer.allows("DESCRIBE", "TOPIC", name))
        wanted = wanted.union(matches[expression])
    topics = {name: topic for name in wanted if (topic := parts.topics.get(name)) is not None}
    return Catalogue(
        {name: Subscribed(topic.topic_id.bytes, topic.partitions) for name, topic in topics.items()}, matches
    )
