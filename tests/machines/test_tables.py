"""What holds of every machine's table: rows name where they lead, no state is out of reach, and a machine is held to its rows."""

from __future__ import annotations

import dataclasses
from enum import Enum
from types import ModuleType

import pytest

from connector.errors import IllegalMove, InternalError
from connector.machines import table
from connector.machines.commit import per_task, whole_batch
from connector.machines.group import moves as group
from connector.machines.producer import sequences, session, turns
from connector.machines.table import Move, Moves, step
from connector.machines.transaction import moves as transaction

MACHINES = {
    "commit": per_task,
    "batch commit": whole_batch,
    "turns": turns,
    "producer": session,
    "sequences": sequences,
    "transaction": transaction,
    "group": group,
}
ENDS = {
    "commit": {"DONE", "ABORTED", "BROKEN"},
    "batch commit": {"DONE", "ABORTED"},
    "group": {"DEAD"},
    # Nothing but a new start of the task's batch follows; late events are ignored there.
    "turns": {"BROKEN"},
    "producer": {"FENCED", "FATAL"},
    "sequences": {"REJECTED"},
    "transaction": set(),
}
OUTSIDE = {"transaction": {"DEAD", "PREPARE_EPOCH_FENCE"}}
"""States that no move enters or leaves: of an id that has expired, and a name of Kafka's that is never logged."""


@pytest.mark.parametrize("name", MACHINES)
def test_every_row_names_its_handler_and_every_state_it_can_lead_to(name: str) -> None:
    module = MACHINES[name]
    for (state, event), move in module.MOVES.items():
        assert move.next, (state, event)
        assert len(set(move.next)) == len(move.next), (state, event)
        assert all(isinstance(each, module.State) for each in move.next), (state, event)
        assert move.handler.__doc__, (state, event)


@pytest.mark.parametrize("name", MACHINES)
def test_no_state_is_out_of_reach_and_only_an_end_has_no_way_out(name: str) -> None:
    module = MACHINES[name]
    reached: set[Enum] = set()
    leaving: set[str] = set()
    for (state, _), move in module.MOVES.items():
        reached.update(each for each in move.next if each is not state)
        if any(each is not state for each in move.next):
            leaving.add(state.name)
    states = [state for state in module.State if state.name not in OUTSIDE.get(name, set())]
    assert {state.name for state in states} - leaving == ENDS[name]
    assert [state.name for state in states if state not in reached] == first(module)
    assert all(state in states for state in reached)


def first(module: ModuleType) -> list[str]:
    """Where a machine begins, if no move leads back there."""
    beginning: Enum = next(iter(module.State))
    back = any(beginning in move.next for (state, _), move in module.MOVES.items() if state is not beginning)
    return [] if back else [beginning.name]


class State(Enum):
    ON = "it is on"
    OFF = "it is off"


@dataclasses.dataclass(frozen=True)
class Lamp:
    state: State = State.ON


class Switch:
    """Somebody presses it."""


def test_a_machine_is_held_to_its_row_in_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    def turn(lamp: Lamp, _event: Switch) -> tuple[Lamp, tuple[str, ...]]:
        return dataclasses.replace(lamp, state=State.OFF), ("dark",)

    right: Moves[State] = {(State.ON, Switch): Move(turn, State.OFF)}
    wrong: Moves[State] = {(State.ON, Switch): Move(turn, State.ON)}

    assert table.checked, "tests/conftest.py sets it"
    assert step(right, Lamp(), Switch(), "lamp") == (Lamp(State.OFF), ("dark",))
    with pytest.raises(InternalError, match="Switch in ON led to OFF, which its row does not name"):
        step(wrong, Lamp(), Switch(), "lamp")
    with pytest.raises(IllegalMove, match="Switch is not allowed in OFF; nothing has changed"):
        step(right, Lamp(State.OFF), Switch(), "lamp")
    monkeypatch.setattr(table, "checked", False)
    assert step(wrong, Lamp(), Switch(), "lamp") == (Lamp(State.OFF), ("dark",))
