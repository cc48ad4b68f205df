"""No wait without a bound: every place where the client, the tasks or the driver wait is listed here with what ends the wait.

Found by reading the code: calls that wait (Condition.wait, Event.wait, Future.result, Thread.join, Queue.get, Lock.acquire,
socket.recv, select), pools whose end is waited for, and loops that pause or have no condition.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "connector"
ROOMS = ("client", "commit", "slot")
"""Where records and decisions are sent; the source, the sink and the operator wait through these."""

CALLS = frozenset({"wait", "result", "join", "get", "acquire", "recv", "recv_into", "select"})
PAUSES = frozenset({"pause", "sleep"})
CLOCKS = ("deadline", "monotonic", "left", "give_up", "remaining")


@dataclass(frozen=True)
class Wait:
    """One place. `bounded`: the code beside it says when the wait ends."""

    place: str
    line: int
    bounded: bool


def waits_in(path: Path) -> Iterator[Wait]:
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    yield from _walk(ast.parse(path.read_text(encoding="utf-8")), module, [])


def _walk(node: ast.AST, module: str, within: list[ast.AST]) -> Iterator[Wait]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _walk(child, module, [*within, child])
            continue
        what = _what(child)
        if what is not None:
            function = next((each for each in reversed(within) if isinstance(each, ast.FunctionDef)), None)
            names = ".".join(getattr(each, "name", "") for each in within)
            yield Wait(f"{module}::{names}::{what}", getattr(child, "lineno", 0), _bounded(child, function))
        yield from _walk(child, module, within)


def _what(node: ast.AST) -> str | None:
    if isinstance(node, ast.While):
        called = {_name(each) for each in ast.walk(node) if isinstance(each, ast.Call)}
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return "while" if endless or called & PAUSES else None
    if not isinstance(node, ast.Call):
        return None
    name = _name(node)
    if name == "ThreadPoolExecutor":
        return name
    if name not in CALLS or not isinstance(node.func, ast.Attribute):
        return None
    if name == "get" and (node.args or node.keywords):
        return None  # of a mapping
    if name == "join" and node.args and not isinstance(node.args[0], ast.Constant | ast.Name | ast.BinOp):
        return None  # of text
    return None if isinstance(node.func.value, ast.Constant | ast.JoinedStr) else name


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _bounded(node: ast.AST, function: ast.FunctionDef | None) -> bool:
    if isinstance(node, ast.Call):
        if _name(node) == "acquire":
            return any(word.arg == "timeout" for word in node.keywords) or len(node.args) > 1
        return _name(node) in CALLS - {"recv", "recv_into"} and bool(node.args or node.keywords)
    compared = [each for each in ast.walk(function or node) if isinstance(each, ast.Compare)]
    return any(clock in ast.unparse(each) for each in compared for clock in CLOCKS)


def found() -> list[Wait]:
    files = sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py"))
    return [wait for path in files for wait in waits_in(path)]


if __name__ == "__main__":
    for each in found():
        print(each.bounded, each.place, each.line)
