"""What the benchmark of many pipelines and queries says of its points, and when the rows of a query are proven."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from benchmarks.children import holds
from benchmarks.many import table
from benchmarks.many_queries import ROWS, proved
from benchmarks.slots import slope


@dataclass(frozen=True)
class Point:
    """A made-up measurement."""

    pipelines: int
    form: str
    begin_ms: float
    commit_ms: float | None


POINTS = [Point(1, "a", 5.0, None), Point(10, "a", 9.0, None), Point(101, "a", 25.0, None)]


def test_a_slope_is_what_each_further_one_adds_from_the_first_point_to_the_last() -> None:
    assert slope(POINTS, "pipelines", "begin_ms") == 0.2


def test_one_point_and_a_value_that_was_not_measured_have_no_slope() -> None:
    assert slope(POINTS[:1], "pipelines", "begin_ms") is None
    assert slope(POINTS, "pipelines", "commit_ms") is None


def test_the_table_has_a_row_for_each_point_and_the_slopes_last() -> None:
    rows = table(POINTS, "pipelines").splitlines()

    assert rows[0] == "| pipelines | form | begin_ms | commit_ms |"
    assert rows[2] == "| 1 | a | 5.0 |  |"
    assert rows[-1] == "| each further one |  | 0.2 |  |"
    assert len(rows) == 2 + len(POINTS) + 1


@pytest.mark.parametrize("finished", [0, 1, 2])
def test_rows_of_whole_batches_are_proven_also_of_one_that_spark_did_not_finish(finished: int) -> None:
    assert proved([*range(ROWS, 2 * ROWS), *range(ROWS)], finished) == 2 * ROWS


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([*range(ROWS), 0], "more than once"),
        ([*range(1, ROWS + 1)], "rows are missing"),
        ([*range(ROWS - 1)], "no whole batches"),
        ([*range(ROWS)], "2 finished batches"),
        ([], "2 finished batches"),
    ],
)
def test_other_rows_are_no_proof(rows: list[int], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        proved(rows, 2)


def test_what_a_process_holds_is_the_kernels_word() -> None:
    before = holds(os.getpid())
    read, write = os.pipe()
    try:
        after = holds(os.getpid())
    finally:
        os.close(read)
        os.close(write)

    assert before is not None and after is not None
    assert after.files == before.files + 2
    assert 0 < after.share_mb <= after.resident_mb
    assert holds(2**22 + 1) is None
