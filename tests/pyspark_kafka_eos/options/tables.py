"""The tables of docs/options.md, made from the options themselves.

python -m tests.pyspark_kafka_eos.options.tables      writes them
"""

from __future__ import annotations

from pathlib import Path

from pyspark_kafka_eos.options import documented_options, documented_without_effect

PAGE = Path(__file__).parents[3] / "docs" / "options.md"
BEGIN, END = (
    "<!-- options: made by python -m tests.pyspark_kafka_eos.options.tables -->",
    "<!-- end of options -->",
)

Row = tuple[str, str, str]


def tables() -> str:
    """What stands between the markers: the writer's, the source's, and what both have in the same words."""
    sink, source = documented_options("sink"), documented_options("source")
    ledger = [row for row in documented_options("ledger") if row not in source]
    both = [row for row in sink if row in source]
    parts = [
        _table("`ExactlyOnceWriter`", [row for row in sink if row not in both]),
        _table('`format("kafka_eos")`', [row for row in source if row not in both]),
        _table("Both", both),
        _table('`format("kafka_eos")` with `ledger`', ledger),
        _without_effect(),
    ]
    return "\n\n".join(parts)


def current() -> str:
    """What stands between the markers now."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def _table(title: str, rows: list[Row]) -> str:
    head = f"| {title} | default | meaning |\n|---|---|---|"
    lines = [f"| `{name}` | {_cell(default)} | {_cell(meaning)} |" for name, default, meaning in rows]
    return "\n".join([head, *lines])


def _without_effect() -> str:
    reasons: dict[str, list[str]] = {}
    for name, why in documented_without_effect():
        reasons.setdefault(why, []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {_cell(why)} |" for why, names in sorted(reasons.items())]
    return "\n".join(["| accepted, without effect | because |\n|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the tables into the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{tables()}\n{END}{after}")


if __name__ == "__main__":
    main()
