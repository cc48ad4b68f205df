"""The rules on imports that import-linter cannot state: it sees a library as one whole.

kafka-python has two halves: messages (`kafka.protocol`), with one door in each house, and connections (`kafka.net`),
with one door.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "connector"
DOORS = {
    "kafka.protocol": {"embedded_kafka/wire", "kafka_core/protocol", "pyspark_kafka_eos/client/wire"},
    "kafka.net": {"pyspark_kafka_eos/client/net"},
}


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


@pytest.mark.parametrize("library", DOORS)
def test_each_half_of_kafka_python_is_imported_behind_its_own_doors_only(library: str) -> None:
    doors = {path for path, names in imports_of_modules().items() if reaches(names, library)}

    assert {next((door for door in DOORS[library] if path.startswith(f"{door}/")), path) for path in doors} == DOORS[
        library
    ]


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
