"""Changes of the product that a test has to notice, planted by definition: a function or a value by its name, and a
text within it.

Owns: what a planted change is, finding its place, the changed source, the change in this process.
Does not know: who plays a change, and how anybody notices it.
Invariants:
- The text stands in the definition exactly once, so that a change cannot quietly become none or another one. Layout and
  comments do not count: tokens are compared.
- In this process the function object stays the same, so every module and table that holds it has the change.

`tests.rules` plays changes in copies of the tree, `tests.simulation.planted` in its own process.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (Path("connector"), Path())

_TOKEN = re.compile(
    r"(?P<nothing>\s+|\\\n|#[^\n]*)"
    r'|[A-Za-z]{0,2}(?:"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    r"|\w+|.",
    re.DOTALL,
)


class CodeMoved(Exception):
    """A planted change does not fit the code any more and has to be written anew."""


class Change(NamedTuple):
    """`where`: `package.module:Class.method`, a function, or what a module or a class assigns. `old` is found there by
    its tokens.

    Lines of `new` behind its first one are indented as beside that one.
    """

    where: str
    old: str
    new: str

    def file(self, root: Path = ROOT) -> Path:
        """The module's file in a tree, seen from the tree's root."""
        module = Path(*self.where.partition(":")[0].split("."))
        for source in _SOURCES:
            for name in (module.with_suffix(".py"), module / "__init__.py"):
                if (root / source / name).is_file():
                    return source / name
        raise CodeMoved(f"there is no module for {self.where}")

    def applied_to(self, source: str) -> str:
        """The module's source with the change; CodeMoved where the definition is not there, or has not the text exactly
        once.
        """
        found = [span for part in self._spans(source) for span in _spans_of(self.old, source, *part)]
        if len(found) != 1:
            raise CodeMoved(f"{self.where} has this {len(found)} times instead of once:\n{self.old}")
        ((start, end),) = found
        return source[:start] + _indented(self.new, source, start) + source[end:]

    def _spans(self, source: str) -> list[tuple[int, int]]:
        """Where the definition stands: of a property with a setter there are two."""
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        nodes: list[Any] = [_parsed(source)]
        for name in self.where.partition(":")[2].split("."):
            nodes = [each for node in nodes for each in getattr(node, "body", ()) if name in _names(each)]
        if not nodes:
            raise CodeMoved(f"there is no {self.where}")
        return [(starts[_first_line(node) - 1], starts[node.end_lineno or 0]) for node in nodes]


@functools.lru_cache(maxsize=1)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {each.id for each in targets if isinstance(each, ast.Name)}


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])


def _tokens(text: str, start: int, end: int) -> list[re.Match[str]]:
    """The tokens; without the comma that a formatter puts before a closing bracket."""
    found = [each for each in _TOKEN.finditer(text, start, end) if each["nothing"] is None]
    behind = [*(each[0] for each in found[1:]), ""]
    pairs = zip(found, behind, strict=False)
    return [each for each, after in pairs if not (each[0] == "," and after in {")", "]", "}"})]


def _spans_of(wanted: str, source: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    words = [each[0] for each in _tokens(wanted, 0, len(wanted))]
    tokens = _tokens(source, start, end)
    texts = [each[0] for each in tokens]
    for i in range(len(texts) - len(words) + 1):
        if words and texts[i : i + len(words)] == words:
            yield tokens[i].start(), tokens[i + len(words) - 1].end()


def _indented(new: str, source: str, start: int) -> str:
    line = source[source.rfind("\n", 0, start) + 1 : start]
    there = len(line) - len(line.lstrip())
    first, *rest = new.split("\n")
    own = len(first) - len(first.lstrip())
    return "\n".join([first.lstrip(), *(" " * (there - own) + each if each else "" for each in rest)])


@dataclass(frozen=True)
class Planted:
    """`name` says what the product does wrong. `also`: further changes, where what is taken back has several layers."""

    name: str
    where: str
    old: str
    new: str
    also: tuple[Change, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """All of them."""
        return (Change(self.where, self.old, self.new), *self.also)

    def files(self, root: Path = ROOT) -> dict[Path, str]:
        """The changed files of a tree and their texts with the change; CodeMoved as for `Change.applied_to`."""
        texts: dict[Path, str] = {}
        for change in self.changes:
            path = root / change.file(root)
            texts[path] = change.applied_to(texts.get(path) or path.read_text(encoding="utf-8"))
        return texts

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """The change in this process, for the time of the context. CodeMoved, too, where it is not one of functions'
        bodies.
        """
        with contextlib.ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(_swapped(change))
            yield


def function_of(where: str) -> FunctionType:
    """The function of that name; of a property its getter."""
    module, _, names = where.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if not isinstance(found, FunctionType):
        raise CodeMoved(f"{where} is no function")
    return found


@contextlib.contextmanager
def _swapped(change: Change) -> Iterator[None]:
    function = function_of(change.where)
    source = Path(inspect.getfile(function)).read_text(encoding="utf-8")
    before = function.__code__
    changed = _compiled(change.applied_to(source), change.where, before)
    if changed == _compiled(source, change.where, before):
        raise CodeMoved(f"{change.where} does the same with this as without:\n{change.new}")
    function.__code__ = changed
    try:
        yield
    finally:
        function.__code__ = before


def _compiled(source: str, where: str, like: CodeType) -> CodeType:
    """The code of a function out of a module's source: of those with its name the one at its place."""
    codes = [compile(source, f"<planted in {where}>", "exec", dont_inherit=True)]
    for name in where.partition(":")[2].split("."):
        inside = [each for code in codes for each in code.co_consts if isinstance(each, CodeType)]
        codes = [each for each in inside if each.co_name == name]
    return min(codes, key=lambda each: abs(each.co_firstlineno - like.co_firstlineno))
