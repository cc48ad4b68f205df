"""The rows of docs/rules.md and of docs/design/findings.md, and what a breach of one is.

Owns: reading the tables; which breach belongs to which row.
Does not know: how breaches are played.
Invariants: a breach names its row by how the rule begins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.planting import ROOT, Planted

RULES = ROOT / "docs" / "rules.md"
FINDINGS = ROOT / "docs" / "design" / "findings.md"
"""What an attack has shown and what holds since: rows of the same form, whose source is the commit that mended it."""

NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
OPEN = re.compile(r"no test: ")


@dataclass(frozen=True)
class Row:
    """One rule: its section, its text, the document or the commit it is from, where it lives, and what pins it."""

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
    """A change of the code that breaks a rule. `rule` is how the row's rule begins."""

    rule: str
    planted: Planted


def rows(documents: Sequence[Path] = (RULES, FINDINGS)) -> list[Row]:
    """All rows of the tables, in their order."""
    found = []
    text = "".join(document.read_text(encoding="utf-8") for document in documents)
    for section in text.split("\n## ")[1:]:
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
