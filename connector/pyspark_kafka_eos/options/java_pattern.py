"""Java's regular expressions for topic names, translated to Python's.

Owns: which of Java's syntax means the same in both languages, which differs only in spelling, which is
refused.
Does not know: topics, options.
Invariants:
- A pattern that is not refused matches the same topic names in Java and here. Topic names contain only
  A-Z a-z 0-9 . _ - (Kafka's rule), so differences in other characters do not count.
"""

from __future__ import annotations

import re

_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": "._-",
    "ASCII": "a-zA-Z0-9._-",
    "L": "a-zA-Z",
    "IsAlphabetic": "a-zA-Z",
    "Lu": "A-Z",
    "Ll": "a-z",
    "Nd": "0-9",
    "N": "0-9",
}
"""Java's named classes, reduced to the characters of topic names."""

_SAME_ESCAPES = frozenset("dDwWsSbBA123456789")
_OUTSIDE_A_CLASS = frozenset("bBA123456789")
_LAST_ASCII = "\x7f"
_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:")


def to_python(pattern: str) -> re.Pattern[str]:
    """Compile a java.util.regex pattern for `search` in topic names; ValueError naming syntax without an
    equal here.

    Spark looks for the pattern anywhere in the name, so `search` selects the same topics as Spark.
    """
    return re.compile(_Translation(pattern).run(), re.ASCII)


def _in_class(character: str) -> str | None:
    """What stands for a character in brackets; None for itself."""
    if character > _LAST_ASCII:
        # No name has it, nor anything behind it in a range; Python makes a table of 65,536 for each set with one.
        return _LAST_ASCII
    # Python warns of doubled signs, which may get a meaning in a later version.
    return "\\" + character if character in "&~|" else None


class _Translation:
    """One walk over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []

    def run(self) -> str:
        """The pattern in Python's syntax."""
        if self._pattern.startswith("(?i)"):
            self._copy("(?i)")
        while self._at < len(self._pattern):
            rest = self._pattern[self._at :]
            if rest[0] == "\\":
                self._out.append(self._escape(in_class=False))
            elif rest[0] == "[":
                self._class()
            elif rest.startswith("(?"):
                self._group(rest)
            elif rest[0] == "{":
                quantifier = re.match(r"\{\d+(,\d*)?\}", rest)
                if quantifier is None:
                    raise ValueError("a { that begins no quantifier such as {2,3}")
                self._copy(quantifier[0])
            else:
                self._copy(rest[0])
        try:
            translated = "".join(self._out)
            re.compile(translated, re.ASCII)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(str(error)) from None
        return translated

    def _copy(self, text: str, instead: str | None = None) -> None:
        self._out.append(text if instead is None else instead)
        self._at += len(text)

    def _group(self, rest: str) -> None:
        named = re.match(r"\(\?<([A-Za-z][A-Za-z0-9]*)>", rest)
        if named is not None:
            self._copy(named[0], f"(?P<{named[1]}>")
            return
        for opening in _GROUPS:
            if rest.startswith(opening):
                self._copy(opening)
                return
        raise ValueError(f"the group {rest[:4]!r}; flags other than (?i) at the beginning cannot be used")

    def _escape(self, *, in_class: bool) -> str:
        """The equal of the escape at this place; moves past the escape."""
        rest = self._pattern[self._at :]
        if len(rest) < 2:
            raise ValueError("a backslash at the end")
        letter = rest[1]
        if letter == "Q" and not in_class:
            end = rest.find("\\E", 2)
            literal = rest[2:] if end < 0 else rest[2:end]
            self._at += len(rest) if end < 0 else end + 2
            return re.escape(literal)
        if letter == "p":
            named = re.match(r"\\p(?:\{(\w+)\}|(\w))", rest)
            members = _CLASSES.get((named[1] or named[2]) if named else "")
            if named is None or members is None:
                raise ValueError(f"the class {rest[: rest.find('}') + 1] or rest[:3]}")
            self._at += len(named[0])
            return members if in_class else f"[{members}]"
        if letter == "k" and not in_class:
            back = re.match(r"\\k<([A-Za-z][A-Za-z0-9]*)>", rest)
            if back is None:
                raise ValueError("a \\k without a group's name")
            self._at += len(back[0])
            return f"(?P={back[1]})"
        self._at += 2
        if letter in "zZ" and not in_class:
            # They differ at line ends only, which no name has; Python has only \Z.
            return "\\Z"
        if not letter.isalnum():
            return "\\" + letter
        if letter in _SAME_ESCAPES and not (in_class and letter in _OUTSIDE_A_CLASS):
            return "\\" + letter
        raise ValueError(f"the escape \\{letter}")

    def _class(self) -> None:
        """A class in brackets. Java's unions and intersections of classes have no equal."""
        opening = "[^" if self._pattern.startswith("[^", self._at) else "["
        self._copy(opening)
        if self._pattern.startswith("]", self._at):
            raise ValueError("a ] as the first in brackets; write it as \\]")
        while self._at < len(self._pattern):
            rest = self._pattern[self._at :]
            if rest[0] == "]":
                self._copy("]")
                return
            if rest[0] == "[":
                raise ValueError("brackets within brackets")
            if rest.startswith("&&"):
                raise ValueError("an intersection && of classes")
            if rest.startswith("--"):
                # Python reads some of them as Java does, and warns of all: they may become a difference of classes.
                raise ValueError("a doubled - in brackets; write \\-")
            if rest[0] == "\\":
                self._out.append(self._escape(in_class=True))
            else:
                self._copy(rest[0], _in_class(rest[0]))
        raise ValueError("a [ that is not closed")
