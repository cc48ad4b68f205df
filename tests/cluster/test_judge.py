"""The judge of a run refuses every history that is not exactly once."""

from __future__ import annotations

from collections.abc import Iterable

from tests.cluster.judge import KEYS, PARTITIONS, Judge

ROWS = 4 * KEYS
ENDS = dict.fromkeys(range(PARTITIONS), ROWS // PARTITIONS)


def judged(rows: Iterable[int]) -> Judge:
    judge = Judge()
    for row in rows:
        judge.take(str(row % KEYS).encode(), str(row).encode())
    return judge


def test_each_row_once_in_the_order_of_its_key_is_right() -> None:
    by_partition = [row for number in range(PARTITIONS) for row in range(number, ROWS, PARTITIONS)]
    assert judged(range(ROWS)).problems(ENDS) == []
    assert judged(by_partition).problems(ENDS) == []


def test_a_row_that_is_lost_is_named_as_soon_as_a_later_one_of_its_key_is_there() -> None:
    judge = judged(row for row in range(ROWS) if row != 7)
    assert judge.lost() == [7]
    assert judge.problems(ENDS) == ["1 rows lost: 7"]


def test_the_last_rows_are_lost_where_the_committed_batches_have_them() -> None:
    judge = judged(range(ROWS - 2))
    assert judge.problems() == []
    assert judge.problems(ENDS) == [f"2 rows lost: {ROWS - 2}, {ROWS - 1}"]


def test_a_key_of_which_nothing_is_there_is_lost() -> None:
    judge = judged(row for row in range(ROWS) if row % KEYS != 5)
    assert judge.lost(ENDS) == [5, 5 + KEYS, 5 + 2 * KEYS, 5 + 3 * KEYS]


def test_a_row_that_is_there_twice_is_doubled_whenever_it_comes_again() -> None:
    assert judged([*range(ROWS), 7]).problems(ENDS) == ["1 rows doubled: 7"]
    assert judged([0, 0]).doubled == [0]


def test_a_row_behind_a_later_one_of_its_key_is_out_of_order_and_not_lost() -> None:
    rows = list(range(ROWS))
    rows[3], rows[3 + KEYS] = rows[3 + KEYS], rows[3]
    assert judged(rows).problems(ENDS) == ["1 rows out of order: 3"]


def test_a_row_that_nobody_wrote_is_strange() -> None:
    judge = Judge()
    judge.take(b"1", b"2")
    judge.take(None, b"0")
    judge.take(b"0", b"zero")
    judge.take(b"0", None)
    assert len(judge.strange) == 4


def test_a_row_behind_the_committed_batches_is_too_early() -> None:
    ends = {**ENDS, 1: ENDS[1] - 1}
    assert judged(range(ROWS)).problems(ends) == [f"1 rows visible before their batch: {ROWS - 2}"]
