"""The source's arithmetic: JSON, the division of a batch's limit, what is planned and what counts as lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.fetcher import OffsetRange
from pyspark_kafka_eos.spark.source.source_offsets import (
    Positions,
    admit,
    is_too_small,
    judge_latest,
    plan,
    split,
    until,
)

A, B, C = (TopicPartition("t", number) for number in (0, 1, 2))
PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b.c"]), st.integers(0, 20))
BACKLOGS = st.dictionaries(PLACES, st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1)


class Lost(Exception):
    """What the arithmetic reported as lost."""


def refuse(where: TopicPartition, lost: str) -> None:
    """Report a loss by raising it."""
    raise Lost(f"{where}: {lost}")


def allow(where: TopicPartition, lost: str) -> None:
    """Allow every loss."""


def at_zero(partitions: list[TopicPartition]) -> Positions:
    """Partitions that have lost nothing yet."""
    return dict.fromkeys(partitions, 0)


def unused(partitions: list[TopicPartition]) -> Positions:
    """For plans that need no look at the broker."""
    raise AssertionError(f"asked for the beginning of {partitions}")


@given(BACKLOGS, st.integers(1, 10**10))
def test_a_limited_batch_takes_all_of_its_limit_and_never_more(
    backlogs: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    start = {where: begin for where, (begin, _) in backlogs.items()}
    latest = {where: begin + waiting for where, (begin, waiting) in backlogs.items()}

    end = admit(start, latest, limit)

    assert set(end) == set(latest)
    assert all(start[where] <= end[where] <= latest[where] for where in end)
    assert sum(end[where] - start[where] for where in end) == min(limit, sum(n for _, n in backlogs.values()))


@given(BACKLOGS, st.integers(21 * 2, 10**10))
def test_no_partition_waits_until_larger_ones_are_done(
    backlogs: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    start = {where: begin for where, (begin, _) in backlogs.items()}
    latest = {where: begin + waiting for where, (begin, waiting) in backlogs.items()}

    end = admit(start, latest, limit)

    assert all(end[where] > start[where] for where in end if latest[where] > start[where])


def test_a_limit_below_the_number_of_partitions_serves_all_of_them_in_turn() -> None:
    latest: Positions = {A: 3, B: 3, C: 3}
    position: Positions = {A: 0, B: 0, C: 0}
    served = []
    for _ in range(9):
        end = admit(position, latest, 1)
        served += [where for where in end if end[where] > position[where]]
        position = end

    assert position == latest
    assert {A, B, C} == set(served[:3])


def test_a_partition_that_ends_before_the_position_keeps_its_own_end_in_a_limited_batch() -> None:
    assert admit({A: 50, B: 0}, {A: 10, B: 100}, 5) == {A: 10, B: 5}


def test_a_run_with_a_target_goes_to_it_and_no_further() -> None:
    assert until({A: 0}, {A: 9}, {A: 5}) == {A: 5}


def test_a_run_with_a_target_never_goes_back() -> None:
    assert until({A: 7}, {A: 9}, {A: 5}) == {A: 7}


def test_partitions_that_came_after_the_target_are_left_to_the_next_run() -> None:
    assert until({A: 0}, {A: 9, B: 4}, {A: 5}) == {A: 5}


def test_a_run_with_a_target_that_was_cut_away_comes_to_an_end() -> None:
    assert until({A: 2}, {A: 3}, {A: 5}) == {A: 3}


def test_topics_that_end_before_the_position_are_a_loss() -> None:
    with pytest.raises(Lost, match=r"t-0: .*offset 5.*ends at 4"):
        judge_latest({A: 5}, {A: 4}, refuse)
    with pytest.raises(Lost, match=r"t-1: the partition is gone"):
        judge_latest({A: 5, B: 1}, {A: 5}, refuse)
    judge_latest({A: 5}, {A: 5, B: 0}, refuse)


def test_a_batch_reads_each_partition_from_its_start_to_its_end() -> None:
    ranges = plan({A: 1, B: 5}, {A: 4, B: 5}, {}, unused, refuse)

    assert ranges == [OffsetRange(A, 1, 4)]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert plan({A: 4}, {A: 4, B: 3}, {}, at_zero, refuse) == [OffsetRange(B, 0, 3)]


def test_a_new_partition_that_has_lost_its_beginning_is_a_loss() -> None:
    def late(partitions: list[TopicPartition]) -> Positions:
        return dict.fromkeys(partitions, 2)

    with pytest.raises(Lost, match=r"t-1: .*begins at offset 2"):
        plan({A: 4}, {A: 4, B: 3}, {}, late, refuse)
    assert plan({A: 4}, {A: 4, B: 3}, {}, late, allow) == [OffsetRange(B, 2, 3)]


def test_a_partition_recreated_is_a_loss_and_where_allowed_read_from_its_beginning() -> None:
    with pytest.raises(Lost, match=r"t-0: .*offset 9.*ends at 4"):
        plan({A: 9}, {A: 4}, {}, at_zero, refuse)
    assert plan({A: 9}, {A: 4}, {}, at_zero, allow) == [OffsetRange(A, 0, 4)]


def test_a_partition_that_is_gone_is_a_loss_and_where_allowed_left_out() -> None:
    with pytest.raises(Lost, match=r"t-1: the partition is gone"):
        plan({A: 1, B: 1}, {A: 2}, {}, unused, refuse)
    assert plan({A: 1, B: 1}, {A: 2}, {}, unused, allow) == [OffsetRange(A, 1, 2)]


def test_a_replay_of_the_first_batch_reads_nothing_that_came_after_it() -> None:
    # The first try found the topic's end at 5 and logged it; until the replay finds it at 9, four records came.
    found_anew: Positions = {A: 9, B: 2}

    assert plan(found_anew, {A: 5}, found_anew, unused, refuse) == []


def sizes(ranges: list[OffsetRange]) -> list[int]:
    """How many offsets each range has."""
    return [each.end - each.start for each in ranges]


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**4)), min_size=1, max_size=8),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(200, 10**5),
)
def test_pieces_put_together_are_the_ranges_and_none_is_empty(
    shapes: list[tuple[int, int]], tasks: int | None, records: int | None
) -> None:
    ranges = [OffsetRange(TopicPartition("t", n), at, at + size) for n, (at, size) in enumerate(shapes)]

    pieces = split(ranges, tasks, records)

    assert all(size > 0 for size in sizes(pieces))
    assert records is None or max(sizes(pieces)) <= records
    joined: list[OffsetRange] = []
    for piece in pieces:
        if joined and joined[-1].where == piece.where:
            assert joined[-1].end == piece.start
            joined[-1] = OffsetRange(piece.where, joined[-1].start, piece.end)
        else:
            joined.append(piece)
    assert joined == ranges


def test_ranges_stay_whole_where_there_are_enough_of_them() -> None:
    ranges = [OffsetRange(A, 0, 100), OffsetRange(B, 5, 6)]

    assert split(ranges, None, None) == ranges
    assert split(ranges, 2, None) == ranges
    assert split([], 4, 4) == []


def test_a_large_range_is_divided_and_a_small_one_is_not() -> None:
    assert sizes(split([OffsetRange(A, 0, 100), OffsetRange(B, 0, 1)], 5, None)) == [25, 25, 25, 25, 1]


def test_a_range_above_the_limit_of_a_task_is_divided_evenly() -> None:
    assert split([OffsetRange(A, 10, 20)], None, 4) == [
        OffsetRange(A, 10, 13), OffsetRange(A, 13, 16), OffsetRange(A, 16, 20)]  # fmt: skip


def test_a_batch_is_too_small_by_what_all_partitions_have_waiting() -> None:
    assert is_too_small({A: 5, B: 5}, {A: 7, B: 7}, 5)
    assert not is_too_small({A: 5, B: 5}, {A: 7, B: 8}, 5)
    assert not is_too_small({A: 5}, {A: 5, B: 5}, 5)
    assert is_too_small({A: 9}, {A: 2, B: 4}, 5)
