"""The options of a job that comes from another connector, sorted: to use, dropped, refused, still missing.

Owns: the sorting, and what a job that changes its format needs besides.
Does not know: why an option is refused or has no effect (`parsing` and the tables do), files, the command.
Invariants:
- The options to use are accepted by the parser together, once the missing ones are added.
- No value of a name that can hold a secret is in the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark_kafka_eos.options.kafka import ALL_NAMES, Side
from pyspark_kafka_eos.options.login.security import SECRET_NAMES, SECURITY_NAMES
from pyspark_kafka_eos.options.parsing import KAFKA_PREFIX, PLAIN, OptionValue, check, read
from pyspark_kafka_eos.options.translating import reason_to_ignore

SECRET = "***"
"""Stands for the value of a name that can hold a secret: the output of a command ends in logs."""

_TOPICS = ("subscribe", "subscribepattern", "assign")
_STANDS_FOR = {"kafka.bootstrap.servers": "broker:9092", "pipeline": "pipeline"}
"""The value that stands in for a missing option while the others are judged."""

_ALWAYS = "it asks for what happens in any case"


@dataclass(frozen=True)
class Migration:
    """`options`: the names and values to use, secrets as ***. `dropped`: name -> why it has no effect.
    `refused`: the names and the reason, one entry for each reason. `missing`: name -> what has to be added.
    `different`: name -> what its default changes."""

    side: Side
    options: dict[str, str]
    dropped: dict[str, str]
    refused: list[tuple[tuple[str, ...], str]]
    missing: dict[str, str]
    different: dict[str, str]


def side_of(given: Mapping[str, OptionValue]) -> Side:
    """The side that options belong to: the source where one names the topics to read."""
    return "source" if any(name.lower() in _TOPICS for name in given) else "sink"


def migrate(given: Mapping[str, OptionValue], side: Side) -> Migration:
    """Sort the options of one side. Names of the Java client without the prefix `kafka.` get it."""
    named = {_full_name(name, side): value for name, value in given.items()}
    dropped: dict[str, str] = {}
    kept: dict[str, OptionValue] = {}
    for name, value in named.items():
        why = _without_effect(name, value, side)
        if why is None:
            kept[name] = value
        else:
            dropped[name] = why
    missing = _missing(kept, side)
    refused = _refusals(kept, side, {name: _STANDS_FOR[name] for name in missing if name in _STANDS_FOR})
    out = {name for names, _ in refused for name in names}
    options = {name: _shown(name, value) for name, value in kept.items() if name not in out}
    different = {}
    if side == "source" and "kafka.isolation.level" not in options:
        different["kafka.isolation.level"] = "read_committed, Spark's own source reads uncommitted by default"
    if side == "sink":
        different["the column timestamp"] = (
            "it is the record's time, and retention.ms counts from it; Spark's own sink 4.0 to 4.2 drops it. select * over a Kafka source "
            "leaves it: drop it where the records' time is to be the time of writing"
        )
    return Migration(side, options, dropped, refused, missing, different)


def _full_name(name: str, side: Side) -> str:
    plain = {known.lower() for known in PLAIN[side]}
    return KAFKA_PREFIX + name if name in ALL_NAMES and name.lower() not in plain else name


def _java(name: str) -> str | None:
    return name[len(KAFKA_PREFIX) :] if name.lower().startswith(KAFKA_PREFIX) else None


def _without_effect(name: str, value: OptionValue, side: Side) -> str | None:
    java = _java(name)
    if java is not None:
        why = reason_to_ignore(java, _text(value), side)
        return _ALWAYS if why == "" else why
    row = next((row for known, row in PLAIN[side].items() if known.lower() == name.lower()), None)
    return None if row is None else row.without_effect


def _missing(kept: Mapping[str, OptionValue], side: Side) -> dict[str, str]:
    names = {name.lower() for name in kept}
    wanted = {"kafka.bootstrap.servers": "the brokers, host:port separated by commas"}
    if side == "sink":
        wanted["pipeline"] = "the stable name of this query's output; keep it as long as the checkpoint"
        wanted["checkpointLocation"] = "the query's checkpoint, among the options of the writeStream"
    return {name: what for name, what in wanted.items() if name.lower() not in names}


def _refusals(
    kept: Mapping[str, OptionValue], side: Side, stand_ins: Mapping[str, str]
) -> list[tuple[tuple[str, ...], str]]:
    """The parser's own lines, each with the names that it is about: first of every option alone, then of the
    security names, which have a meaning only together, then of what is left together."""
    lines_of_none = set(_lines(stand_ins, side))
    security = [name for name in kept if _java(name) in SECURITY_NAMES]
    refused: list[tuple[tuple[str, ...], str]] = []
    for name in (each for each in kept if each not in security):
        alone = {**stand_ins, name: kept[name]}
        refused += [((name,), line) for line in _lines(alone, side) if line not in lines_of_none]
    together = {**stand_ins, **{name: kept[name] for name in security}}
    for line in _lines(together, side):
        if line not in lines_of_none:
            about = tuple(name for name in security if name in line) or tuple(security)
            refused.append((about, line))
    out = {name for names, _ in refused for name in names}
    rest = {**stand_ins, **{name: value for name, value in kept.items() if name not in out}}
    found, _, problems = read(rest, side)
    if not problems:
        check(found, problems, side)
    return refused + [(_subjects(line, [name for name in rest if name in kept]), line) for line in problems]


def _subjects(line: str, names: Collection[str]) -> tuple[str, ...]:
    """The names that a line is about: the one that it begins with, else all that it mentions."""
    first = tuple(name for name in names if line.startswith(f"{name} "))
    return first or tuple(name for name in names if name in line)


def _lines(options: Mapping[str, OptionValue], side: Side) -> list[str]:
    return read(options, side)[2]


def _text(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(name: str, value: OptionValue) -> str:
    return SECRET if _java(name) in SECRET_NAMES else _text(value)


__all__ = ["SECRET", "Migration", "migrate", "side_of"]
