"""Classes of the driver's JVM, by their full names."""

from __future__ import annotations

from typing import Any


def java_class(context: Any, name: str) -> Any:
    """The class, from the JVM of a SparkContext. One question to the JVM: `_jvm.org.apache...` asks for each package on
    the way, and the JVM looks for a class of that name each time (1.3 ms for the first alone, of every micro-batch).
    """
    return getattr(context._jvm, name)
