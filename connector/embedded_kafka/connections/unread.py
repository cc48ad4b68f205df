"""Answers that clients have not read: the limit on their memory over all connections, and how it is shared.

Owns: how many bytes each connection has unsent, which answers wait for room, which clients are cut off for room.
Does not know: sockets, what the answers contain.
Invariants:
- Unsent answers exceed the limit by at most one answer, which then is one of the smallest of its API.
- No client is cut off while there is room.

Under pressure, large answers that can be built again wait for room. The newest request comes first, and a
part of the room is reserved for requests that have just arrived: a client that reads always has a new
request, one that does not read sends only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kafka_core import runtime

SMALL_BYTES = 16 * 1024
"""Answers up to this size are not counted: 2,000 connections hold 32 MB of them. At half, a buffer fills up
twice as often; at double, 64 MB go uncounted."""
_LOOK_AGAIN_AFTER_S = 0.1
_SHARES = 4
"""An answer may take a quarter of the free room, and a quarter of all room is reserved for requests that have
just arrived. Kafka's largest answer then comes in two parts. With a half, the second of two clients that do
not read would take nearly all the room that the first left."""
_JUST_ASKED_S = 1.0
STUCK_AFTER_S = 5.0
"""Under pressure the broker cuts off a client that has read nothing for this time; it can send its request
again. Consumers read between two batches of their work: half of this would cut off many busy consumers, at
double the others wait too long."""
SLOW_AFTER_S = 30.0
"""Under pressure the broker also cuts off a client that reads but finishes no answer in this time."""


class Holder(Protocol):
    """The part of a connection that this module uses."""

    def unsent_bytes(self) -> int:
        """Bytes of its answer that the operating system has not taken yet."""

    def held_bytes(self) -> int:
        """The memory that the unsent answer takes."""

    def cut_off(self, reason: str) -> None:
        """Close the connection and release its answer."""


@dataclass
class _Held:
    holder: Holder
    memory: int
    unsent: int
    since_s: float
    moved_s: float


class Unread:
    """All connections of a broker, on one event loop. `now_s`: a clock that never goes back."""

    def __init__(
        self,
        limit_bytes: int,
        *,
        stuck_after_s: float = STUCK_AFTER_S,
        now_s: Callable[[], float] = runtime.monotonic,
    ) -> None:
        self._limit = limit_bytes
        self._stuck_after_s = stuck_after_s
        self._now_s = now_s
        self._held: dict[int, _Held] = {}
        self._total = 0
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []
        self._looking: asyncio.TimerHandle | None = None

    @property
    def left(self) -> int:
        """Bytes that may be written before other answers have to wait; 0 or less: none."""
        return self._limit - self._total

    @property
    def share(self) -> int:
        """Bytes that one answer should not exceed: a part of the free room, so the next answer always has some left."""
        return max(1, self.left // _SHARES)

    @property
    def held_bytes(self) -> int:
        """The memory of unsent answers, as of the last check."""
        return self._total

    def holds(self, connection_id: int, holder: Holder) -> None:
        """The connection could not send all of its answer, or all of a further part of it."""
        now_s = self._now_s()
        before = self._held.get(connection_id)
        since_s = now_s if before is None else before.since_s
        self._forget(connection_id)
        held = _Held(holder, holder.held_bytes(), holder.unsent_bytes(), since_s, now_s)
        self._held[connection_id] = held
        self._total += held.memory

    def drained(self, connection_id: int) -> None:
        """The connection has sent its answer, or is closed."""
        if connection_id in self._held:
            self._forget(connection_id)
            self._wake()

    async def room(self) -> None:
        """Return when there is room. The caller then writes its answer before it awaits anything else."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._now_s(), turn))
        self._look()
        await turn

    def close(self) -> None:
        """Stop checking; connections cancel their own waiting answers."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _forget(self, connection_id: int) -> None:
        held = self._held.pop(connection_id, None)
        if held is not None:
            self._total -= held.memory

    def _wake(self) -> None:
        while self.left > 0 and self._waiting:
            asked_s, turn = self._waiting[-1]
            if self._now_s() - asked_s > _JUST_ASKED_S and self.left <= self._limit // _SHARES and not turn.done():
                return
            self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                # call_soon, so the woken caller writes its answer first.
                asyncio.get_running_loop().call_soon(self._wake)
                return

    def _look(self) -> None:
        """While answers wait: update what clients have read since, and cut off those that block room."""
        if self._looking is not None:
            return
        # Some callers were cancelled while they waited.
        self._waiting = [each for each in self._waiting if not each[1].done()]
        if not self._waiting:
            return
        now_s = self._now_s()
        for held in self._held.values():
            unsent, memory = held.holder.unsent_bytes(), held.holder.held_bytes()
            if unsent != held.unsent:
                held.unsent, held.moved_s = unsent, now_s
            self._total += memory - held.memory
            held.memory = memory
        if self.left <= self._limit // _SHARES:
            self._make_room(now_s)
        self._wake()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_AGAIN_AFTER_S, self._look_again)

    def _look_again(self) -> None:
        self._looking = None
        self._look()

    def _make_room(self, now_s: float) -> None:
        """Free up to half of the room at once, so that not every waiting answer needs a check of its own."""
        for connection_id, held in sorted(self._held.items(), key=lambda item: item[1].moved_s):
            if self.left >= self._limit // 2:
                return
            if self._is_late(held, now_s):
                held.holder.cut_off(f"it left {held.unsent} bytes of its answer unread while others wait for room")
                self._forget(connection_id)

    def _is_late(self, held: _Held, now_s: float) -> bool:
        return now_s - held.moved_s >= self._stuck_after_s or now_s - held.since_s >= SLOW_AFTER_S
