"""The table of mistakes in evidence/mistakes.md, made by a run: `make mistakes`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.mistakes.cases import SPARKS, Mistake
from tests.mistakes.scene import Told
from tests.support.made import today

PAGE = Path(__file__).parents[2] / "evidence" / "mistakes.md"

HEAD = """\
# What a mistake is told

Forty-four mistakes that new users make, made through `format("kafka_eos")` on `local[2]`, the last one through `foreachBatch`: the seconds
until the query has failed ({day}), and the first line of what it says. `make mistakes`
makes this table; `make test` and `make parity` make the same mistakes and look for the reason and the remedy in the line. *Before* is what was told when the
first 42 were made by hand, with y or n for what, why and what to do. 27 to 29 and 43 begin with a query that is right. What 29 and 44 note is
in the decision and in the log; 15, 17, 31 and 32 are refused by Spark before this package is asked.

| # | mistake | before | now: s | class | first line |
|---|---|---|---|---|---|
"""


def table(seen: Sequence[tuple[Mistake, Told]]) -> str:
    """The whole page."""
    return HEAD.format(day=today()) + "".join(f"{_line(mistake, told)}\n" for mistake, told in seen)


def _line(mistake: Mistake, told: Told) -> str:
    kind = "goes on" if told.kind is None else SPARKS if mistake.kind == SPARKS else told.kind
    cells = [
        mistake.numbers,
        mistake.made,
        mistake.before,
        f"{told.seconds:.1f}",
        kind,
        told.line.replace("|", "\\|"),
    ]
    return f"| {' | '.join(cells)} |"
