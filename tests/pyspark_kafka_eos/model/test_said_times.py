"""Times as sentences say them."""

from __future__ import annotations

import pytest

from pyspark_kafka_eos.model.said_times import moment, span


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (-5, "0 s"),
        (1_999, "1 s"),
        (119_999, "119 s"),
        (120_000, "2 min"),
        (7_200_000, "2 h"),
        (30 * 86_400_000, "30 d"),
    ],
)
def test_a_length_is_said_in_the_largest_unit_of_which_it_has_two(ms: int, said: str) -> None:
    assert span(ms) == said


def test_a_moment_is_said_in_utc_and_in_milliseconds_where_no_calendar_has_it() -> None:
    assert moment(1_793_123_353_293) == "2026-10-27T17:49:13+00:00"
    assert moment(2**62) == f"{2**62} ms after 1970"
