"""Breaches are played in a copy of the tree: on a tree of one module and two tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.rules.play import Copy, Result, Seen, Unfit, Verdict, play
from tests.rules.table import Breach, Row
from tests.support.planting import ROOT, Planted

pytestmark = pytest.mark.processes

MODULE = "connector/pyspark_kafka_eos/limit.py"
CODE = "LIMIT = 5\n"
TESTS = """
import pyspark_kafka_eos.limit


def test_the_limit_is_kept():
    assert pyspark_kafka_eos.limit.LIMIT == 5


def test_the_limit_is_a_number():
    assert isinstance(pyspark_kafka_eos.limit.LIMIT, int)
"""
KEPT, NUMBER = (
    "tests/test_limit.py::test_the_limit_is_kept",
    "tests/test_limit.py::test_the_limit_is_a_number",
)
ROW = Row("section", "a rule", "000", "limit", "`test_limit.py::test_the_limit_is_kept`")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a copy is made of."""
    tree = tmp_path / "tree"
    files = {
        MODULE: CODE,
        "connector/pyspark_kafka_eos/__init__.py": "",
        # The environment's pytest loads it.
        "connector/embedded_kafka/pytest_plugin.py": "",
        "tests/test_limit.py": TESTS,
        "connector/embedded_kafka/__init__.py": "",
        "setup.cfg": "[tool:pytest]\n",
    }
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    (tree / "tests" / "rules").mkdir()
    for name in ("__init__.py", "outcomes.py"):
        shutil.copy(ROOT / "tests" / "rules" / name, tree / "tests" / "rules" / name)
    return tree


@pytest.fixture
def copy(tree: Path, tmp_path: Path) -> Copy:
    return Copy(tmp_path / "copy", tmp_path / "numba", tree)


def breach(after: str) -> Breach:
    return Breach("a rule", Planted("something", "pyspark_kafka_eos.limit:LIMIT", "LIMIT = 5", after))


def played(copy: Copy, after: str, timeout_s: float = 60.0) -> Result:
    with copy.broken_by(breach(after)):
        return Result(breach(after), ROW, copy.run([KEPT, NUMBER], timeout_s))


def test_a_breach_is_played_in_the_copy_and_is_gone_afterwards(tree: Path, copy: Copy) -> None:
    caught = played(copy, "LIMIT = 6")
    after = copy.run([KEPT, NUMBER], 60.0)

    assert caught.verdict is Verdict.CAUGHT
    assert (caught.seen.failed, caught.seen.passed) == ({KEPT}, {NUMBER})
    assert Path(caught.seen.code).is_relative_to(tree.parent / "copy")
    assert (after.failed, after.passed) == (set(), {KEPT, NUMBER}), "the same size, a moment later"
    assert (tree / MODULE).read_text() == CODE


def test_a_change_that_breaks_nothing_survives(copy: Copy) -> None:
    assert played(copy, "LIMIT = 4 + 1").verdict is Verdict.SURVIVED


def test_code_that_cannot_be_imported_is_no_caught_breach(copy: Copy) -> None:
    result = played(copy, "LIMIT = no_such_name")

    assert result.verdict is Verdict.UNUSABLE
    assert result.seen.broken == {KEPT, NUMBER}
    assert "no_such_name" in result.seen.output


def test_a_hang_is_ended_and_is_no_caught_breach(copy: Copy) -> None:
    result = played(copy, "import time; time.sleep(3600)", timeout_s=1.0)

    assert result.verdict is Verdict.UNUSABLE
    assert result.seen.timed_out


def test_several_breaches_are_played_at_once_and_come_in_their_order(tree: Path) -> None:
    changes = [breach(f"LIMIT = {number}") for number in (7, 5, 9)]

    results = list(play(changes, [ROW], at_once=2, root=tree))

    assert [result.breach for result in results] == changes
    assert [result.verdict for result in results] == [Verdict.CAUGHT, Verdict.SURVIVED, Verdict.CAUGHT]


def test_nothing_is_played_where_a_test_fails_without_any_breach(tree: Path) -> None:
    (tree / MODULE).write_text("LIMIT = 5 + 1\n")

    with pytest.raises(Unfit, match="test_the_limit_is_kept"):
        next(play([breach("LIMIT = 7")], [ROW], root=tree))


def test_code_from_elsewhere_is_not_taken_for_the_copys(tree: Path, copy: Copy) -> None:
    with pytest.raises(RuntimeError, match="instead of the copy"):
        copy.judge(Seen(code=str(tree / "connector" / "pyspark_kafka_eos" / "__init__.py")))
