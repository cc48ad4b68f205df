"""docs/rules.md and docs/design/findings.md name only tests that exist, and every test that cites a rule stands in the
former.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.rules.table import FINDINGS, NAMED, OPEN, RULES, rows

TESTS = Path(__file__).parent
SETTINGS = frozenset({"strict_first_sequence"})
"""Names in the column of places that are no modules."""
NUMBERS = frozenset(
    f"{kind}{number}"
    for kind, last in (("P", 7), ("A", 6), ("L", 7), ("R", 6), ("V", 4), ("H", 9))
    for number in range(1, last + 1)
)
"""The findings that an attack of eight rounds had."""
CITES = "Rule: seed"
DOCUMENTS = ("000", "001", "002", "003", "004")


@cache
def functions_in(path: Path) -> dict[str, str]:
    """Name and docstring of each test function of a file. Files are read once: the table names most of them many
    times.
    """
    tree = ast.parse(path.read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")}


def named() -> set[tuple[str, str]]:
    return set(NAMED.findall(RULES.read_text() + FINDINGS.read_text()))


def test_every_test_that_the_table_names_exists() -> None:
    missing = [
        f"{file}::{name}"
        for file, name in sorted(named())
        if not (TESTS / file).is_file() or name not in functions_in(TESTS / file)
    ]
    assert missing == []
    assert len(named()) > 60


def test_every_finding_has_rows() -> None:
    found = {row.rule.partition(":")[0] for row in rows([FINDINGS])}
    assert sorted(NUMBERS - found) == []


def test_every_rule_has_a_source_a_place_and_a_test_or_says_plainly_that_it_has_none() -> None:
    assert len(rows([RULES])) > 60
    for row in rows([RULES]):
        assert row.source[:3] in DOCUMENTS, row
    for row in rows([FINDINGS]):
        assert re.match(r"[A-Z]\d+: ", row.rule), row
        assert re.fullmatch(r"[0-9a-f]{7}(, [0-9a-f]{7})*", row.source), row
    for row in rows():
        assert row.rule, row
        assert row.tests or OPEN.search(row.pinned), row
        assert row.place if row.tests else OPEN.search(row.place) or row.place.startswith("no code"), row


def test_every_module_that_the_table_names_exists() -> None:
    names = {name for row in rows() for name in re.findall(r"`([a-z_.]+)`", row.place)}
    sources = TESTS.parent / "connector"
    paths = {name: sources.joinpath(*name.split(".")).with_suffix(".py") for name in names - SETTINGS}
    assert [name for name, path in paths.items() if not path.is_file()] == []


def test_every_test_that_cites_a_rule_stands_in_the_table() -> None:
    citing = {
        (path.relative_to(TESTS).as_posix(), name)
        for folder in ("pyspark_kafka_eos", "embedded_kafka", "kafka_core")
        for path in (TESTS / folder).rglob("test_*.py")
        if CITES in path.read_text()
        for name, docstring in functions_in(path).items()
        if CITES in docstring
    }
    assert sorted(citing - named()) == []
    assert len(citing) > 100
