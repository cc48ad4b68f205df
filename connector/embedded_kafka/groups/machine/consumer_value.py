"""The value of one group of the consumer protocol (KIP-848), and of its members.

Owns: the states of a group and of a member, the group's facts, and what follows from all of them together.
Does not know: which move follows which event; `consumer_moves` has the table.
Invariants:
- Values are frozen.
- A partition belongs to at most one member: whoever has it assigned, or has not yet given it back.
Source: KIP-848; Kafka's ConsumerGroup and ConsumerGroupMember.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from embedded_kafka.groups.machine.events import Protocols

TopicId = bytes
"""Sixteen bytes."""
Shares = frozenset[tuple[TopicId, int]]
"""Partitions, each by its topic's id and its number."""
Epochs = Mapping[tuple[TopicId, int], int]
NOTHING: Shares = frozenset()

FIRST_EPOCH = 1
"""Of a group that nobody has joined yet, as in Kafka 4.3; a first member that subscribes to something raises it."""
JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""A static member leaves and keeps its partitions until it comes back or its session ends."""


class ConsumerGroupState(Enum):
    """How far the group is."""

    EMPTY = "no members; there may be committed offsets"
    ASSIGNING = "the members have changed, and the target assignment is the one before"
    RECONCILING = "some members do not have their target yet"
    STABLE = "every member has its target"
    DEAD = "removed, or the broker stops; no event comes any more"

    @property
    def kafka_name(self) -> str:
        """As Kafka's tools show it: "Reconciling"."""
        return self.name.capitalize()


class Phase(Enum):
    """How far one member is on its way to its target; the values are those of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions back first."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given back."""


@dataclass(frozen=True)
class ConsumerLimits:
    """The broker's settings for all groups. `assignors`: the names, and the first one is the default. `may_upgrade`,
    `may_downgrade`: whether a group with members becomes one of this protocol, of the classic one."""

    max_members: int = 1_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignors: tuple[str, ...] = ("uniform", "range")
    may_upgrade: bool = True
    may_downgrade: bool = True


@dataclass(frozen=True)
class Subscribed:
    """A topic that exists: its id and how many partitions it has."""

    topic_id: TopicId
    partitions: int


@dataclass(frozen=True)
class ClassicSide:
    """What makes a member one of the classic protocol. `join_by_ms`, `sync_by_ms`: until when its JoinGroup, its
    SyncGroup has to come; None: none is awaited. Neither is in the log."""

    session_timeout_ms: int
    protocols: Protocols
    join_by_ms: int | None = None
    sync_by_ms: int | None = None


