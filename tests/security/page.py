"""The table of the matrix: evidence/security-matrix.md.

Owns: its words and its form.
Does not know: brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.made import today

PAGE = Path(__file__).parents[2] / "evidence" / "security-matrix.md"
NOT_POSSIBLE = "not possible"

HEAD = """\
# The ways to log in, and the parts of the product

Each cell is one run: the part connects by this way alone, moves {rows} records, and librdkafka reads the output as committed and
compares it record by record (`20 = 20`). `doctor` has to find nothing wrong. Each listener takes one way, so a client that came in
has used it. A cell that is {not_possible} has its reason below the table. A cell in which Spark started no Python worker within its 10 s is
played again. Made by `make security` on {day}, with Spark {spark}.
"""


@dataclass(frozen=True)
class Cell:
    """One run. `fine`: False for a failure, None for what is not possible; `said`: its result or the reason."""

    broker: str
    way: str
    use: str
    fine: bool | None
    said: str
    took_s: float = 0.0


def page(cells: Sequence[Cell], uses: Sequence[str], *, rows: int, spark: str) -> str:
    """The whole text."""
    parts = [HEAD.format(rows=rows, spark=spark, not_possible=NOT_POSSIBLE, day=today())]
    for broker in dict.fromkeys(each.broker for each in cells):
        own = [each for each in cells if each.broker == broker]
        parts += [f"## {broker}\n", _table(own, uses)]
        reasons = {each.way: each.said for each in own if each.fine is None}
        parts += [f"- {way}: {NOT_POSSIBLE}, {why}\n" for way, why in reasons.items()]
    return "\n".join(parts) + "\n" + summary(cells) + "\n"


def summary(cells: Sequence[Cell]) -> str:
    """One line."""
    run = [each for each in cells if each.fine is not None]
    passed = sum(each.fine is True for each in run)
    return f"{passed} of {len(run)} cells passed; {len(cells) - len(run)} are {NOT_POSSIBLE}."


def _table(own: Sequence[Cell], uses: Sequence[str]) -> str:
    lines = [f"| | {' | '.join(uses)} |", f"|---|{'---|' * len(uses)}"]
    for way in dict.fromkeys(each.way for each in own):
        by_use = {each.use: each for each in own if each.way == way}
        lines.append(f"| {way} | {' | '.join(_shown(by_use[use]) for use in uses)} |")
    return "\n".join(lines) + "\n"


def _shown(cell: Cell) -> str:
    if cell.fine is None:
        return NOT_POSSIBLE
    return cell.said if cell.fine else "FAILED"
