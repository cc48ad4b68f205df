"""The columns of a DataFrame that becomes records: names, types and rules of Spark's Kafka sink.

Owns: which columns are taken, which types they may have, the errors for other types, and the instant that a time
without a zone stands for.
Does not know: topics that exist, partitions, the encoding of rows.
Invariants:
- A schema that cannot be written is refused before a task runs.
- No time without a zone leaves here: what reads rows further on has instants.
Source: Spark's Structured Streaming + Kafka integration guide, "Writing Data to Kafka".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from zoneinfo import available_timezones

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.records import instants, zone_of

SESSION_ZONE = "spark.sql.session.timeZone"
"""Spark's setting, by whose zone it casts a TIMESTAMP_NTZ."""

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
"""Spark's own, and timestamp, which Spark's sink lacks: the record's time, kept in milliseconds."""


def select_columns(frame: DataFrame, topic: str | None) -> DataFrame:
    """The columns to write, in order. Drops other columns as Spark's sink does; OptionsError for a wrong
    schema.

    `topic`: the option; without it the rows need a topic column.
    """
    chosen = judge_schema(frame.schema, topic)
    names = frame.schema.names
    if names == list(chosen):
        return frame  # analysing another plan would take some milliseconds of every micro-batch
    return frame.select([frame[f"`{names[place]}`"].alias(name) for name, place in chosen.items()])


def judge_schema(schema: StructType, topic: str | None) -> dict[str, int]:
    """Column to write -> its place among the schema's fields, in the order of `COLUMNS`; OptionsError as above."""
    places: dict[str, int] = {}
    problems: list[str] = []
    for place, name in enumerate(schema.names):
        lowered = name.lower()
        if lowered not in COLUMNS:
            continue
        if lowered in places:
            problems.append(f"two columns are called {lowered}: {schema.names[places[lowered]]} and {name}")
        places[lowered] = place
    types = {name: schema.fields[place].dataType for name, place in places.items()}
    if "value" not in types:
        problems.append("there is no column named value; a record needs one (string or binary)")
    if "topic" not in types and topic is None:
        problems.append("there is no topic: set the option topic, or give the rows a topic column")
    problems.extend(
        f"the column {name} has type {kind.simpleString()}; it must be {expected}"
        for name, kind in types.items()
        if (expected := _expected(name, kind)) is not None
    )
    if problems:
        raise OptionsError.listing("these rows cannot become records, and nothing was written", problems)
    return {name: places[name] for name in COLUMNS if name in places and not (name == "topic" and topic is not None)}


def take_columns(batch: pa.RecordBatch, places: Mapping[str, int]) -> pa.RecordBatch:
    """The columns of an Arrow batch that `judge_schema` chose."""
    return pa.RecordBatch.from_arrays([batch.column(place) for place in places.values()], names=list(places))


def has_local_times(schema: StructType) -> bool:
    """Whether records get their times from a column without a zone, which takes the session's zone to read."""
    return any(
        each.name.lower() == "timestamp" and isinstance(each.dataType, TimestampNTZType) for each in schema.fields
    )


class LocalTimes:
    """Rows in, rows out: a timestamp column without a zone becomes instants, as by Spark's cast to TIMESTAMP.

    `zone`: the session's; None where it is not known. `used`: that zone once it had a meaning, else "".
    """

    def __init__(self, zone: str | None) -> None:
        self.used = ""
        self._zone = zone

    def to_instants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with instants; OptionsError where it has local times and their zone is not known."""
        place = batch.schema.get_field_index("timestamp")
        if place < 0 or batch.schema.field(place).type.tz is not None:
            return batch
        zone = self._require()
        column = batch.column(place).cast(pa.timestamp("us"), safe=False)
        known = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        read = pa.array(instants(known, zone), pa.int64(), mask=nulls).cast(pa.timestamp("us", tz="UTC"))
        return batch.set_column(place, "timestamp", read)

    def _require(self) -> tzinfo:
        if not self._zone:
            raise OptionsError(
                "the column timestamp has times without a zone (timestamp_ntz), and the session's zone is not known here: Spark "
                f"tells a task {SESSION_ZONE} only where the session sets it; nothing of these rows is visible; set "
                f"{SESSION_ZONE}, or cast the column: cast(timestamp as timestamp)"
            )
        try:
            zone = zone_of(self._zone)
        except LookupError:
            # A name such as SystemV/PST8PDT is Java's alone: no database of zones has it.
            way = (
                f"set {SESSION_ZONE} to a zone of the tz database, such as America/Los_Angeles (if it has {self._zone} by now, install the "
                "newest package tzdata there)"
                if available_timezones()
                else "install the package tzdata there, as no time zones are there at all"
            )
            raise OptionsError(
                f"the column timestamp has times without a zone (timestamp_ntz), and the Python of the tasks has no time zone "
                f"{self._zone!r}, which {SESSION_ZONE} names; nothing of these rows is visible; {way}, "
                "or cast the column: cast(timestamp as timestamp)",
                {"time_zone": self._zone},
            ) from None
        self.used = self._zone
        return zone


def _expected(name: str, kind: DataType) -> str | None:
    if name in ("key", "value"):
        return None if isinstance(kind, StringType | BinaryType) else "string or binary; cast it or use to_json"
    if name == "topic":
        return None if isinstance(kind, StringType) else "string"
    if name == "partition":
        return None if isinstance(kind, IntegerType) else "int"
    if name == "timestamp":
        return None if isinstance(kind, TimestampType | TimestampNTZType) else "timestamp"
    element = kind.elementType if isinstance(kind, ArrayType) else None
    fields = element.fields if isinstance(element, StructType) else []
    kinds = [(field.name, type(field.dataType)) for field in fields]
    if kinds == [("key", StringType), ("value", BinaryType)]:
        return None
    return "array<struct<key:string,value:binary>>"
