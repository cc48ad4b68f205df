"""A selector that waits for simulated sockets in virtual time, for kafka-python and for asyncio.

Owns: which sockets are waited for, and by which thread.
Does not know: where bytes come from.
"""

from __future__ import annotations

import selectors
from collections.abc import Mapping
from typing import Any

from tests.simulation.network import Net

MOST_LOOKS = 10_000
"""How often a selector may look within one step of the world. A loop that turns without end would stop virtual time."""


class SimSelector(selectors.BaseSelector):
    """Waits for simulated sockets in virtual time. Of one process, used by one thread."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._ticket: object = None
        self._thread: Any = None
        self._busy, self._busy_at = 0, -1

    @staticmethod
    def _number(fileobj: Any) -> int:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        if number < 0:
            raise ValueError("a closed socket")
        return int(number)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = self._number(fileobj)
        if number in self._keys:
            raise KeyError(f"{number} is registered")
        self._net.watching.setdefault(number, []).append(self)
        self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        return self._keys[number]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        number = self._found(fileobj)
        self._net.watching[number].remove(self)
        return self._keys.pop(number)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = self._found(fileobj)
        self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        return self._keys[number]

    def _found(self, fileobj: Any) -> int:
        number: int | None
        try:
            number = self._number(fileobj)
        except ValueError:
            number = next((n for n, key in self._keys.items() if key.fileobj is fileobj), None)
            if number is None:
                raise
        if number not in self._keys:
            raise KeyError(f"{number} is not registered")
        return number

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[self._found(fileobj)]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {key.fileobj: key for key in self._keys.values()}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._ready()
        self._busy = 0 if self._net.world.steps != self._busy_at else self._busy + 1
        self._busy_at = self._net.world.steps
        if self._busy > MOST_LOOKS:
            raise RuntimeError("a loop turns without anything that happens")
        if not found and (timeout is None or timeout > 0):
            self._thread = self._net.world.running()
            self._ticket = self._thread.ticket()
            self._thread.park(timeout)
            self._ticket = None
            found = self._ready()
        return found

    def wake(self) -> None:
        """Something may be ready."""
        if self._ticket is not None:
            self._thread.wake(self._ticket)

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        # Only what is asked for is looked at: this took a twelfth of a history's time.
        found, sockets = [], self._net.sockets
        for number, key in self._keys.items():
            end = sockets.get(number)
            if end is None:
                continue
            events = 0
            if key.events & selectors.EVENT_READ and end.readable:
                events = selectors.EVENT_READ
            if key.events & selectors.EVENT_WRITE and end.writable:
                events |= selectors.EVENT_WRITE
            if events:
                found.append((key, events))
        return found

    def close(self) -> None:
        for number in list(self._keys):
            self._net.watching[number].remove(self)
        self._keys.clear()
