"""What can happen to a consumer group and what it asks its shell to do: the events and effects of `moves`.

Owns: the values only, and the names of the refusals.
Does not know: states and moves, numeric error codes.
Invariants:
- Values are frozen, and equal where their fields are.
- Every Join and Sync carries a ticket, and exactly one answer to that ticket follows, at once or later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""


class GroupRefusal(Enum):
    """Why a request is not done; the names are Kafka's error codes."""

    COORDINATOR_NOT_AVAILABLE = "the group is gone"
    FENCED_INSTANCE_ID = "another member holds this group.instance.id"
    FENCED_MEMBER_EPOCH = "the epoch is not the member's: it has to give up its partitions and to join again"
    GROUP_MAX_SIZE_REACHED = "the group has as many members as it may"
    ILLEGAL_GENERATION = "the generation is not the group's"
    INCONSISTENT_GROUP_PROTOCOL = "no protocol is common to this member and the others"
    MEMBER_ID_REQUIRED = "join again under the member id that was given (KIP-394)"
    NON_EMPTY_GROUP = "the group has members"
    NOT_COORDINATOR = "the broker stops, or could not write"
    REBALANCE_IN_PROGRESS = "the group is being rebalanced"
    STALE_MEMBER_EPOCH = "the epoch is not the member's: its next heartbeat has the new one"
    UNKNOWN_MEMBER_ID = "the group has no such member"
    UNKNOWN_SERVER_ERROR = "the request makes no sense, or could not be written at all"
    UNRELEASED_INSTANCE_ID = "another member holds this group.instance.id and has not left"


# ---- events


@dataclass(frozen=True)
class Join:
    """JoinGroup. `new_member_id` is the id for a member that has none yet; the shell generates it, because it is
    random.

    `require_known_member_id`: version 4 and later (KIP-394). `skips_assignment`: version 9 and later, the client
    understands that a returning static leader need not assign.
    """

    now_ms: int
    ticket: int
    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    require_known_member_id: bool = True
    skips_assignment: bool = True


@dataclass(frozen=True)
class Sync:
    """SyncGroup. Only the leader's `assignments` count. `protocol_type` and `protocol_name` are None before version
    5.
    """

    now_ms: int
    ticket: int
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Heartbeat:
    """A member signals that it is alive."""

    now_ms: int
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True)
class Leave:
    """Members leave: (member id, instance id) each; an empty member id names a static member by its instance id
    only.
    """

    now_ms: int
    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class CommitOffsets:
    """A client asks whether it may commit offsets of the group. A member's commit counts as a heartbeat."""

    now_ms: int
    generation: int
    member_id: str
    instance_id: str | None = None
    transactional: bool = False


@dataclass(frozen=True)
class Tick:
    """The time is `now_ms`: everything that is overdue happens."""

    now_ms: int


@dataclass(frozen=True)
class Delete:
    """The group is to be removed."""

    now_ms: int


@dataclass(frozen=True)
class Close:
    """The broker stops, or the group becomes one of the consumer protocol. `refusal`: what those that wait are told."""

    refusal: GroupRefusal = GroupRefusal.NOT_COORDINATOR


@dataclass(frozen=True)
class Loaded:
    """The group was read from the log; its members have a whole session timeout for their next heartbeat."""

    now_ms: int


@dataclass(frozen=True)
class NotStored:
    """The move that `event` would have made is void, because it could not be written."""

    event: Join | Sync
    refusal: GroupRefusal
    now_ms: int


Event = Join | Sync | Heartbeat | Leave | CommitOffsets | Tick | Delete | Close | Loaded | NotStored


# ---- effects


@dataclass(frozen=True)
class AnswerJoin:
    """The answer to a Join. `members`: (member id, instance id, metadata), for the leader only."""

    ticket: int
    member_id: str
    refusal: GroupRefusal | None = None
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True)
class AnswerSync:
    """The answer to a Sync."""

    ticket: int
    refusal: GroupRefusal | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True)
class AnswerCode:
    """The answer to a Heartbeat, CommitOffsets or Delete, at once; None means success."""

    refusal: GroupRefusal | None = None


@dataclass(frozen=True)
class AnswerLeave:
    """The answer to a Leave, per member in its order."""

    refusals: tuple[GroupRefusal | None, ...]


@dataclass(frozen=True)
class Store:
    """Write the group's new value before any other effect is carried out.

    `required`: where that fails the move is void and the shell hands in `NotStored` to the value before it. Otherwise
    the move stands: an empty generation that was not written only means that a restart finds the one before, whose
    members then time out.
    """

    required: bool


Effect = AnswerJoin | AnswerSync | AnswerCode | AnswerLeave | Store

Assignments = Mapping[str, bytes]
