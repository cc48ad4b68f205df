"""Short words for the tests of the consumer protocol's machine: a topic, heartbeats, groups in each state."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from embedded_kafka.groups.machine.consumer_events import AnswerBeat, Beat, Catalogue, ClassicJoin
from embedded_kafka.groups.machine.consumer_moves import ConsumerEvent, handle
from embedded_kafka.groups.machine.consumer_value import NOTHING, ConsumerGroup, Shares, Subscribed
from embedded_kafka.groups.machine.events import Join

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


def subscription(*topics: str, owned: Mapping[str, Sequence[int]] = MappingProxyType({})) -> bytes:
    """A ConsumerProtocolSubscription of version 1: topics, and what the member says that it owns."""
    names = b"".join(map(_text, topics))
    parts = b"".join(_text(topic) + struct.pack(f">i{len(held)}i", len(held), *held) for topic, held in owned.items())
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, len(owned)) + parts


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def classic_joining(
    member_id: str,
    *,
    topics: tuple[str, ...] = ("t",),
    protocols: tuple[str, ...] = ("range",),
    owned: Shares = NOTHING,
    now_ms: int = NOW,
    **more: object,
) -> ClassicJoin:
    """JoinGroup of a member that has an id."""
    facts: dict[str, object] = {
        "protocols": tuple((name, subscription(*topics)) for name in protocols), "instance_id": None,
        "protocol_type": "consumer", "member_id": member_id,
    }  # fmt: skip
    join = Join(
        now_ms, 7, new_member_id="new", client_id="client", client_host="/127.0.0.1", session_timeout_ms=SESSION // 2,
        rebalance_timeout_ms=REBALANCE, **(facts | more),  # type: ignore[arg-type]
    )  # fmt: skip
    word = joining(
        join.member_id or "new", topics=topics, now_ms=now_ms, owned=owned, instance_id=join.instance_id,
    )  # fmt: skip
    return ClassicJoin(join, word)


def moved(group: ConsumerGroup, *events: ConsumerEvent) -> ConsumerGroup:
    for event in events:
        group, _ = handle(group, event)
    return group


def answered(group: ConsumerGroup, event: ConsumerEvent) -> tuple[ConsumerGroup, AnswerBeat]:
    """The group and its answer, which is no refusal."""
    group, (answer,) = handle(group, event)
    assert isinstance(answer, AnswerBeat), answer
    return group, answer
