"""Files of which a run wants no test are not imported: the marks of a whole file stand in its `pytestmark`, so its text
says whether `-m` can want any of them.

Owns: which files those are.
Does not know: the marks of a single test.
Invariant: a file is left out only where no marks that its tests may have besides its own could make the expression
true. What cannot be read is collected.

A third of the tests are in files that need a broker or Spark, and importing those took `make check` a second in each
process.
"""

from __future__ import annotations

import ast
from pathlib import Path

_BEGINS = "\npytestmark = "


def is_left_out(path: Path, wanted: str) -> bool:
    """Whether no test of the file can be one that the expression of `-m` asks for."""
    if not wanted or path.suffix != ".py" or not path.name.startswith("test_"):
        return False
    return _outcome(wanted, marks_of(path.read_text(encoding="utf-8"))) is False


def marks_of(source: str) -> frozenset[str]:
    """The names in a module's `pytestmark`; none where that is more than a mark or a list of marks."""
    at = source.find(_BEGINS)
    if at < 0:
        return frozenset()
    # It ends before the next line that begins with a name or a comment: brackets are closed where their list is.
    lines = source[at + len(_BEGINS) :].splitlines()
    end = next((number for number, line in enumerate(lines) if number and line[:1] not in (" ", "]", ")")), len(lines))
    try:
        value = ast.parse("\n".join(lines[:end]), mode="eval").body
    except SyntaxError:
        return frozenset()
    each = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    return frozenset(name for mark in each if (name := _name_of(mark)))


def _name_of(mark: ast.expr) -> str:
    """`pytest.mark.NAME`, called or not."""
    found = mark.func if isinstance(mark, ast.Call) else mark
    return found.attr if isinstance(found, ast.Attribute) and ast.unparse(found.value) == "pytest.mark" else ""


def _outcome(wanted: str, marks: frozenset[str]) -> bool | None:
    """Of an expression of `-m` for tests with these marks; None where it depends on their other marks."""
    try:
        return _value(ast.parse(wanted.strip(), mode="eval").body, marks)
    except SyntaxError:
        return None


def _value(node: ast.expr, marks: frozenset[str]) -> bool | None:
    match node:
        case ast.Name(id=name):
            return True if name in marks else None
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _value(operand, marks)
            return None if inner is None else not inner
        case ast.BoolOp(op=operator, values=values):
            decides = isinstance(operator, ast.Or)
            found = {_value(each, marks) for each in values}
            return decides if decides in found else None if None in found else not decides
        case _:
            return None
