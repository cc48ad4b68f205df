"""What a target is: it makes cases from random numbers and has the product read them.

Owns: the face of a target.
Does not know: which there are, how they are run.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from kafka_core.errors import ExactlyOnceError

Case = Any
"""Bytes, texts, numbers, and lists, tuples and dicts of them: what `repr` shows is what `ast.literal_eval` reads."""


class Target(Protocol):
    """One reader of foreign bytes. `most_mb`: how much memory a case may take beside what there was."""

    name: str
    reads: str
    most_mb: int

    def made(self, chance: random.Random) -> Case:
        """A case of these random numbers."""

    def played(self, case: Case) -> str:
        """What came of it, in a word. Any exception, and AssertionError for a wrong answer, is a defect."""

    def renewed(self) -> None:
        """Between cases, from time to time: leave behind what earlier ones have made (topics, groups)."""

    def closed(self) -> None:
        """The end."""


class Stateless:
    """A target whose cases leave nothing behind."""

    most_mb = 64

    def renewed(self) -> None:
        """Nothing to leave."""

    def closed(self) -> None:
        """Nothing to close."""


SECRET = "not-to-be-shown-7f3a"
"""In cases where a secret is."""

_LONGEST = 4_000
"""Of an error, in characters. That of options has a line for each of them."""


def judged(error: ExactlyOnceError) -> str:
    """The word for an error of this package, which a person can read, and which tells no secret."""
    text = str(error)
    assert SECRET not in text, "an error shows a secret"
    assert len(text) <= _LONGEST, "an error with all of a foreign text in it"
    assert all(each.isprintable() or each == "\n" for each in text), "an error with what a terminal obeys"
    return type(error).__name__


def seeded(seed: int, name: str, number: int) -> random.Random:
    """The random numbers of one case."""
    return random.Random(f"{seed}/{name}/{number}")
