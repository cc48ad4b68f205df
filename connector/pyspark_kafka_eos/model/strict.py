"""Reads JSON that anybody may have written: every value has its type and its bounds, whatever the text says.

Owns: the kinds of values of this package's records, and what cannot be one.
Does not know: which record has which fields.
Invariants:
- What is no such value is one of `MALFORMED`, never another error.
- No value costs more than the text that it came from.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

MALFORMED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
"""What reading a record raises that is not of this package. A text with 100,000 opening brackets is a
RecursionError.
"""

MOST = 2**63 - 1
"""The largest number that Kafka's protocol has."""

LAST_MS = 253_402_300_799_999
"""The end of the year 9999, behind which nothing can show a time."""

_MOST_INT32 = 2**31 - 1
_MOST_EPOCH = 2**15
"""An epoch is an int16; a seal's end under transaction version 2 is the one behind it."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_SHOWN = 60
"""Characters of a value that an error shows."""


def load(text: bytes | str, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The value of a JSON text; ValueError or RecursionError where it is none. Infinity and NaN are no JSON."""
    return json.loads(text, parse_constant=_no_constant, object_hook=object_hook)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def shown(error: BaseException) -> str:
    """What was wrong, in a bounded text."""
    return repr(error)[:200]


def whole(value: Any, low: int = 0, high: int = MOST) -> int:
    """A whole number within bounds. True and 1.0 are none."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{repr(value)[:_SHOWN]} is no number from {low} to {high}")
    return value


def positive(value: Any) -> int:
    """A size, a limit, how many partitions a topic has: at least 1."""
    return whole(value, 1)


def one_of(value: Any, known: Collection[str]) -> str:
    """One of these names."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{repr(value)[:_SHOWN]} is none of {', '.join(known)}")
    return value


def int32(value: Any) -> int:
    """A number of partitions, a partition, a slot."""
    return whole(value, 0, _MOST_INT32)


def writer(value: Any) -> int:
    """Who speaks in a log of turns: a task, or the driver, which has the number -1."""
    return whole(value, -1, _MOST_INT32)


def sequence(value: Any) -> int:
    """A sequence of records, an epoch of a leader: -1 where there is none."""
    return whole(value, -1, _MOST_INT32)


def epoch(value: Any) -> int:
    """An epoch of a producer."""
    return whole(value, 0, _MOST_EPOCH)


def offset(value: Any) -> int:
    """An offset, -1 where it is unknown."""
    return whole(value, -1)


def time_ms(value: Any) -> int:
    """A time of day in milliseconds since 1970."""
    return whole(value, 0, LAST_MS)


def text(value: Any) -> str:
    """A text that can be written as UTF-8: half a surrogate pair cannot."""
    if type(value) is not str:
        raise TypeError(f"{repr(value)[:_SHOWN]} is no text")
    if not value.isascii():
        value.encode()
    return value


def flag(value: Any) -> bool:
    """True or false; 1 is neither."""
    if type(value) is not bool:
        raise TypeError(f"{repr(value)[:_SHOWN]} is neither true nor false")
    return value


@functools.lru_cache(maxsize=1024)
def topic(value: Any) -> str:
    """A topic's name as Kafka takes it."""
    if not _TOPIC.fullmatch(text(value)):
        raise ValueError(f"{value[:_SHOWN]!r} is no topic's name")
    return str(value)


def digest(value: Any) -> int:
    """A digest of records, as 16 hexadecimal digits."""
    if not _DIGEST.fullmatch(text(value)):
        raise ValueError(f"{value[:_SHOWN]!r} is no digest")
    return int(value, 16)


def several(value: Any, length: int | None = None) -> Sequence[Any]:
    """A list, of this length where one is given."""
    if type(value) is not list or length not in (None, len(value)):
        raise TypeError(f"{repr(value)[:_SHOWN]} is no list" + ("" if length is None else f" of {length}"))
    return value


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(map(text, several(value)))


__all__ = [
    "LAST_MS", "MALFORMED", "MOST", "digest", "epoch", "flag", "int32", "load", "offset", "sequence", "several", "shown", "text",
    "texts", "time_ms", "topic", "whole",
]  # fmt: skip
