"""Times without a zone as instants: what java.time does where a clock is put forward or back, and which zone a name
means.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest

from pyspark_kafka_eos.records import instants, zone_of


def instant(local: str, zone: str) -> str:
    found = instants(np.array([local], dtype="datetime64[us]").view(np.int64), zone_of(zone))
    return str(found.view("datetime64[us]")[0])


@pytest.mark.parametrize(
    ("local", "zone", "utc"),
    [
        ("2024-07-01 12:00:00.123456", "America/New_York", "2024-07-01T16:00:00.123456"),
        ("2024-01-01 12:00:00", "America/New_York", "2024-01-01T17:00:00.000000"),
        # 02:00 to 03:00 did not happen: later by the hour that is missing.
        ("2024-03-10 01:59:59", "America/New_York", "2024-03-10T06:59:59.000000"),
        ("2024-03-10 02:30:00", "America/New_York", "2024-03-10T07:30:00.000000"),
        ("2024-03-10 03:00:00", "America/New_York", "2024-03-10T07:00:00.000000"),
        # 01:00 to 02:00 happened twice: the first time.
        ("2024-11-03 01:30:00", "America/New_York", "2024-11-03T05:30:00.000000"),
        ("2024-11-03 02:00:00", "America/New_York", "2024-11-03T07:00:00.000000"),
        # A whole day that did not happen, a change of 30 minutes, one that is no whole minute.
        ("2011-12-30 12:00:00", "Pacific/Apia", "2011-12-30T22:00:00.000000"),
        ("2024-10-06 02:15:00", "Australia/Lord_Howe", "2024-10-05T15:45:00.000000"),
        ("1972-01-07 00:44:29", "Africa/Monrovia", "1972-01-07T01:28:59.000000"),
        ("1972-01-07 00:44:30", "Africa/Monrovia", "1972-01-07T00:44:30.000000"),
        # The first and the last second of a year, a leap day, years that datetime does not have.
        ("2023-12-31 23:59:59", "Asia/Tokyo", "2023-12-31T14:59:59.000000"),
        ("2024-02-29 00:00:00", "Asia/Tokyo", "2024-02-28T15:00:00.000000"),
        ("9999-12-31 23:59:59", "America/New_York", "10000-01-01T04:59:59.000000"),
    ],
)
def test_a_local_time_is_the_instant_that_java_takes_it_for(local: str, zone: str, utc: str) -> None:
    assert instant(local, zone) == utc


def test_years_after_9999_have_the_rules_of_the_last_ones() -> None:
    summer = np.array(["2024-07-01T12:00:00", "12024-07-01T12:00:00"], dtype="datetime64[us]").view(np.int64)

    hours = (instants(summer, zone_of("America/New_York")) - summer) / 3_600_000_000

    assert hours.tolist() == [4.0, 4.0]


def test_times_of_many_years_are_each_read_by_its_own_rule() -> None:
    local = np.arange("1971-01-01", "2040-01-01", np.timedelta64(7, "h"), dtype="datetime64[us]").view(np.int64)
    shuffled = np.random.default_rng(1).permutation(local)
    zone = zone_of("America/New_York")
    begin = datetime(1970, 1, 1, tzinfo=zone)
    offsets = [(begin + timedelta(microseconds=value)).utcoffset() for value in shuffled.tolist()]
    behind = np.array([offset // timedelta(microseconds=1) for offset in offsets if offset is not None])

    assert np.array_equal(instants(shuffled, zone), shuffled - behind)


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("UTC", 0), ("Z", 0), ("GMT", 0), ("+05:30", -5.5), ("-08:00", 8), ("+1", -1), ("UTC+1", -1), ("GMT-03:30", 3.5),
        ("UT+0130", -1.5), ("+01:02:03", -1 - 2 / 60 - 3 / 3600), ("Asia/Kolkata", -5.5), ("IST", -5.5), ("EST", 5),
        ("PST", 7), ("CST", 5), ("Etc/GMT+5", 5),
    ],
)  # fmt: skip
def test_a_zone_has_the_name_that_spark_knows_it_by(name: str, hours: float) -> None:
    local = np.array(["2024-07-01T12:00:00"], dtype="datetime64[us]").view(np.int64)

    assert (instants(local, zone_of(name)) - local).tolist() == [round(hours * 3_600_000_000)]


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "America"])
def test_a_zone_that_this_python_does_not_have_is_a_lookup_error(name: str) -> None:
    with pytest.raises(LookupError):
        zone_of(name)
