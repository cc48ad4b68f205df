"""Regular expressions of subscriptions (KIP-848), in the syntax of RE2, matched in a time that has an upper bound.

Owns: the parser, the program that it makes, the match of a whole name.
Does not know: topics.
Invariants:
- No expression makes the broker wait: Python's own `re` would take hours for `(a+)+b`, on the broker's one thread.
- What RE2 refuses is refused: back references, looking ahead and behind, repetitions of repetitions.
Source: RE2's syntax page; Kafka uses RE2/J.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field

from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code

_REPEATS_AT_MOST = 1_000
"""RE2's own limit; what the copies need is limited by the steps as well."""
_STEPS_AT_MOST = 2_000
"""Of one program. Each character of a name may have to look at all of them: the longest name takes 0.1 s at worst, on
the broker's one thread. Half still has room for any expression that people write."""
_DEPTH_AT_MOST = 100
"""Of groups within groups: Python's stack has room for ten times as many."""
_REMEMBERED_AT_MOST = 20_000
"""Names whose answers an expression remembers: as many as the broker has partitions."""

Accepts = Callable[[str], bool]
Holds = Callable[[str, int], bool]


@dataclass
class _Step:
    """A character to accept, a condition to hold, or, where neither is there, only the way on."""

    accepts: Accepts | None = None
    holds: Holds | None = None
    following: list[int] = field(default_factory=list)


class TopicPattern:
    """One expression. Refused(INVALID_REGULAR_EXPRESSION) where it is none."""

    def __init__(self, expression: str) -> None:
        self._steps: list[_Step] = []
        self._known: dict[str, bool] = {}
        self._program = _Parser(expression, self._steps).whole()

    def matches(self, name: str) -> bool:
        """Whether it matches all of the name."""
        if name not in self._known:
            if len(self._known) >= _REMEMBERED_AT_MOST:
                self._known.clear()
            self._known[name] = self._match(name)
        return self._known[name]

    def _match(self, name: str) -> bool:
        start, end = self._program
        at = self._reach({start}, name, 0)
        for index, character in enumerate(name):
            moved: set[int] = set()
            for number in at:
                accepts = self._steps[number].accepts
                if accepts is not None and accepts(character):
                    moved.update(self._steps[number].following)
            at = self._reach(moved, name, index + 1)
        return end in at

    def _reach(self, begin: set[int], name: str, index: int) -> set[int]:
        """All steps that can be reached without a character."""
        found, left = set(begin), list(begin)
        while left:
            step = self._steps[left.pop()]
            if step.accepts is None and (step.holds is None or step.holds(name, index)):
                new = [each for each in step.following if each not in found]
                found.update(new)
                left += new
        return found


@functools.lru_cache(maxsize=64)
def compiled(expression: str) -> TopicPattern:
    """The pattern of an expression. Refused(INVALID_REGULAR_EXPRESSION)."""
    return TopicPattern(expression)


# ---- what single characters and places are


def _word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _at_boundary(name: str, index: int) -> bool:
    before, after = name[index - 1 : index] if index else "", name[index : index + 1]
    return (before != "" and _word(before)) is not (after != "" and _word(after))


_CLASSES: dict[str, Accepts] = {
    "d": lambda c: c.isascii() and c.isdigit(),
    "s": lambda c: c in "\t\n\f\r ",
    "w": _word,
}
_POSIX: dict[str, Accepts] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": _CLASSES["d"],
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: c.isascii() and c.islower(),
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: c.isascii() and c.isupper(),
    "word": _word,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_ESCAPED = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PLACES: dict[str, Holds] = {
    "A": lambda name, index: index == 0,
    "z": lambda name, index: index == len(name),
    "b": _at_boundary,
    "B": lambda name, index: not _at_boundary(name, index),
}
_COUNTED = re.compile(r"\{(\d+)(,(\d*))?\}")
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED = re.compile(r"\?P?<\w+>")
_CATEGORY = re.compile(r"[pP](?:\{(\^?)(\w+)\}|(\w))")
_HEX = re.compile(r"x(?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2}))")

