"""The list of scenarios.

Owns: which there are, under which name, and for which clients.
Does not know: what they do (the modules `script_*`, which enter theirs by `@scenario` when they are imported).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.differential.play import Play


@dataclass(frozen=True)
class Scenario:
    """One story. `play` asks and notes.

    both_protocols: what it does depends on the version of the client.
    slow: it takes half a minute and is told once for each transaction version only.
    consumer_protocol: it is about KIP-848, which not every broker has.
    migrates: what becomes of it depends on `group.consumer.migration.policy`.
    """

    name: str
    play: Callable[[Play], None]
    both_protocols: bool
    slow: bool
    consumer_protocol: bool = False
    migrates: bool = False


_SCENARIOS: dict[str, Scenario] = {}
_MODULES = (
    "coordinator", "epochs", "offsets", "leader", "records", "reads", "markers", "groups", "group_edges", "consumer_groups", "mixed_groups", "admin", "configs", "twice",
    "compaction",
)  # fmt: skip

_Function = Callable[..., None]


def scenarios() -> list[Scenario]:
    """All of them, in the order of the script."""
    for name in _MODULES:
        importlib.import_module(f"tests.differential.script_{name}")
    return list(_SCENARIOS.values())


def scenario(
    *,
    both_protocols: bool = False,
    slow: bool = False,
    consumer_protocol: bool = False,
    migrates: bool = False,
    **each: tuple[Any, ...],
) -> Callable[[_Function], _Function]:
    """Register a function under its name. With an `each` it is several: named and called with each of its values."""

    def register(function: _Function) -> _Function:
        name = function.__name__.replace("_", "-")
        if not each:
            _add(Scenario(name, function, both_protocols, slow, consumer_protocol, migrates))
        for argument, values in each.items():
            for value in values:
                story = partial(function, **{argument: value})
                _add(Scenario(f"{name}-{value}".lower(), story, both_protocols, slow, consumer_protocol, migrates))
        return function

    return register


def _add(one: Scenario) -> None:
    assert one.name not in _SCENARIOS, one.name
    _SCENARIOS[one.name] = one
