"""The rows of docs/rules.md, and what a breach of one is.

Owns: reading the table; which breach belongs to which row.
Does not know: how breaches are played.
Invariants: a breach names its row by how the rule begins; a snippet that is to be replaced occurs once in its file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "rules.md"

NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
OPEN = re.compile(r"no test: ")


@dataclass(frozen=True)
class Row:
    """One rule: its section, its text, the document it is from, where it lives, and what pins it."""

    section: str
    rule: str
    source: str
    place: str
    pinned: str

    @property
    def tests(self) -> tuple[str, ...]:
        """What pytest calls the tests that are named, without parameters."""
        return tuple(f"tests/{file}::{name}" for file, name in NAMED.findall(self.pinned))


@dataclass(frozen=True)
class Breach:
    """One change of the code that breaks a rule. `rule` is how the row's rule begins, `what` says what the code then does."""

    rule: str
    what: str
    file: str
    before: str
    after: str

    def applied_to(self, root: Path) -> str:
        """The file's text with the breach; CodeMoved where the snippet is not there exactly once."""
        text = (root / self.file).read_text(encoding="utf-8")
        found = text.count(self.before)
        if found != 1:
            raise CodeMoved(f"{self.file} has this {found} times instead of once:\n{self.before}")
        return text.replace(self.before, self.after)


class CodeMoved(Exception):
    """A breach does not fit the code any more and has to be written anew."""


def rows() -> list[Row]:
    """All rows of the table, in its order."""
    found = []
    for section in DOCUMENT.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, *lines = section.splitlines()
        for line in lines:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("|") and cells[0] != "rule" and set(cells[0]) != {"-"}:
                assert len(cells) == 4, line
                found.append(Row(title, *cells))
    return found


def row_of(breach: Breach, of: list[Row]) -> Row:
    """The one row whose rule begins as the breach says."""
    found = [row for row in of if row.rule.startswith(breach.rule)]
    assert len(found) == 1, f"{len(found)} rules begin with {breach.rule!r}"
    return found[0]
