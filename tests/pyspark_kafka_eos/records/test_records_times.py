"""Kafka takes any int64 of milliseconds; Spark's timestamps are microseconds in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_eos.records.times import FURTHEST_MS, microseconds

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("timestamp_ms", "expected_us", "out_of_reach"),
    [
        (-1, -1_000, 0),
        (0, 0, 0),
        (1_700_000_000_123, 1_700_000_000_123_000, 0),
        (9_223_372_036_854_775, 9_223_372_036_854_775_000, 0),
        (9_223_372_036_854_776, 9_223_372_036_854_775_000, 1),
        (INT64_MAX, 9_223_372_036_854_775_000, 1),
        (-9_223_372_036_854_775, -9_223_372_036_854_775_000, 0),
        (-9_223_372_036_854_776, -9_223_372_036_854_775_000, 1),
        (-INT64_MAX - 1, -9_223_372_036_854_775_000, 1),
    ],
)
def test_a_time_that_does_not_fit_is_the_furthest_that_does(
    timestamp_ms: int, expected_us: int, out_of_reach: int
) -> None:
    times, clamped = microseconds(np.array([timestamp_ms], dtype=np.int64))

    assert (times.tolist(), clamped) == ([expected_us], out_of_reach)


@given(st.lists(st.integers(-INT64_MAX - 1, INT64_MAX)))
def test_later_records_are_never_earlier_timestamps(timestamps_ms: list[int]) -> None:
    ordered = sorted(timestamps_ms)

    times, clamped = microseconds(np.array(ordered, dtype=np.int64))

    assert times.tolist() == sorted(times.tolist())
    assert clamped == sum(abs(each) > FURTHEST_MS for each in ordered)
