"""Members of a consumer group, and the properties of all of them together.

Owns: one member's facts, the vote for a protocol.
Does not know: states, generations, when an answer comes.
Invariants:
- Values are frozen.
- A dictionary of members is never changed; a new one replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from embedded_kafka.groups.machine.events import Protocols


@dataclass(frozen=True)
class Member:
    """One member. `join_ticket` and `sync_ticket` are its requests that have no answer yet.

    `deadline_ms`: when it is considered dead, unless it waits for an answer (it cannot send heartbeats then).
    A `new` member is considered dead even while it waits, because it may never read its answer.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    new: bool = False
    deadline_ms: int = 0

    @property
    def static(self) -> bool:
        """Whether its place is kept by a group.instance.id."""
        return self.instance_id is not None

    def overdue(self, now_ms: int) -> bool:
        """Whether it is considered dead."""
        due_ms = self.due_ms
        return due_ms is not None and now_ms >= due_ms

    @property
    def due_ms(self) -> int | None:
        """From when on it is overdue, if nothing changes; None: never."""
        waits = self.join_ticket is not None or self.sync_ticket is not None
        return self.deadline_ms if self.new or not waits else None

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for this protocol; empty where it does not support the protocol (any more)."""
        return next((data for name, data in self.protocols if name == protocol), b"")


Members = Mapping[str, Member]


def common_protocols(members: Members) -> set[str]:
    """The protocols that every member supports."""
    counts = Counter(name for member in members.values() for name in {name for name, _ in member.protocols})
    return {name for name, count in counts.items() if count == len(members)}


def elect_protocol(members: Members) -> str:
    """Each member votes for the first of its protocols that all support; most votes win, and of equal ones the
    first.
    """
    candidates = common_protocols(members)
    votes = Counter(next(name for name, _ in member.protocols if name in candidates) for member in members.values())
    return votes.most_common(1)[0][0]


def static_holder(members: Members, instance_id: str) -> str | None:
    """The id of the member that holds this group.instance.id."""
    return next((m.member_id for m in members.values() if m.instance_id == instance_id), None)
