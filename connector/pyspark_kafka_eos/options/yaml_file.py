"""The form of a job's YAML file: how it is read, and ${NAME} in its values.

Owns: reading the file, replacing variables.
Does not know: which fields exist.
Invariants:
- A message names the field and never shows a value (it may be a password).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kafka_core.errors import OptionsError

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def read_fields(path: Path) -> dict[Any, Any]:
    """The fields of a YAML file, unchanged; OptionsError where it cannot be read or is not YAML."""
    try:
        body = yaml.safe_load(path.read_text())
    except OSError as error:
        raise OptionsError(f"{path} cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise OptionsError(f"{path}{where}: this is not YAML: {error.problem}") from None
    if not isinstance(body, dict):
        raise OptionsError(f"{path}: expected fields such as source: and sink:, found none")
    return body


def replace_variables(value: Any, environ: Mapping[str, str], problems: list[str], where: str = "") -> Any:
    """The value with ${NAME} replaced from the environment, and ${NAME:-text} by the text where NAME is not set.

    Adds a line to `problems` for each variable that has neither.
    """
    if isinstance(value, dict):
        return {key: replace_variables(each, environ, problems, f"{where}{key}.") for key, each in value.items()}
    if not isinstance(value, str):
        return value

    def look_up(match: re.Match[str]) -> str:
        default: str | None = match["default"]
        found = environ.get(match["name"]) or default
        if found is None:
            problems.append(
                f"{where.removesuffix('.')}: the environment variable {match['name']} is not set or empty; set it, or give a "
                f"default as ${{{match['name']}:-default}}"
            )
            return ""
        return found

    return _VARIABLE.sub(look_up, value)
