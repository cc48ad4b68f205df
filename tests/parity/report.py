"""What a run of `make parity` found: which client did what against which broker, as the README's table.

Owns: collecting the outcomes from pytest, the table, its place in README.md.
Does not know: how a client is run.
Invariants: a test that failed or did not run is marked as such in the table, never left out.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.parity.brokers import NAMES

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN, END = "<!-- parity -->", "<!-- end -->"
NOT_RUN = "–"


@dataclass(frozen=True)
class Outcome:
    """What became of one test against one broker; `outcome` in pytest's words: passed, failed, skipped."""

    client: str
    what: str
    broker: str
    outcome: str


class Recorder:
    """A pytest plugin that keeps the outcome of every test that stands for a line of the table."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Function
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """The call, and also a set-up or an end that failed or was skipped."""
        report = yield
        line = item.get_closest_marker("shows")
        if line is not None and (report.when == "call" or report.outcome != "passed"):
            client, what = line.args
            broker = item.callspec.params["broker"]
            self.outcomes.append(Outcome(client, what, str(broker), report.outcome))
        return report


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
    rows = [
        [client, what, *(_cell(by_cell.get((client, what, name))) for name in NAMES)]
        for client, what in lines
    ]
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
