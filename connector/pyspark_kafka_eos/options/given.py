"""The options as the user gave them, before any name of them is known.

Owns: which mappings, names and types of values are options at all.
Does not know: which options exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kafka_core.errors import OptionsError

_LONGEST_NAME = 256
"""Characters. The longest that there is has 57; an error repeats the name."""


def named(options: object) -> dict[str, Any]:
    """A copy of the options; OptionsError where they are no mapping, or a name of one is no text or a very long one."""
    if not isinstance(options, Mapping):
        raise OptionsError(
            f"the options are of type {type(options).__name__}; nothing was read or written; give a mapping of names to values, "
            'such as {"kafka.bootstrap.servers": "host:9092"}'
        )
    # Only the type: a name that is no text may be a value, and a value may be a secret.
    strange = next((type(name).__name__ for name in options if not isinstance(name, str)), None)
    if strange is not None:
        raise OptionsError(
            f"the name of an option is of type {strange}; nothing was read or written; the names of options are texts"
        )
    longest = max(map(len, options), default=0)
    if longest > _LONGEST_NAME:
        raise OptionsError(
            f"the name of an option has {longest} characters; nothing was read or written; no option has a name of that length: look "
            "whether a value was given as a name"
        )
    return dict(options)


def text_of(name: str, value: object, problems: list[str]) -> str | None:
    """The value as Spark would pass it on, or None after adding one line to `problems`."""
    if value is None:
        problems.append(f"{name} has no value: leave it out or give it one")
        return None
    if isinstance(value, Collection) and not isinstance(value, str):
        kind = type(value).__name__
        problems.append(f"{name} is of type {kind}: must be text, a number or true/false")
        return None
    # Spark writes Python's True as "true"; a mapping that Spark never saw is treated the same way.
    return str(value).lower() if isinstance(value, bool) else str(value)


__all__ = ["named", "text_of"]
