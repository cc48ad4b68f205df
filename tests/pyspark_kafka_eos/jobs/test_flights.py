"""The data set: nothing is invented for what it does not know, and ids are row numbers."""

from __future__ import annotations

import json

import pytest

from spark_jobs import flights

pytestmark = pytest.mark.processes

ALL_FLIGHTS = 336_776


@pytest.fixture(scope="module")
def first() -> list[tuple[bytes | None, dict[str, object]]]:
    """Key and parsed value of the first five thousand flights."""
    table = flights.flights(5000)
    return [(row["key"], json.loads(row["value"])) for row in table.to_pylist()]


def test_every_flight_has_its_row_number_as_id() -> None:
    values = flights.flights().column("value")

    assert len(values) == ALL_FLIGHTS
    for row in (0, 4711, ALL_FLIGHTS - 1):
        assert json.loads(values[row].as_py())["id"] == row


def test_the_key_is_the_tail_number_and_null_where_it_is_not_known(
    first: list[tuple[bytes | None, dict[str, object]]],
) -> None:
    assert all((key.decode() if key else None) == body.get("tailnum") for key, body in first)
    assert any(key is None for key, _ in first)


def test_what_is_not_known_is_left_out_and_whole_numbers_stay_whole(
    first: list[tuple[bytes | None, dict[str, object]]],
) -> None:
    # Row 838: a flight that was cancelled, so it has no departure.
    cancelled = first[838][1]

    assert "dep_time" not in cancelled
    assert not any(isinstance(value, float) or value in (None, "NA") for _, body in first for value in body.values())


def test_airlines_and_planes_have_one_row_for_each_key_so_that_a_join_repeats_no_flight() -> None:
    for table, key in ((flights.airlines(), "carrier"), (flights.planes(), "tailnum")):
        keys = table.column(key).to_pylist()

        assert len(set(keys)) == len(keys) > 0
        assert None not in keys
