"""The live groups: runs their machines, keeps the requests that wait for an answer, stores before it answers.

Owns: every group's present value, tickets and the coroutines behind them.
Does not know: offsets, the log's form.
Invariants:
- A move is stored, where it has to be, before any effect of it is visible.
- The answer to a ticket whose connection is gone is dropped; the member's timeouts then remove the member.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator

from embedded_kafka.due import DueTimes
from embedded_kafka.groups.machine.moves import (
    AnswerCode,
    AnswerJoin,
    AnswerLeave,
    AnswerSync,
    Close,
    Effect,
    Event,
    Group,
    GroupRefusal,
    GroupState,
    Join,
    Limits,
    NotStored,
    Store,
    Sync,
    Tick,
    handle,
)
from embedded_kafka.refusals import Refused
from kafka_core.errors import IllegalMove
from kafka_core.protocol.error_codes import Code

log = logging.getLogger(__name__)

GROUPS_AT_MOST = 50_000
"""Kafka has no such limit. Each group takes a few kilobytes here, and a client that invents group ids in a
loop must not exhaust the broker's memory. No test or job comes near the limit."""

_STORE_REFUSALS = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: GroupRefusal.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER: GroupRefusal.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR: GroupRefusal.NOT_COORDINATOR,
}
"""The members' refusal when the group cannot be written, as in Kafka; for other codes UNKNOWN_SERVER_ERROR."""


class Memberships:
    """All groups of the broker. `store` writes a group's value to the log; Refused where the write fails."""

    def __init__(self, limits: Limits, store: Callable[[Group], None]) -> None:
        self.limits = limits
        self._store = store
        self._groups: dict[str, Group] = {}
        self._due: DueTimes[str] = DueTimes()
        self._tickets = itertools.count(1)
        self._joins: dict[int, asyncio.Future[AnswerJoin]] = {}
        self._syncs: dict[int, asyncio.Future[AnswerSync]] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> Group | None:
        """The group's present value."""
        return self._groups.get(group_id)

    def get_or_new(self, group_id: str) -> Group:
        """The group's present value, or an empty group, which exists only after `keep` or its first move."""
        return self._groups.get(group_id) or Group(group_id, self.limits)

    def keep(self, group: Group) -> None:
        """Add or replace the group. Refused(POLICY_VIOLATION) where the broker has too many groups."""
        if group.group_id not in self._groups and len(self._groups) >= GROUPS_AT_MOST:
            raise Refused(Code.POLICY_VIOLATION, f"this broker keeps at most {GROUPS_AT_MOST} groups")
        self._groups[group.group_id] = group
        self._look_again(group)

    def forget(self, group_id: str) -> None:
        """Remove the group."""
        self._groups.pop(group_id, None)

    def ticket(self) -> int:
        """A number for one request that may have to wait."""
        return next(self._tickets)

    async def join(self, group: Group, event: Join) -> AnswerJoin:
        """Apply a Join and wait for its answer."""
        future: asyncio.Future[AnswerJoin] = asyncio.get_running_loop().create_future()
        self._joins[event.ticket] = future
        try:
            self.apply(group, event)
            return await future
        finally:
            del self._joins[event.ticket]

    async def sync(self, group: Group, event: Sync) -> AnswerSync:
        """Apply a Sync and wait for its answer."""
        future: asyncio.Future[AnswerSync] = asyncio.get_running_loop().create_future()
        self._syncs[event.ticket] = future
        try:
            self.apply(group, event)
            return await future
        finally:
            del self._syncs[event.ticket]

    def ask(self, group: Group, event: Event) -> GroupRefusal | None:
        """Apply an event that is answered at once: None for success, or a refusal."""
        for effect in self.apply(group, event):
            if isinstance(effect, AnswerCode):
                return effect.refusal
        raise IllegalMove(f"group: {type(event).__name__} was not answered", {"group": group.group_id})

    def consider(self, group: Group, event: Event) -> GroupRefusal | None:
        """The answer that the event would get; nothing changes."""
        return next(effect.refusal for effect in handle(group, event)[1] if isinstance(effect, AnswerCode))

    def leave(self, group: Group, event: Event) -> tuple[GroupRefusal | None, ...]:
        """Apply a Leave; returns the answer for each member."""
        for effect in self.apply(group, event):
            if isinstance(effect, AnswerLeave):
                return effect.refusals
        raise IllegalMove(f"group: {type(event).__name__} was not answered", {"group": group.group_id})

    def apply(self, before: Group, event: Event) -> tuple[Effect, ...]:
        """Make the group's next move. A required store comes first; if it fails, the move does not happen."""
        after, effects = handle(before, event)
        store = next((effect for effect in effects if isinstance(effect, Store)), None)
        if store is not None:
            try:
                self._store(after)
            except Refused as refused:
                if store.required and isinstance(event, Join | Sync):
                    refusal = _STORE_REFUSALS.get(refused.code, GroupRefusal.UNKNOWN_SERVER_ERROR)
                    after, effects = handle(before, NotStored(event, refusal, event.now_ms))
                log.warning("group %s could not be written: %s", before.group_id, refused)
        if after is not before:
            self.keep(after)
        for effect in effects:
            self._deliver(effect)
        return effects

    def tick(self, now_ms: int, at_most: int | None = None) -> None:
        """Handle overdue timeouts in `at_most` groups (None: all), the rest with the next tick."""
        for group_id in self._due.due(now_ms, at_most):
            group = self._groups.get(group_id)
            if group is not None:
                # Before the move: a move without a change is not kept, and a failed move must be tried again.
                self._look_again(group)
                self.apply(group, Tick(now_ms))

    def catch_up(self, group_id: str, now_ms: int) -> None:
        """Handle overdue timeouts in one group."""
        group = self._groups.get(group_id)
        if group is not None and group.due_ms is not None and group.due_ms <= now_ms:
            self.apply(group, Tick(now_ms))

    def close(self, which: Callable[[str], bool] = lambda _group_id: True) -> None:
        """Refuse the waiting requests of these groups, and drop the groups."""
        for group in self:
            if which(group.group_id):
                if group.state is not GroupState.DEAD:
                    self.apply(group, Close())
                self.forget(group.group_id)

    def hand_over(self, group: Group) -> None:
        """The group is one of the consumer protocol from now on: those that wait are told to join again."""
        self.apply(group, Close(GroupRefusal.REBALANCE_IN_PROGRESS))
        self.forget(group.group_id)

    def _look_again(self, group: Group) -> None:
        # Most groups of a long-lived broker only name stored offsets: they have no timeouts.
        due_ms = group.due_ms
        if due_ms is not None:
            self._due.by(group.group_id, due_ms)

    def _deliver(self, effect: Effect) -> None:
        if isinstance(effect, AnswerJoin):
            _resolve(self._joins.get(effect.ticket), effect)
        elif isinstance(effect, AnswerSync):
            _resolve(self._syncs.get(effect.ticket), effect)


def _resolve(future: asyncio.Future[AnswerJoin] | asyncio.Future[AnswerSync] | None, answer: Effect) -> None:
    if future is not None and not future.done():
        future.set_result(answer)  # type: ignore[arg-type]
