"""What every state machine here shares: the rows of its table, looking a move up, refusing one that is not there.

Owns: the refusal of an illegal move, and of an effect that nobody carries out.
Does not know: any particular machine.
Invariants:
- Machines are immutable values, so a refused move has changed nothing.
- A move leads to one of the states that its row names. The tests hold every machine to that, wherever it runs (`checked`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from connector.errors import IllegalMove, InternalError

StateT = TypeVar("StateT", bound=Enum)


class Machine(Protocol):
    """A value with a state."""

    @property
    def state(self) -> Any:
        """Where it is."""


MachineT = TypeVar("MachineT", bound=Machine)


class Move(Generic[StateT]):
    """One row: `handler(machine, event) -> (new machine, effects)`, and every state that it can lead to."""

    __slots__ = ("handler", "next")

    def __init__(self, handler: Callable[..., Any], *following: StateT) -> None:
        self.handler = handler
        self.next = following


Moves = Mapping[tuple[StateT, type[Any]], Move[StateT]]
"""(state, class of event) -> what happens. Ignoring an event is a row too."""

checked = False
"""Whether a move to a state that its row does not name is an error. True in the tests: in production the row is only a description,
and a machine that was right so far is not stopped for it."""


def step(
    moves: Moves[StateT], machine: MachineT, event: object, name: str
) -> tuple[MachineT, tuple[Any, ...]]:
    """The machine after an event, and what its shell has to do; IllegalMove, naming both, where the table has no such row."""
    state: StateT = machine.state
    try:
        move = moves[state, type(event)]
    except KeyError:
        raise IllegalMove(
            f"{name}: {type(event).__name__} is not allowed in {state.name}; nothing has changed",
            {"machine": name, "state": state.name, "event": type(event).__name__},
        ) from None
    done: tuple[MachineT, tuple[Any, ...]] = move.handler(machine, event)
    if checked and done[0].state not in move.next:
        raise InternalError(
            f"{name}: {type(event).__name__} in {state.name} led to {done[0].state.name}, which its row does not name",
            {"machine": name, "state": state.name, "event": type(event).__name__},
        )
    return done


def unhandled(effect: NoReturn) -> InternalError:
    """For the end of a chain of `isinstance` over all effects: mypy refuses the call while one of them can reach it."""
    return InternalError(f"nothing carries out {type(effect).__name__}", {"effect": repr(effect)})
