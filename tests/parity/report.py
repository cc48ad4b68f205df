"""What a run of `make parity` found: which client did what against which broker, as a table of docs/embedded-broker.md.

Owns: collecting the outcomes from pytest, the table, its place in that page.
Does not know: how a client is run.
Invariants: a test that failed or did not run is marked as such in the table, never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.parity.brokers import NAMES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "embedded-broker.md"
BEGIN, END = "<!-- parity -->", "<!-- end -->"
NOT_RUN = "–"


@dataclass(frozen=True)
class Outcome:
    """What became of one test against one broker; `outcome` in pytest's words: passed, failed, skipped."""

    client: str
    what: str
    broker: str
    outcome: str


SHOWS = "shows"
"""Under this name a test's report carries its line of the table and the broker, also from another process (xdist's
workers).
"""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test's report says which line of the table it stands for."""
    line = item.get_closest_marker("shows")
    if line is not None and isinstance(item, pytest.Function):
        item.user_properties.append((SHOWS, [*line.args, str(item.callspec.params["broker"])]))


class Recorder:
    """A pytest plugin that keeps the outcome of every test that stands for a line of the table."""

    def __init__(self) -> None:
        self._found: list[tuple[tuple[str, int], Outcome]] = []

    @property
    def outcomes(self) -> list[Outcome]:
        """In the tests' order, whichever ran first."""
        return [outcome for _, outcome in sorted(self._found, key=lambda each: each[0])]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The call, and also a set-up or an end that failed or was skipped."""
        line = dict(report.user_properties).get(SHOWS)
        if isinstance(line, list | tuple) and (report.when == "call" or report.outcome != "passed"):
            client, what, broker = (str(part) for part in line)
            path, row, _ = report.location
            self._found.append(((path, row or 0), Outcome(client, what, broker, report.outcome)))


def table(outcomes: Sequence[Outcome]) -> str:
    """One line for each client and thing done; several tests may stand for one, and then all have to pass."""
    by_cell: dict[tuple[str, str, str], set[str]] = {}
    for each in outcomes:
        by_cell.setdefault((each.client, each.what, each.broker), set()).add(each.outcome)
    clients = list(dict.fromkeys(each.client for each in outcomes))
    # In the tests' order, a client's lines together, whichever broker's tests ran first.
    lines = sorted(
        dict.fromkeys((each.client, each.what) for each in outcomes), key=lambda line: clients.index(line[0])
    )
    head = ["client", "what it does", *(name.replace("kafka-", "Kafka ") for name in NAMES)]
    rows = [[client, what, *(_cell(by_cell.get((client, what, name))) for name in NAMES)] for client, what in lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def _cell(outcomes: set[str] | None) -> str:
    if outcomes is None or outcomes == {"skipped"}:
        return NOT_RUN
    return "yes" if outcomes == {"passed"} else "**FAILED**"


def write_into(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Put the table between its marks; ValueError, and nothing is changed, where they are not there exactly once."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest:
        raise ValueError(f"{path} has no single place for the table between {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{table(outcomes)}\n{END}{after}", encoding="utf-8")
