"""Rows and sentences as lines of a terminal of any width. Pure: values in, lines out.

Owns: the widths of columns, the columns that a narrow terminal omits, the line breaks.
Does not know: the meaning of the rows, where lines are printed.
Invariants:
- No word is broken, so copied text is complete. A word longer than the terminal gets a line of its own.
- A value is shown without control characters, whoever wrote it; only `Lines` break a line.
- A column is omitted only if its table allows it and the rows would not fit otherwise.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from kafka_core.foreign_text import harmless

_GAP = "  "
_LABEL = "dim"


@dataclass(frozen=True)
class Cell:
    """One value; `style` is one of rich's."""

    text: str = ""
    style: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", harmless(self.text))


@dataclass
class Grid:
    """Rows under column heads. `spare`: the columns that a narrow terminal omits, the first one first. Rows
    may come in parts: the heads are printed once, and widths do not shrink from part to part."""

    columns: Sequence[str]
    spare: Sequence[str] = ()
    rows: list[list[Cell]] = field(default_factory=list)
    _widths: dict[str, int] = field(default_factory=dict)
    _begun: bool = False
    _upright: bool = False

    def add(self, *cells: Cell | str) -> None:
        """One more row."""
        self.rows.append([each if isinstance(each, Cell) else Cell(each) for each in cells])

    def lines(self, width: int) -> Iterator[Text]:
        """The rows that were added since the last call."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        self.rows = []
        if not rows:
            return
        widths = None if self._upright else self._fit(rows, width)
        if widths is None:
            self._upright = True
            yield from self._upright_lines(rows, width)
            return
        self._widths = widths
        if not self._begun:
            self._begun = True
            yield from _row({name: Cell(name, "bold") for name in widths}, widths)
        for row in rows:
            yield from _row(row, widths)

    def _fit(self, rows: Sequence[dict[str, Cell]], width: int) -> dict[str, int] | None:
        """Each column's width, None where the rows do not fit side by side."""
        # An earlier page has fixed the columns.
        names = list(self._widths or self.columns)
        spare = [] if self._widths else list(self.spare)
        while True:
            words = {name: max(_longest_word(name), *(_longest_word(row[name].text) for row in rows)) for name in names}
            least = {name: max(found, self._widths.get(name, 0)) for name, found in words.items()}
            left = width - sum(least.values()) - len(_GAP) * (len(names) - 1)
            if left >= 0:
                return _widened(least, rows, left)
            if not spare:
                return None
            names.remove(spare.pop(0))

    def _upright_lines(self, rows: Sequence[dict[str, Cell]], width: int) -> Iterator[Text]:
        """Each row as a block: a line for each non-empty column."""
        label = max(cell_len(name) for name in self.columns) + len(_GAP)
        for row in rows:
            if self._begun:
                yield Text()
            self._begun = True
            for name, cell in row.items():
                if cell.text:
                    yield from _labelled(name, cell, label, width)


def _widened(least: dict[str, int], rows: Sequence[dict[str, Cell]], left: int) -> dict[str, int]:
    """The least widths, with the remaining width given to columns that need it, small needs first."""
    wishes = {name: max(0, max(_longest_line(row[name].text) for row in rows) - found) for name, found in least.items()}
    widths = dict(least)
    waiting = sorted(least, key=lambda name: wishes[name])
    for place, name in enumerate(waiting):
        given = min(wishes[name], left // (len(waiting) - place))
        widths[name] += given
        left -= given
    return widths


def _row(row: dict[str, Cell], widths: dict[str, int]) -> Iterator[Text]:
    wrapped = {name: wrap(row[name].text, found) for name, found in widths.items()}
    for number in range(max(len(lines) for lines in wrapped.values())):
        line = Text()
        for name, lines in wrapped.items():
            text = lines[number] if number < len(lines) else ""
            line.append(text, row[name].style)
            line.append(" " * (widths[name] - cell_len(text)) + _GAP)
        line.rstrip()
        yield line


def _labelled(name: str, cell: Cell, label: int, width: int) -> Iterator[Text]:
    lines = wrap(cell.text, max(1, width - label))
    # A word that does not fit beside the name gets the whole next line.
    beside = max(map(cell_len, lines)) <= width - label
    if not beside:
        yield Text(name, _LABEL)
        lines = wrap(cell.text, max(1, width - len(_GAP)))
    for number, line in enumerate(lines):
        head = (name if number == 0 else "").ljust(label) if beside else _GAP
        yield Text.assemble((head, _LABEL), (line, cell.style))


def paragraph(text: str, width: int, style: str = "", indent: str = "") -> Iterator[Text]:
    """Sentences as lines."""
    for line in wrap(text, max(1, width - len(indent))):
        yield Text(indent + line, style)


def wrap(text: str, width: int) -> list[str]:
    """The lines of a text; words stay whole."""
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        lines += textwrap.wrap(line, max(1, width), break_long_words=False, break_on_hyphens=False) or [""]
    return lines


def _longest_word(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)


def _longest_line(text: str) -> int:
    return max((cell_len(line) for line in text.splitlines()), default=0)


@dataclass(frozen=True)
class Said:
    """A sentence between tables."""

    text: str
    style: str = ""
    indent: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", harmless(self.text))


class Sheet:
    """Tables and sentences, one below the other; rich can print it at any width."""

    def __init__(self, *parts: Part, also: Iterable[Part] = ()) -> None:
        self._parts = [*parts, *also]

    def lines(self, width: int) -> Iterator[Text]:
        """The lines for a terminal of `width` columns."""
        for part in self._parts:
            if isinstance(part, Said):
                yield from paragraph(part.text, width, part.style, part.indent)
            elif isinstance(part, Text):
                yield part
            else:
                yield from part.lines(width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(options.max_width):
            line.no_wrap, line.overflow = True, "ignore"
            yield line


Part = Grid | Said | Text | Sheet
