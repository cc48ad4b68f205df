"""The rows of the matrix have every pair of versions, and its page has the rows."""

from __future__ import annotations

import re
from itertools import combinations

from tests.matrix.__main__ import NOT_HAD, NOT_YET, PAGE, Outcome, lines_of, table
from tests.matrix.rows import IMPOSSIBLE, LOCKS, VERSIONS, possible, rows
from tests.support.made import DAY
from tests.support.wheel import ROOT


def test_each_two_versions_that_can_be_had_together_share_a_row() -> None:
    asked = {
        (f"{one}={left}", f"{other}={right}")
        for one, other in combinations(VERSIONS, 2)
        for left in VERSIONS[one]
        for right in VERSIONS[other]
        if (left, right) not in IMPOSSIBLE
    }

    assert asked - set().union(*(row.pairs() for row in rows())) == set()
    assert set(rows()) <= set(possible())
    # As many as Python and pyspark have pairs, and a few for what stands beside them.
    assert len(rows()) <= 18


def test_what_cannot_be_had_together_is_in_no_row() -> None:
    assert [row for row in rows() if (row.python, row.pyspark) in IMPOSSIBLE] == []


def test_each_pyspark_has_a_lock_with_exactly_it() -> None:
    for version, name in LOCKS.items():
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pinned = re.findall(r"^pyspark==(\d+\.\d+)\.\d+", text, re.MULTILINE)
        assert version in pinned, name


def test_the_page_has_each_row_and_how_it_ended() -> None:
    found = lines_of(PAGE.read_text())

    assert list(found) == rows(), "run: make matrix"
    for line in found.values():
        seen = line.strip("| ").rpartition("|")[2].strip()
        assert re.fullmatch(rf"every record once, \d+ s, {DAY.pattern}|{NOT_HAD}|{NOT_YET}", seen), line


def test_a_row_that_failed_has_its_reason_and_one_without_a_python_says_so() -> None:
    row = rows()[0]

    assert "| failed: two too many |" in table([Outcome(row, why="two too many\nmore")])
    assert "| not run: this Python" in table([Outcome(row, had=False, why=NOT_HAD)])
    assert "| every record once, 7 s, 3 March 2027 |" in table([Outcome(row, "3.10.1", "4.0.0", 7.2, "3 March 2027")])
