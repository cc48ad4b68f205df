"""Where the embedded broker answers a client with rights in another way than Apache Kafka, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.authorization.play import Cell

_OF_THE_BROKER = "the embedded broker's settings are those of its start, so it refuses to change them"
KNOWN = {
    "IncrementalAlterConfigs, of the broker": _OF_THE_BROKER,
    "AlterConfigs, of the broker": _OF_THE_BROKER,
}
"""Label of a question -> the reason. Who may ask is the same; what is answered to him is not."""
_INVALID_REQUEST, _CLUSTER_AUTHORIZATION_FAILED = 42, 31


def differences(embedded: Mapping[Cell, Any], real: Mapping[Cell, Any]) -> dict[Cell, str]:
    """The cells that differ, with the reason that is known, else with both answers."""
    assert embedded.keys() == real.keys()
    return {
        cell: _reason(cell, embedded[cell], real[cell]) for cell in embedded if embedded[cell] != real[cell]
    }  # fmt: skip


def unknown(embedded: Mapping[Cell, Any], real: Mapping[Cell, Any]) -> dict[Cell, str]:
    """Those for which there is no reason."""
    return {cell: why for cell, why in differences(embedded, real).items() if why not in KNOWN.values()}


def _reason(cell: Cell, embedded: Any, real: Any) -> str:
    allowed = _code(embedded) == _INVALID_REQUEST and _code(real) != _CLUSTER_AUTHORIZATION_FAILED
    known = KNOWN.get(cell[1]) if allowed else None
    return known or f"here {embedded}, there {real}"


def _code(answer: Any) -> int | None:
    try:
        return answer["responses"][0]["error_code"]  # type: ignore[no-any-return]
    except (KeyError, IndexError, TypeError):
        return None
