"""In which order the files of a run come."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.conftest import _slow_files_first


def file(name: str, *tests: str) -> Any:
    """The tests of one file, each by its marks."""
    return [
        SimpleNamespace(
            path=Path(name), iter_markers=lambda marks=marks: [SimpleNamespace(name=n) for n in marks.split()]
        )
        for marks in tests
    ]


def ordered(*files: Any) -> list[str]:
    return [each[0].path.name for each in _slow_files_first(cast(Any, list(files)))]


def test_files_come_by_what_they_wait_for_and_else_in_their_order() -> None:
    plain, broker, slow, spark = (
        file("plain", ""),
        file("broker", "kafka"),
        file("slow", "kafka slow"),
        file("spark", "spark slow"),
    )

    assert ordered(plain, broker, slow, spark, file("other", "")) == ["spark", "slow", "broker", "plain", "other"]


def test_of_one_kind_the_file_with_the_most_tests_that_take_long_comes_first() -> None:
    few, many = file("few", "spark", "spark long"), file("many", "spark long", "spark judged")

    assert ordered(file("short", "spark"), few, many, file("long", "kafka long")) == ["many", "few", "short", "long"]
