"""`kafka-eos migrate-options < options.json`: what becomes of the options of a job that comes from another connector.

Owns: the command, the reading of its input, its tables.
Does not know: what an option becomes (`pyspark_kafka_eos.options.migration`).
Invariants:
- Nothing is connected to and nothing is changed.
- The value of a name that can hold a secret is never shown.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.cli import documents
from pyspark_kafka_eos.cli.answering import answering
from pyspark_kafka_eos.cli.parameters import Json
from pyspark_kafka_eos.options import OptionValue, migrate
from pyspark_kafka_eos.options.kafka import Side
from pyspark_kafka_eos.options.migration import side_of

_FORM = 'a JSON object of names and values, as {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}'


def migrate_options(
    side: Annotated[
        str | None,
        typer.Option("--side", help="source or sink; default: source where an option names topics to read, else sink"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read the options of a job with Spark's Kafka source or sink, or of a Java client, as JSON from standard
    input; show which ones to use, which are dropped, which are refused and what is missing. Connects to nothing.
    Exit code 2 where an option is refused."""
    with answering("migrate-options", as_json) as answer:
        given = _given(sys.stdin.read())
        answer(documents.migrated(migrate(given, _side(side, given))))


def _side(name: str | None, given: dict[str, OptionValue]) -> Side:
    if name is None:
        return side_of(given)
    if name == "source":
        return "source"
    if name == "sink":
        return "sink"
    raise OptionsError(f"--side is {name!r}: must be source or sink")


def _given(text: str) -> dict[str, OptionValue]:
    """The options; OptionsError, without any part of the text, where it is not one JSON object of values."""
    try:
        found = json.loads(text)
    except ValueError as error:
        place = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise OptionsError(f"standard input is not JSON{place}: it must be {_FORM}") from None
    if not isinstance(found, dict):
        raise OptionsError(f"standard input is JSON, but not an object: it must be {_FORM}")
    strange = [name for name, value in found.items() if not isinstance(value, (str, int, float, bool))]
    if strange:
        raise OptionsError(f"{strange[0]} has no single value (text, number, true or false): it must be {_FORM}")
    return found
