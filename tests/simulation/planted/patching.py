"""Changes one function of the product in this process, and back.

Invariants:
- The text that is replaced stands in the function once, so a bug cannot quietly become none.
- The function object stays the same, so every module and table that holds it has the bug.
"""

from __future__ import annotations
import __future__

import contextlib
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any


def function_of(path: str) -> FunctionType:
    """`module:Class.method` or `module:function`; of a property its getter."""
    module, _, names = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if not isinstance(found, FunctionType):
        raise TypeError(f"{path} is no function")
    return found


@contextlib.contextmanager
def patched(path: str, old: str, new: str) -> Iterator[None]:
    """The function with `old` replaced by `new`, for the time of the context. ValueError where `old` is not in it once."""
    function = function_of(path)
    text = textwrap.dedent(inspect.getsource(function))
    if text.count(old) != 1:
        raise ValueError(f"{path} has {text.count(old)} times {old!r}")
    # Decorators would wrap the new function; only its code is wanted.
    start = text.index("def ")
    start = text.rindex("\n", 0, start) + 1 if "\n" in text[:start] else 0
    made: dict[str, Any] = {}
    code = compile(
        text[start:].replace(old, new),
        f"<planted in {path}>",
        "exec",
        flags=__future__.annotations.compiler_flag,
    )
    exec(code, function.__globals__, made)
    (changed,) = made.values()
    before = function.__code__
    function.__code__ = changed.__code__
    try:
        yield
    finally:
        function.__code__ = before
