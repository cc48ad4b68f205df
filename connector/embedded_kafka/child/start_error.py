"""Why a broker in a child process did not start, for the process that started it: the same error as in its own.

Owns: the line of JSON that the child prints instead of its addresses.
Does not know: what can go wrong, who reads the line.
Invariants: what `found_in` returns has the class, the message and the facts of the error that `line_of` was given.
"""

from __future__ import annotations

import json
from typing import Any

from kafka_core import errors
from kafka_core.errors import ExactlyOnceError, Fact

_BEGIN = '{"error"'


def line_of(error: ExactlyOnceError) -> str:
    """The error as a line."""
    said = {"class": type(error).__name__, "message": error.message, "facts": error.facts}
    return json.dumps({"error": said})


def found_in(output: str) -> ExactlyOnceError | None:
    """The error of which a child's output has the line; None where it has none, as of a child that was killed."""
    lines = output.splitlines(keepends=True)
    line = next((each for each in lines if each.startswith(_BEGIN) and each.endswith("\n")), None)
    if line is None:
        return None
    said = json.loads(line)["error"]
    kind: type[ExactlyOnceError] = getattr(errors, said["class"])
    assert issubclass(kind, ExactlyOnceError), kind
    return kind(said["message"], {name: _fact(value) for name, value in said["facts"].items()})


def _fact(value: Any) -> Fact:
    return tuple(map(_fact, value)) if isinstance(value, list) else value
