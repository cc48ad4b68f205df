"""The table of the parity run: nothing that failed or did not run looks as if it had passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.brokers import EMBEDDED, NAMES
from tests.parity.report import Outcome, Recorder, table, write_into

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.fixture(params=["embedded", "kafka-3.9.1"])
def broker(request):
    if request.param == "kafka-3.9.1" and request.function.__name__ == "test_setup":
        raise OSError("no broker")
    yield request.param

@pytest.mark.shows("client", "call")
def test_call(broker):
    assert broker == "embedded"

@pytest.mark.shows("client", "setup")
def test_setup(broker):
    pass

@pytest.mark.shows("client", "skip")
def test_skip(broker):
    pytest.skip("not here")

def test_unnamed(broker):
    pass
"""


def everywhere(client: str, what: str, outcome: str = "passed") -> list[Outcome]:
    """The same outcome on every broker."""
    return [Outcome(client, what, name, outcome) for name in NAMES]


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_recorder_keeps_calls_failures_before_them_and_skips(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeconftest("from tests.parity.report import pytest_runtest_setup")
    recorder = Recorder()
    pytester.inline_run("-p", "no:cacheprovider", "-W", "ignore", plugins=[recorder])
    assert [(each.what, each.broker, each.outcome) for each in recorder.outcomes] == [
        ("call", "embedded", "passed"),
        ("call", "kafka-3.9.1", "failed"),
        ("setup", "embedded", "passed"),
        ("setup", "kafka-3.9.1", "failed"),
        ("skip", "embedded", "skipped"),
        ("skip", "kafka-3.9.1", "skipped"),
    ]


def test_a_line_is_a_yes_only_where_all_its_tests_passed() -> None:
    outcomes = [*everywhere("Java", "reads"), Outcome("Java", "reads", NAMES[1], "failed")]
    outcomes += [
        Outcome("Java", "writes", EMBEDDED, "passed"),
        Outcome("Java", "writes", NAMES[2], "skipped"),
    ]
    lines = table(outcomes).splitlines()
    assert [cells(line) for line in lines[2:]] == [
        ["Java", "reads", "yes", "**FAILED**", "yes"],
        ["Java", "writes", "yes", "–", "–"],
    ]


def test_the_lines_of_a_client_stand_together() -> None:
    outcomes = [*everywhere("Java", "reads"), *everywhere("Spark", "reads"), *everywhere("Java", "writes")]
    assert [cells(line)[:2] for line in table(outcomes).splitlines()[2:]] == [
        ["Java", "reads"],
        ["Java", "writes"],
        ["Spark", "reads"],
    ]


def test_the_table_takes_the_place_of_the_former_one_and_of_nothing_else(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- parity -->\nold\n<!-- end -->\nafter <!-- end -->\n")
    outcomes = everywhere("Java", "reads")
    for _ in range(2):
        write_into(readme, outcomes)
        assert readme.read_text() == (f"before\n<!-- parity -->\n{table(outcomes)}\n<!-- end -->\nafter <!-- end -->\n")


@pytest.mark.parametrize("text", ["", "<!-- parity -->", "<!-- parity --> <!-- parity --> <!-- end -->"])
def test_a_file_without_one_place_for_the_table_is_left_alone(tmp_path: Path, text: str) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(ValueError, match="no single place"):
        write_into(readme, everywhere("Java", "reads"))
    assert readme.read_text() == text
