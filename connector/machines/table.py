"""What every state machine here shares: looking a move up in its table, and refusing one that is not there.

Owns: the refusal of an illegal move, and of an effect that nobody carries out.
Does not know: any particular machine.
Invariants: machines are immutable values, so a refused move has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NoReturn, TypeVar

from connector.errors import IllegalMove, InternalError

StateT = TypeVar("StateT", bound=Enum)

Moves = Mapping[tuple[StateT, type[Any]], Callable[..., Any]]
"""(state, class of event) -> handler(machine, event) -> (new machine, effects). Ignoring an event is a row too."""


def handler_for(moves: Moves[StateT], state: StateT, event: object, machine: str) -> Callable[..., Any]:
    """The handler of an event in a state; IllegalMove, naming both, where the table has no such row."""
    try:
        return moves[state, type(event)]
    except KeyError:
        raise IllegalMove(
            f"{machine}: {type(event).__name__} is not allowed in {state.name}; nothing has changed",
            {"machine": machine, "state": state.name, "event": type(event).__name__},
        ) from None


def unhandled(effect: NoReturn) -> InternalError:
    """For the end of a chain of `isinstance` over all effects: mypy refuses the call while one of them can reach it."""
    return InternalError(f"nothing carries out {type(effect).__name__}", {"effect": repr(effect)})
