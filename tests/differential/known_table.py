"""The list of known differences as a table of docs/embedded-broker.md.

Owns: the table's form, and where it stands.
Does not know: how differences are found.
"""

from __future__ import annotations

from pathlib import Path

from tests.differential.compare import Known
from tests.differential.known import KNOWN

DOCUMENT = Path(__file__).parents[2] / "docs" / "embedded-broker.md"
_START, _END = "<!-- known differences -->\n", "<!-- end of the known differences -->"
_RELEASES = {
    "*": "all",
    "3.9.1": "3.9.1",
    "4.1.1*": "4.1.1",
    "4.*": "4.1.1, 4.4.0",
    "4.4.0, upgrade": "4.4.0, `upgrade`",
}


def with_table(text: str) -> str:
    """The document with the list as it is now."""
    before, rest = text.split(_START)
    _, after = rest.split(_END)
    return f"{before}{_START}{_table()}{_END}{after}"


def table_of(text: str) -> str:
    """The list as it stands in the document."""
    return text.partition(_START)[2].partition(_END)[0]


def _table() -> str:
    rows = [_row(known) for known in KNOWN]
    return "\n".join(["| Kafka | scenario: step | what differs, and why |", "|---|---|---|", *rows, ""])


def _row(known: Known) -> str:
    steps = ", ".join(f"`{step}`" for step in known.steps if step != "*") or "everywhere"
    where = f"{', '.join(f'`{scenario}`' for scenario in known.scenarios)}: {steps}"
    return f"| {_RELEASES[known.pairs]} | {where} | {known.reason} |"
