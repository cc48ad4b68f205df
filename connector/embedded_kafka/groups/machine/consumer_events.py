"""What can happen to a group of the consumer protocol and what it answers: the events and effects of `consumer_moves`
that the classic protocol does not have.

Owns: the values only.
Does not know: states and moves.
Invariants: values are frozen, and equal where their fields are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from embedded_kafka.groups.machine.consumer_value import Shares, Subscribed, TopicId
from embedded_kafka.groups.machine.events import AnswerCode, AnswerJoin, AnswerLeave, AnswerSync, GroupRefusal, Join


@dataclass(frozen=True)
class Catalogue:
    """What exists of the topics that the group subscribes to, the request's included. `topics`: by name; `matches`:
    the names that the member's regular expression matches."""

    topics: Mapping[str, Subscribed] = field(default_factory=dict)
    matches: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Beat:
    """ConsumerGroupHeartbeat of a member that joins (epoch 0) or goes on. None, and -1 for the time: unchanged.

    `owned`: the partitions that the member still uses. `topics` are sorted.
    """

    now_ms: int
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Shares | None = None
    catalogue: Catalogue = Catalogue()

    @property
    def full(self) -> bool:
        """Whether it says everything, as after a lost answer: then its answer has to say everything, too."""
        subscribes = self.topics is not None or self.regex is not None
        return self.epoch == 0 or (self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None)


@dataclass(frozen=True)
class ClassicJoin:
    """JoinGroup of a member that uses the classic protocol in a group with members of the consumer protocol. `word`:
    what its subscription says, as a heartbeat would; its id is that of the request, or the new one."""

    join: Join
    word: Beat

    @property
    def now_ms(self) -> int:
        """When it came."""
        return self.join.now_ms


@dataclass(frozen=True)
class Depart:
    """A member leaves: LEAVING, or LEAVING_FOR_A_WHILE, which only static members may."""

    now_ms: int
    member_id: str
    instance_id: str | None
    epoch: int


@dataclass(frozen=True)
class Expel:
    """LeaveGroup names members (member id, instance id), or a static one by its instance alone: an operator removes
    them, or those that use the classic protocol leave."""

    now_ms: int
    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class WriteOffsets:
    """A client asks whether it may commit offsets as this member; an empty id: as nobody. `shares`: the partitions;
    None for those of a topic to which nobody subscribes."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    transactional: bool = False
    shares: frozenset[tuple[TopicId, int] | None] = frozenset()


@dataclass(frozen=True)
class ReadOffsets:
    """A client asks whether it may read the group's offsets as this member. None: as nobody."""

    member_id: str | None
    epoch: int


@dataclass(frozen=True)
class AnswerBeat:
    """The answer to a Beat or a Depart that was accepted. `assigned`: None where nothing changed."""

    member_id: str
    epoch: int
    assigned: Shares | None = None
    refusal: GroupRefusal | None = None


ConsumerEffect = AnswerBeat | AnswerCode | AnswerJoin | AnswerSync | AnswerLeave
