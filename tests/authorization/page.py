"""The table of evidence/rights.md, made by a run: `make rights`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from embedded_kafka.real import NEWEST_KAFKA
from kafka_core.protocol.error_codes import Code
from tests.authorization.grants import TYPES
from tests.authorization.known import differences
from tests.authorization.play import Cell, clients
from tests.authorization.questions import questions
from tests.differential.wire import codes
from tests.support.made import today

PAGE = Path(__file__).parents[2] / "evidence" / "rights.md"
HEAD = """\
# What a right opens, on both brokers

Each client has other ACLs: none; each right alone, with all rights on the other types of resource, and denied to one who has all; by a literal
name, by a prefix and by `*`, allowed and denied in every pair of them; from another host. Each sends every request below to the embedded broker and to
Apache Kafka {version} with `StandardAuthorizer`, and of both answers the codes, names, ids and authorized operations are compared ({day}).
`make rights` makes this table; `make judged` asks the same. *Enough alone* are the single rights with which no code says that authorization failed.
*Needed* is what a client lacks who has every right on all other types of resource: one right of each list is enough. *Refused* counts the clients
who see such a code.

"""
_REFUSALS = frozenset(
    int(code) for code in Code if code.name.endswith("AUTHORIZATION_FAILED") and "DELEGATION" not in code.name
)

Table = Mapping[Cell, Any]


def page(embedded: Table, real: Table) -> str:
    """The whole page."""
    other = differences(embedded, real)
    lines = [
        f"{len(clients())} clients, {len(real):,} answers, of which {len(real) - len(other):,} are equal.",
        "",
        "| request | enough alone | needed | refused | other than Kafka |",
        "|---|---|---|---|---|",
        *_lines(real, other),
    ]
    return HEAD.format(day=today(), version=NEWEST_KAFKA) + "\n".join(lines) + "\n"


def _lines(real: Table, other: Mapping[Cell, str]) -> Iterator[str]:
    names = [grant.name for grant in clients().values()]
    for question in questions():
        passes = {name for name in names if not _REFUSALS & set(codes(real[name, question.label]))}
        cells = [
            question.label,
            _alone(passes),
            _needed(passes),
            str(len(names) - len(passes)),
            "; ".join(sorted({why for (_, label), why in other.items() if label == question.label})),
        ]
        yield f"| {' | '.join(cells)} |"


def _alone(passes: Set[str]) -> str:
    if "nothing" in passes:
        return "nothing"
    single = [f"{operation} on {kind}" for kind, operations in TYPES.items() for operation in operations]
    return ", ".join(right for right in single if right in passes) or "none is"


def _needed(passes: Set[str]) -> str:
    return "; ".join(
        f"on {kind} {' or '.join(each for each in operations if f'{each} on {kind}, ALL on the others' in passes)}"
        for kind, operations in TYPES.items()
        if f"ALL on everything but {kind}" not in passes
    )