_Piece = tuple[int, int]
"""The first step of a part of the program, and an empty step that is its end."""


class _Parser:
    """Reads one expression and writes its steps."""

    def __init__(self, expression: str, steps: list[_Step]) -> None:
        self._text = expression
        self._at = 0
        self._depth = 0
        self._steps = steps
        self._ignores_case = False

    def whole(self) -> _Piece:
        piece = self._either()
        if self._at < len(self._text):
            raise self._wrong("unexpected )")
        return piece

    # ---- the grammar

    def _either(self) -> _Piece:
        self._depth += 1
        if self._depth > _DEPTH_AT_MOST:
            raise self._wrong("expression nests too deeply")
        cased = self._ignores_case
        start, end = self._step(), self._step()
        while True:
            first, last = self._sequence()
            self._steps[start].following.append(first)
            self._steps[last].following.append(end)
            if not self._take("|"):
                break
        # A flag that is set within a group ends with the group.
        self._ignores_case = cased
        self._depth -= 1
        return start, end

    def _sequence(self) -> _Piece:
        start = end = self._step()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            first, last = self._repeated()
            self._steps[end].following.append(first)
            end = last
        return start, end

    def _repeated(self) -> _Piece:
        begin, cased = self._at, self._ignores_case
        piece = self._atom()
        flags_after = self._ignores_case
        bounds = self._bounds()
        if bounds is None:
            return piece
        self._take("?")  # the shortest match is a match all the same
        after = self._at
        if self._bounds() is not None:
            raise self._wrong("invalid nested repetition operator")
        least, most = bounds

        def again() -> _Piece:
            self._at, self._ignores_case = begin, cased
            copy = self._atom()
            self._at, self._ignores_case = after, flags_after
            return copy

        return self._copies(piece, again, least, most)

    def _copies(self, piece: _Piece, again: Callable[[], _Piece], least: int, most: int | None) -> _Piece:
        start = end = self._step()
        spare: _Piece | None = piece
        for number in range(max(least, 1) if most is None else most):
            first, last = spare or again()
            spare = None
            here = end
            self._steps[here].following.append(first)
            end = self._step()
            self._steps[last].following.append(end)
            if number >= least:
                self._steps[here].following.append(end)
            if most is None and number == max(least, 1) - 1:
                self._steps[last].following.append(first)
        return start, end

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        counted = _COUNTED.match(self._text, self._at)
        if counted is None:
            return None
        least = int(counted[1])
        most = least if counted[2] is None else int(counted[3]) if counted[3] else None
        if max(least, most or 0) > _REPEATS_AT_MOST or (most is not None and most < least):
            raise self._wrong("bad repetition operator")
        self._at = counted.end()
        return least, most

    def _atom(self) -> _Piece:
        sign = self._next()
        if sign == "(":
            return self._group()
        if sign == "[":
            return self._piece(self._class())
        if sign == ".":
            return self._piece(lambda c: c != "\n")
        if sign in "^$":
            return self._place(_PLACES["A" if sign == "^" else "z"])
        if sign in "*+?":
            raise self._wrong("missing argument to repetition operator")
        return self._escape() if sign == "\\" else self._piece(self._same(sign))

    def _group(self) -> _Piece:
        flags = _FLAGS.match(self._text, self._at)
        if flags is not None:
            self._at = flags.end()
            before = self._ignores_case
            self._ignores_case = ("i" in flags[1] or before) and "i" not in (flags[2] or "")
            if flags[3] == ")":
                step = self._step()
                return step, step
            piece = self._closed()
            self._ignores_case = before
            return piece
        named = _NAMED.match(self._text, self._at)
        if named is not None:
            self._at = named.end()
        elif self._text.startswith("?", self._at):
            raise self._wrong("invalid or unsupported Perl syntax")
        return self._closed()

    def _closed(self) -> _Piece:
        piece = self._either()
        if not self._take(")"):
            raise self._wrong("missing closing )")
        return piece

    def _escape(self) -> _Piece:
        if self._take("Q"):
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
            self._at = len(self._text) if end < 0 else end + 2
            start = last = self._step()
            for character in quoted:
                first, following = self._piece(self._same(character))
                self._steps[last].following.append(first)
                last = following
            return start, last
        place = _PLACES.get(self._text[self._at : self._at + 1])
        if place is not None:
            self._at += 1
            return self._place(place)
        return self._piece(self._escaped_set() or self._same(self._escaped()))

    # ---- sets of characters

    def _class(self) -> Accepts:
        negated = self._take("^")
        # A bracket in the first place stands for itself.
        found = [self._same("]")] if self._take("]") else []
        while not self._take("]"):
            found.append(self._member())
        return lambda c: any(each(c) for each in found) is not negated

    def _member(self) -> Accepts:
        if self._text.startswith("[:", self._at):
            end = self._text.find(":]", self._at)
            name = self._text[self._at + 2 : end]
            accepts = _POSIX.get(name.lstrip("^"))
            if end < 0 or accepts is None:
                raise self._wrong("invalid character class range")
            self._at = end + 2
            return _not(accepts) if name.startswith("^") else accepts
        if self._text.startswith("\\", self._at):
            self._at += 1
            accepts = self._escaped_set()
            if accepts is not None:
                return accepts
            low = self._escaped()
        else:
            low = self._next()
        if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
            self._at += 1
            high = self._escaped() if self._take("\\") else self._next()
            if high < low:
                raise self._wrong("invalid character class range")
            return self._cased(lambda c: low <= c <= high)
        return self._same(low)

    def _escaped_set(self) -> Accepts | None:
        sign = self._text[self._at : self._at + 1]
        accepts = _CLASSES.get(sign.lower())
        if accepts is not None:
            self._at += 1
            return accepts if sign.islower() else _not(accepts)
        category = _CATEGORY.match(self._text, self._at)
        if category is None:
            return None
        self._at = category.end()
        name = category[2] or category[3]
        if len(name) > 2:
            raise self._wrong("invalid character class range")
        of = self._cased(lambda c: unicodedata.category(c).startswith(name))
        return of if (category[0][0] == "p") is not bool(category[1]) else _not(of)

    def _escaped(self) -> str:
        number = _HEX.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            code = int(number[1] or number[2], 16)
            if code > 0x10FFFF:
                raise self._wrong("invalid escape sequence")
            return chr(code)
        sign = self._next("trailing backslash at end of expression")
        if sign in _ESCAPED:
            return _ESCAPED[sign]
        if sign.isalnum():
            raise self._wrong("invalid escape sequence")
        return sign

    def _same(self, character: str) -> Accepts:
        return self._cased(lambda c: c == character)

    def _cased(self, accepts: Accepts) -> Accepts:
        if not self._ignores_case:
            return accepts
        return lambda c: accepts(c.lower()) or accepts(c.upper())

    # ---- text and steps

    def _next(self, missing: str = "missing closing ]") -> str:
        if self._at >= len(self._text):
            raise self._wrong(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, sign: str) -> bool:
        taken = self._text.startswith(sign, self._at)
        self._at += len(sign) if taken else 0
        return taken

    def _piece(self, accepts: Accepts) -> _Piece:
        first, end = self._step(), self._step()
        self._steps[first] = _Step(accepts=accepts, following=[end])
        return first, end

    def _place(self, holds: Holds) -> _Piece:
        first, end = self._step(), self._step()
        self._steps[first] = _Step(holds=holds, following=[end])
        return first, end

    def _step(self) -> int:
        if len(self._steps) >= _STEPS_AT_MOST:
            raise self._wrong("expression is too large")
        self._steps.append(_Step())
        return len(self._steps) - 1

    def _wrong(self, why: str) -> Refused:
        return Refused(
            Code.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{self._text[:200]}` is not a valid regular expression: {why}.",
        )


def _not(accepts: Accepts) -> Accepts:
    return lambda c: not accepts(c)
