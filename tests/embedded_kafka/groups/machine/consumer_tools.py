"""Short words for the tests of the consumer protocol's machine: a topic, heartbeats, groups in each state."""

from __future__ import annotations

from embedded_kafka.groups.machine.consumer_events import AnswerBeat, Beat, Catalogue
from embedded_kafka.groups.machine.consumer_moves import ConsumerEvent, handle
from embedded_kafka.groups.machine.consumer_value import ConsumerGroup, Shares, Subscribed

NOW, SESSION, REBALANCE = 1_000, 45_000, 30_000
TOPIC, OTHER = b"t" * 16, b"u" * 16
EXISTING = Catalogue({"t": Subscribed(TOPIC, 4), "u": Subscribed(OTHER, 2)})


def shares(*partitions: int, topic: bytes = TOPIC) -> Shares:
    return frozenset((topic, partition) for partition in partitions)


def joining(member_id: str, *, topics: tuple[str, ...] = ("t",), now_ms: int = NOW, **more: object) -> Beat:
    """The first heartbeat of a member."""
    facts: dict[str, object] = {
        "rebalance_timeout_ms": REBALANCE, "topics": topics, "owned": frozenset(), "catalogue": EXISTING,
    }  # fmt: skip
    return Beat(now_ms, member_id, 0, "client", "/127.0.0.1", **(facts | more))  # type: ignore[arg-type]


def beat(member_id: str, epoch: int, *, now_ms: int = NOW, **more: object) -> Beat:
    """A later one: nothing has changed."""
    facts: dict[str, object] = {"catalogue": EXISTING}
    return Beat(now_ms, member_id, epoch, "client", "/127.0.0.1", **(facts | more))  # type: ignore[arg-type]


def moved(group: ConsumerGroup, *events: ConsumerEvent) -> ConsumerGroup:
    for event in events:
        group, _ = handle(group, event)
    return group


def answered(group: ConsumerGroup, event: ConsumerEvent) -> tuple[ConsumerGroup, AnswerBeat]:
    """The group and its answer, which is no refusal."""
    group, (answer,) = handle(group, event)
    assert isinstance(answer, AnswerBeat), answer
    return group, answer
