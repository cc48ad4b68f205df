"""A public class's name stands in one module of the three packages: a search finds the one class, and a traceback
that names it leads to it. There are no exceptions."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "connector"


def modules_by_class() -> dict[str, list[str]]:
    """Public class -> the modules that define it."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in ("pyspark_kafka_eos", "embedded_kafka", "kafka_core"):
        for path in (SOURCES / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].add(path.relative_to(SOURCES).as_posix())
    return {name: sorted(modules) for name, modules in found.items()}


def test_the_name_of_a_public_class_stands_in_one_module() -> None:
    assert {name: modules for name, modules in modules_by_class().items() if len(modules) > 1} == {}
