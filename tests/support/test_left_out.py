"""Which files a run does not import."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.support.left_out import is_left_out, marks_of

MARKS = ("kafka", "spark", "slow")
EXPRESSIONS = (
    "kafka", "not kafka", "not kafka and not spark", "kafka and not spark", "kafka or spark", "not (kafka and spark)",
    "(kafka or slow) and not spark", "not kafka or spark", "kafka and (spark or not slow)",
)  # fmt: skip


def subsets(*marks: str) -> list[frozenset[str]]:
    return [frozenset(each) for size in range(len(marks) + 1) for each in itertools.combinations(marks, size)]


def written(folder: Path, marks: frozenset[str]) -> Path:
    path = folder / "test_it.py"
    path.write_text(f"import pytest\n\npytestmark = [{', '.join(f'pytest.mark.{each}' for each in sorted(marks))}]\n")
    return path


@pytest.mark.parametrize("wanted", EXPRESSIONS)
def test_a_file_is_left_out_exactly_where_no_test_of_it_can_be_wanted(tmp_path: Path, wanted: str) -> None:
    asked = Expression.compile(wanted)
    for own in subsets(*MARKS):
        possible = [own | more for more in subsets(*MARKS)]
        some = any(asked.evaluate(lambda name, **_: name in marks) for marks in possible)  # noqa: B023 -- at once

        assert is_left_out(written(tmp_path, own), wanted) is not some, sorted(own)


@pytest.mark.parametrize(
    ("source", "marks"),
    [
        ("pytestmark = pytest.mark.kafka", {"kafka"}),
        ("pytestmark = [pytest.mark.kafka, pytest.mark.spark]\n\nX = 1", {"kafka", "spark"}),
        ("pytestmark = [\n    pytest.mark.kafka,\n    pytest.mark.parametrize('x', [1]),\n]\nX = 1", {"kafka", "parametrize"}),
        ("pytestmark = JUDGED", set()),
        ("pytestmark = [*JUDGED, pytest.mark.kafka]", {"kafka"}),
        ("pytestmark = pytest.mark.kafka if HERE else []", set()),
        ("pytestmark = [pytest.mark.kafka", set()),
        ("def f():\n    pytestmark = pytest.mark.kafka", set()),
        ("X = 1", set()),
    ],
)  # fmt: skip
def test_the_marks_of_a_file_are_read_where_they_are_plain(source: str, marks: set[str]) -> None:
    assert marks_of(f"import pytest\n{source}\n") == marks


@pytest.mark.parametrize("wanted", ["not kafka and", "level(number=1)", ""])
def test_an_expression_that_says_more_leaves_out_nothing(tmp_path: Path, wanted: str) -> None:
    assert not is_left_out(written(tmp_path, frozenset({"kafka"})), wanted)


def test_what_is_no_file_of_tests_is_not_read(tmp_path: Path) -> None:
    assert not is_left_out(tmp_path, "not kafka")
    assert not is_left_out(tmp_path / "conftest.py", "not kafka")
