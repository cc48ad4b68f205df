"""The names of a package that are loaded on their first use, for packages that everybody imports.

Does not know: which names. It imports nothing but what Python has loaded by then.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def on_first_use(
    module: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package. `module`: its globals; `homes`: a public name -> the module that has
    it.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return find, lambda: sorted({*module, *module["__all__"]})
