"""The live groups: runs their machines, keeps the requests that wait for an answer, stores before it answers.

Owns: every group's present value, tickets and the coroutines behind them.
Does not know: offsets, the log's form.
Invariants: what a move needs stored is stored before anything of the move shows; a ticket that nobody waits for any more
(its connection is gone) is answered into the void, and the member's timeouts do the rest.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator

from connector.broker.due import DueTimes
from connector.broker.refusals import Refused
from connector.errors import IllegalMove
from connector.machines.group.moves import (
    Answer,
    AnswerJoin,
    AnswerLeave,
    AnswerSync,
    Close,
    Effect,
    Event,
    Group,
    Join,
    Limits,
    NotStored,
    Refusal,
    State,
    Store,
    Sync,
    Tick,
    handle,
)
from connector.protocol.error_codes import Code

log = logging.getLogger(__name__)

GROUPS_AT_MOST = 50_000
"""Kafka has no such limit. Each group is a few kilobytes here; a client in a loop that makes up group ids must not take
the broker's memory, and no test or job comes near."""

_STORE_REFUSALS = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: Refusal.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER: Refusal.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR: Refusal.NOT_COORDINATOR,
}
"""What members are told when the group cannot be written, as in Kafka; anything else is UNKNOWN_SERVER_ERROR."""


class Memberships:
    """All groups of the broker. `store` writes a group's value to the log; Refused where that failed."""

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
        """The group's present value, or that of an empty one, which exists once it is `keep`ed or something happens to it."""
        return self._groups.get(group_id) or Group(group_id, self.limits)

    def keep(self, group: Group) -> None:
        """The group exists. Refused(POLICY_VIOLATION) where there are too many."""
        if group.group_id not in self._groups and len(self._groups) >= GROUPS_AT_MOST:
            raise Refused(Code.POLICY_VIOLATION, f"this broker keeps at most {GROUPS_AT_MOST} groups")
        self._groups[group.group_id] = group
        self._look_again(group)

    def forget(self, group_id: str) -> None:
        """The group is no more."""
        self._groups.pop(group_id, None)

    def ticket(self) -> int:
        """A number for one request that may have to wait."""
        return next(self._tickets)

    async def join(self, group: Group, event: Join) -> AnswerJoin:
        """Hand a Join in and wait for its answer."""
        future: asyncio.Future[AnswerJoin] = asyncio.get_running_loop().create_future()
        self._joins[event.ticket] = future
        try:
            self.apply(group, event)
            return await future
        finally:
            del self._joins[event.ticket]

    async def sync(self, group: Group, event: Sync) -> AnswerSync:
        """Hand a Sync in and wait for its answer."""
        future: asyncio.Future[AnswerSync] = asyncio.get_running_loop().create_future()
        self._syncs[event.ticket] = future
        try:
            self.apply(group, event)
            return await future
        finally:
            del self._syncs[event.ticket]

    def ask(self, group: Group, event: Event) -> Refusal | None:
        """Hand in what is answered by yes (None) or no at once."""
        for effect in self.apply(group, event):
            if isinstance(effect, Answer):
                return effect.refusal
        raise IllegalMove(f"group: {type(event).__name__} was not answered", {"group": group.group_id})

    def consider(self, group: Group, event: Event) -> Refusal | None:
        """What the answer would be; nothing changes."""
        return next(effect.refusal for effect in handle(group, event)[1] if isinstance(effect, Answer))

    def leave(self, group: Group, event: Event) -> tuple[Refusal | None, ...]:
        """Hand in a Leave; what each member is told."""
        for effect in self.apply(group, event):
            if isinstance(effect, AnswerLeave):
                return effect.refusals
        raise IllegalMove(f"group: {type(event).__name__} was not answered", {"group": group.group_id})

    def apply(self, before: Group, event: Event) -> tuple[Effect, ...]:
        """Make the group's next move; what has to be stored is stored first, or the move is void."""
        after, effects = handle(before, event)
        store = next((effect for effect in effects if isinstance(effect, Store)), None)
        if store is not None:
            try:
                self._store(after)
            except Refused as refused:
                if store.required and isinstance(event, Join | Sync):
                    refusal = _STORE_REFUSALS.get(refused.code, Refusal.UNKNOWN_SERVER_ERROR)
                    after, effects = handle(before, NotStored(event, refusal, event.now_ms))
                log.warning("group %s could not be written: %s", before.group_id, refused)
        if after is not before:
            self.keep(after)
        for effect in effects:
            self._deliver(effect)
        return effects

    def tick(self, now_ms: int, at_most: int | None = None) -> None:
        """Let what is overdue happen in `at_most` groups (None: all), the rest with the next tick."""
        for group_id in self._due.due(now_ms, at_most):
            group = self._groups.get(group_id)
            if group is not None:
                # First, because a move that changes nothing is not kept, and one that fails is to be tried again.
                self._look_again(group)
                self.apply(group, Tick(now_ms))

    def catch_up(self, group_id: str, now_ms: int) -> None:
        """Let what is overdue happen in one group."""
        group = self._groups.get(group_id)
        if group is not None and group.due_ms is not None and group.due_ms <= now_ms:
            self.apply(group, Tick(now_ms))

    def close(self) -> None:
        """Refuse whatever waits, and forget every group."""
        for group in self:
            if group.state is not State.DEAD:
                self.apply(group, Close())
        self._groups.clear()

    def _look_again(self, group: Group) -> None:
        # Most groups of a long-lived broker are only names under which offsets are kept: time does nothing to them.
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
