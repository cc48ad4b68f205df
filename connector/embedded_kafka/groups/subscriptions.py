"""The topics that a group's members consume, where they use the consumer protocol.

Owns: when they are known.
Does not know: assignments, the form of a subscription.
"""

from __future__ import annotations

from embedded_kafka.groups.machine.embedded_protocol import CONSUMER, NotConsumers, read_subscription
from embedded_kafka.groups.machine.moves import Group, GroupState


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics of all members together; None where they are unknown, so any topic may be among them."""
    if group.protocol_type != CONSUMER:
        return None
    if not group.members:
        return frozenset()
    if group.protocol_name is None or group.state is GroupState.DEAD:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(read_subscription(member.metadata(group.protocol_name)).topics)
        except NotConsumers:
            return None
    return frozenset(topics)
