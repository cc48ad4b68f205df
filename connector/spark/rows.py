"""The columns of a DataFrame that becomes records: names, types and rules of Spark's Kafka sink.

Owns: which columns are taken, which types they may have, and what is said where they do not.
Does not know: topics that exist, partitions, how rows are encoded.
Invariants: a schema that cannot be written is refused before a task runs.
Source: Spark's Structured Streaming + Kafka integration guide, "Writing Data to Kafka".
"""

from __future__ import annotations

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

from connector.errors import OptionsError

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
"""Spark's own, and timestamp, which its sink does not have: the record's time, milliseconds kept."""


def select_columns(frame: DataFrame, topic: str | None) -> DataFrame:
    """The columns to write, in order, other columns dropped as Spark's sink does; OptionsError for a wrong schema.

    `topic`: the option; without it the rows need a topic column.
    """
    wanted = judge_schema(frame.schema, topic)
    return frame.select([frame[f"`{field}`"].alias(name) for name, field in wanted])


def judge_schema(schema: StructType, topic: str | None) -> list[tuple[str, str]]:
    """(output name, the schema's field) of what is written, in order; OptionsError naming everything that is wrong."""
    by_name: dict[str, str] = {}
    problems: list[str] = []
    for name in schema.fieldNames():
        lowered = name.lower()
        if lowered not in COLUMNS:
            continue
        if lowered in by_name:
            problems.append(f"two columns are called {lowered}: {by_name[lowered]} and {name}")
        by_name[lowered] = name
    types = {name: schema[field].dataType for name, field in by_name.items()}
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
        raise OptionsError("these rows cannot become records; nothing was written:\n" + "\n".join(problems))
    return [
        (name, by_name[name])
        for name in COLUMNS
        if name in by_name and not (name == "topic" and topic is not None)
    ]


def _expected(name: str, kind: DataType) -> str | None:
    if name in ("key", "value"):
        return (
            None if isinstance(kind, StringType | BinaryType) else "string or binary; cast it or use to_json"
        )
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
