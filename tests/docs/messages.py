"""The texts of the errors, as the code has them.

Owns: which class is raised with which text; a value in a text is shown as "…".
Does not know: the pages that quote the texts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kafka_core import errors
from kafka_core.errors import ExactlyOnceError

ROOT = Path(__file__).parents[2]
VALUE = "…"

CLASSES: dict[str, type[ExactlyOnceError]] = {
    name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, ExactlyOnceError)
}
"""Every public class of error, by its name."""


def raised() -> dict[str, frozenset[str]]:
    """Class -> the texts with which the code makes it. A text that is put together elsewhere (a list of problems, a
    text from a table) is not among them: see `texts`.
    """
    return _read()[0]


def texts() -> frozenset[str]:
    """Every text in the code."""
    return _read()[1]


@cache
def _read() -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """Both at once: the modules are parsed once and not kept, half a million objects for the collector."""
    found: dict[str, set[str]] = {}
    every: set[str] = set()
    for node in _nodes():
        if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp, ast.IfExp)):
            every.add(_text(node))
        match node:
            case ast.Call(func=ast.Name(name), args=[said, *_]) if name in CLASSES:
                found.setdefault(name, set()).add(_text(said))
            case ast.Call(func=ast.Attribute(ast.Name(name), "listing"), args=[said, *_]):
                found.setdefault(name, set()).add(f"{_text(said)}: {VALUE}")
    return {name: frozenset(each) for name, each in found.items()}, frozenset(every)


def _nodes() -> Iterator[ast.AST]:
    for path in sorted((ROOT / "connector").rglob("*.py")):
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else VALUE
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else VALUE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        # Both ends of an `x if y else z` are possible texts; a line break keeps one from reading on into the other.
        return f"{_text(node.body)}\n{_text(node.orelse)}" if _has_text(node) else VALUE
    return VALUE


def _has_text(node: ast.IfExp) -> bool:
    return any(not isinstance(each, (ast.Name, ast.Attribute)) for each in (node.body, node.orelse))