@dataclass(frozen=True)
class Consumer:
    """One member. `regex`: empty for none. `assigned`: what it may use; `revoking`: what it has to give back; `since`:
    the epoch that brought it each of both (KIP-1251). `classic`: None for a member of the consumer protocol.

    `deadline_ms`: when it is considered dead; `revoke_by_ms`: when it is considered stuck; None: it has nothing to
    give back. Neither is in the log.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    phase: Phase = Phase.STABLE
    assigned: Shares = NOTHING
    revoking: Shares = NOTHING
    since: Epochs = field(default_factory=dict)
    deadline_ms: int = 0
    revoke_by_ms: int | None = None
    classic: ClassicSide | None = None

    def reconciled(self, epoch: int) -> bool:
        """Whether it has the target of this epoch."""
        return self.phase is Phase.STABLE and self.epoch == epoch

    @property
    def due_ms(self) -> int:
        """From when on time alone removes it."""
        side = self.classic
        if side is None:
            # Of each member at each heartbeat of any.
            return self.deadline_ms if self.revoke_by_ms is None else min(self.deadline_ms, self.revoke_by_ms)
        times = (self.deadline_ms, self.revoke_by_ms, side.join_by_ms, side.sync_by_ms)
        return min(each for each in times if each is not None)

    def session_ms(self, limits: ConsumerLimits) -> int:
        """How long it may be silent: as it said itself, or as the broker says."""
        return limits.session_timeout_ms if self.classic is None else self.classic.session_timeout_ms


Consumers = Mapping[str, Consumer]


@dataclass(frozen=True)
class ConsumerGroup:
    """One group. `topics`: the subscribed topics that exist, as of this epoch; `matches`: the topics of each regular
    expression; `targets`: what each member shall have, as of `assignment_epoch`."""

    group_id: str
    limits: ConsumerLimits = ConsumerLimits()
    state: ConsumerGroupState = ConsumerGroupState.EMPTY
    epoch: int = FIRST_EPOCH
    assignment_epoch: int = 0
    members: Consumers = field(default_factory=dict)
    targets: Mapping[str, Shares] = field(default_factory=dict)
    topics: Mapping[str, Subscribed] = field(default_factory=dict)
    matches: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def due_ms(self) -> int | None:
        """From when on time alone changes the group; None: never."""
        return min((member.due_ms for member in self.members.values()), default=None)

    @property
    def assignor(self) -> str:
        """The one that most members prefer, or the broker's first."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else self.limits.assignors[0]

    @property
    def wanted(self) -> frozenset[str]:
        """The topics that some member subscribes to, by name or by expression, whether they exist or not."""
        names: set[str] = set()
        for member in self.members.values():
            names.update(member.topics)
        return frozenset(names).union(*self.matches.values())

    def names_of(self, member: Consumer) -> frozenset[str]:
        """The topics that one member subscribes to, whether they exist or not."""
        return self.matches.get(member.regex, frozenset()).union(member.topics)

    @property
    def classics(self) -> int:
        """How many of its members use the classic protocol."""
        return sum(member.classic is not None for member in self.members.values())

    def held_by_others(self, member_id: str) -> Shares:
        """The partitions that other members may still use."""
        return union(member.assigned | member.revoking for each, member in self.members.items() if each != member_id)

    def holder_of(self, instance_id: str | None) -> Consumer | None:
        """The static member with this group.instance.id."""
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def by_name(self, shares: Shares) -> list[tuple[str, list[int]]]:
        """(topic's name, its partitions), of the subscribed topics that exist."""
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        return [(names[topic_id], found) for topic_id, found in by_topic_id(shares) if topic_id in names]

    def broken_invariant(self) -> str:
        """What is wrong with it, in words; empty for a valid value."""
        if self.state is ConsumerGroupState.DEAD:
            return ""
        held: Counter[tuple[TopicId, int]] = Counter()
        for member in self.members.values():
            held.update(member.assigned | member.revoking)
        if any(count > 1 for count in held.values()):
            return "a partition belongs to two members"
        if not self.targets.keys() <= self.members.keys():
            return "there is a target for a stranger"
        if sum(map(len, self.targets.values())) != len(union(self.targets.values())):
            return "a partition is the target of two members"
        return "" if settled(self).state is self.state else "its state is not what its members say"


def by_topic_id(shares: Shares) -> list[tuple[TopicId, list[int]]]:
    """(topic's id, its partitions) in order, as Kafka's messages and records have them."""
    topics: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(shares):
        topics.setdefault(topic_id, []).append(partition)
    return list(topics.items())


def union(shares: Iterable[Shares]) -> Shares:
    """All of them together."""
    return NOTHING.union(*shares)


def settled(group: ConsumerGroup) -> ConsumerGroup:
    """The group with the state that its epochs and members say."""
    if not group.members:
        state = ConsumerGroupState.EMPTY
    elif group.epoch > group.assignment_epoch:
        state = ConsumerGroupState.ASSIGNING
    elif all(member.reconciled(group.assignment_epoch) for member in group.members.values()):
        state = ConsumerGroupState.STABLE
    else:
        state = ConsumerGroupState.RECONCILING
    return replace(group, state=state)
