"""How the text of one option is read: the kinds of value, their bounds and the words of a refusal.

Owns: the reading of a single value.
Does not know: which options exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

MAX_INT = 2**31 - 1
"""Java's int, the type of these configs and of the wire fields they end in."""

LARGEST_SHOWN_VALUE = 80
"""A refused value is quoted up to this many characters: enough to recognise it, short enough for one line."""


@dataclass(frozen=True)
class Kind:
    """One kind of value; `expected` completes the sentence "must be ...". `shown`: whether a refused value may be
    quoted.
    """

    expected: str
    adapter: TypeAdapter[Any]
    shown: bool = True

    def read(self, name: str, text: str, problems: list[str]) -> Any:
        """The value, or None after adding one line to `problems`. Never shows pydantic's own wording."""
        try:
            return self.adapter.validate_python(text)
        except ValidationError:
            given = f" is {quoted(text)}:" if self.shown else ""
            problems.append(f"{name}{given} must be {self.expected}")
            return None


def quoted(text: str) -> str:
    """As a refusal shows a value."""
    return repr(text if len(text) <= LARGEST_SHOWN_VALUE else text[:LARGEST_SHOWN_VALUE] + "...")


def _servers(text: str) -> tuple[str, ...]:
    """Split `host:port,host:port`; a leading `PROTOCOL://` is dropped, as the Java client does."""
    servers = tuple(re.sub(r"^\w+://", "", part.strip()) for part in text.split(",") if part.strip())
    for server in servers:
        match = re.fullmatch(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[\w.%-]+):(\d{1,5})", server)
        if match is None or not 0 < int(match[1]) < 65536:
            raise ValueError(server)
    if not servers:
        raise ValueError(text)
    return servers


def whole_number(expected: str, least: int, most: int = MAX_INT) -> Kind:
    """A kind for numbers within [least, most]."""
    bounds = Annotated[int, Field(ge=least, le=most)]
    return Kind(f"{expected}, {least} to {most}", TypeAdapter(bounds))


def one_of(*values: str) -> Kind:
    """A kind for a fixed set of words, in any case; the word is returned as listed."""
    in_lower = BeforeValidator(lambda text: {value.lower(): value for value in values}.get(text.lower()))
    return Kind(f"one of {', '.join(values)}", TypeAdapter(Annotated[str, in_lower]))


def either(word: str, kind: Kind) -> Kind:
    """A kind for one word or the values of another kind."""

    def read(text: str) -> Any:
        return word if text == word else kind.adapter.validate_python(text)

    return Kind(f"{word}, or {kind.expected}", TypeAdapter(Annotated[Any, BeforeValidator(read)]))


MILLISECONDS = whole_number("a whole number of milliseconds", 1)
BYTES = whole_number("a whole number of bytes", 1)
# Spark reads only these two words as a flag; pydantic alone would also take "yes" and "1".
FLAG = Kind(
    "true or false",
    TypeAdapter(Annotated[bool, BeforeValidator(lambda text: {"true": True, "false": False}.get(text.lower()))]),
)
LONG_TEXT = Kind("a text that is not empty", TypeAdapter(Annotated[str, Field(min_length=1)]))
# Forty of the longest names of topics. Python takes 10 s for a megabyte.
PATTERN = Kind(
    "a Java pattern of 1 to 10,000 characters", TypeAdapter(Annotated[str, Field(min_length=1, max_length=10_000)])
)
TEXT = Kind("a text of 1 to 255 characters", TypeAdapter(Annotated[str, Field(min_length=1, max_length=255)]))
SERVERS = Kind("host:port, or several separated by commas", TypeAdapter(Annotated[Any, AfterValidator(_servers)]))


def _not_zero(number: int) -> int:
    if number == 0:
        raise ValueError(number)
    return number


# The Java client's bounds (KIP-390).
GZIP_LEVEL = Kind(
    "a whole number, 1 to 9, or -1 for the default",
    TypeAdapter(Annotated[int, Field(ge=-1, le=9), AfterValidator(_not_zero)]),
)
LZ4_LEVEL = whole_number("a whole number", 1, 17)
ZSTD_LEVEL = whole_number("a whole number", -131_072, 22)
