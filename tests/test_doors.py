"""The rules on imports that import-linter cannot state: it sees a library as one whole.

Of kafka-python only the messages are used (`kafka.protocol`), behind one door in each house. Its connections and the
errors of them are nobody's.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "connector"
DOORS = {"embedded_kafka/wire", "kafka_core/protocol"}


def imports_of(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@cache
def imports_of_modules() -> dict[str, set[str]]:
    """Module's path below the sources -> what it imports. Read once for all libraries."""
    return {
        path.relative_to(SOURCES).as_posix(): imports_of(path.read_text(encoding="utf-8"))
        for path in SOURCES.rglob("*.py")
    }


def reaches(names: set[str], library: str) -> bool:
    return any(name == library or name.startswith(library + ".") for name in names)


def test_the_messages_are_imported_behind_their_doors_only() -> None:
    behind = {path for path, names in imports_of_modules().items() if reaches(names, "kafka.protocol")}

    assert {next((door for door in DOORS if path.startswith(f"{door}/")), path) for path in behind} == DOORS


def test_nothing_else_of_the_library_is_imported() -> None:
    others = {
        path: sorted(name for name in names if reaches({name}, "kafka") and not reaches({name}, "kafka.protocol"))
        for path, names in imports_of_modules().items()
    }

    assert not {path: names for path, names in others.items() if names}


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("import kafka.net", True),
        ("from kafka.net.manager import X", True),
        ("def f():\n    from kafka import net", True),
        ("import kafka.network", False),
        ("from kafka import errors", False),
    ],
)
def test_an_import_is_seen_in_whatever_form_it_is_written(source: str, seen: bool) -> None:
    assert reaches(imports_of(source), "kafka.net") is seen
