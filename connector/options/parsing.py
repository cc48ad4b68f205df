"""The user's options of the sink and of the source: names, defaults, checks, one message for all problems.

Owns: Spark's and our own names, their defaults and meanings; the order in which a mapping is checked.
Does not know: the cluster's limits (a transaction timeout above the broker's cap is found at the query's
start), Spark itself, the rows.
Invariants:
- No option is ignored.
- All problems of one mapping are in one `OptionsError`, one per line.
- No message and no repr contains a secret.
- The options pickle, because executors receive them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from connector.errors import OptionsError
from connector.model import ClientSettings, WriteSettings
from connector.options.kafka import ALL_NAMES, ROWS, Side, Use, nearest, translate
from connector.options.kinds import Plain
from connector.options.security import SECRET_NAMES, SECURITY_NAMES
from connector.options.sink import (
    DEFAULT_LEDGER_TOPIC,
    DEFAULT_MARGIN_MS,
    LONGEST_TRANSACTION_MS,
    NO_ASYNC,
    SINK,
    SINK_NOT_YET,
    Shape,
    check_sink,
)
from connector.options.source import (
    DEFAULT_TRIGGER_DELAY_MS,
    OFFSETS,
    SOURCE,
    SOURCE_NOT_YET,
    Bound,
    Mode,
    Times,
    check_source,
)

__all__ = ["LONGEST_TRANSACTION_MS", "NOT_YET", "PLAIN", "OptionValue", "SinkOptions", "SourceOptions"]

OptionValue = str | int | bool | float

KAFKA_PREFIX = "kafka."


class _Told(BaseModel):
    """Checked options. One process pickles them, another one reads them. If the reader's version has options
    that the writer's lacked, they get their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        for name, field in type(self).model_fields.items():
            if name not in self.__dict__ and not field.is_required():
                self.__dict__[name] = field.get_default(call_default_factory=True)


@dataclass(frozen=True, kw_only=True)
class SinkOptions(WriteSettings):
    """The options of a sink, checked. `transaction_timeout_ms` is None where the user set none; the broker's
    cap applies then, at most 15 minutes. `pipeline` and `offsets_group` are empty only where the guarantee
    needs none and none was given. `batch_id`: of a batch write. `ephemeral`: the pipeline's name was
    generated for one write, and no later run uses it."""

    ledger_topic: str = DEFAULT_LEDGER_TOPIC
    offsets_group: str = ""
    adopt_checkpoint: bool = False
    checkpoint_location: str | None = None
    transaction_timeout_ms: int | None = None
    transaction_margin_ms: int = DEFAULT_MARGIN_MS
    two_phase_commit: bool = True
    max_block_ms: int = 60_000
    scope: str = "task"
    on_bad_record: str = "fail"
    batch_id: int | None = None
    ephemeral: bool = False

    @staticmethod
    def parse(options: Mapping[str, OptionValue], shape: Shape = "stream") -> SinkOptions:
        """Check the options of a sink; OptionsError naming every problem. Talks to no broker."""
        found, client, problems = _read(options, "sink")
        check_sink(found, problems, shape)
        found.setdefault("pipeline", "")
        found.setdefault("offsets_group", found["pipeline"])
        _raise_if_any(problems)
        return SinkOptions(**found, client=client, delivery_timeout_ms=client.delivery_timeout_ms)


class SourceOptions(_Told):
    """The options of `format("kafka_eos")` as a source, checked. Exactly one of `subscribe`,
    `subscribe_pattern` (Java's syntax) and `assign` (topic -> partitions) is set. `starting_offsets` and
    `ending_offsets` map topic to partition to offset where the user gave JSON (-2 earliest, -1 latest);
    `starting_times` and `ending_times`, milliseconds, override them. The beginning counts for a query's first
    start only."""

    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting_offsets: Bound = "latest"
    starting_times: Times | None = None
    fail_on_no_match: bool = True
    ending_offsets: Bound = "latest"
    ending_times: Times | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    isolation_level: str = "read_committed"
    group_id: str | None = None
    client: ClientSettings

    @staticmethod
    def parse(options: Mapping[str, OptionValue], mode: Mode | None = None) -> SourceOptions:
        """Check the options of a source; OptionsError naming every problem. Talks to no broker.

        `mode`: whether a stream or a batch is read; without it only the rules that hold for both are checked.
        """
        found, client, problems = _read(options, "source")
        check_source(found, problems, mode)
        _raise_if_any(problems)
        return _build({**found, "client": client})


def refuse_speculation(spark_conf: Mapping[str, str]) -> None:
    """OptionsError where Spark may run a second copy of a task: the two would fence each other."""
    if str(spark_conf.get("spark.speculation", "false")).strip().lower() == "true":
        raise OptionsError(
            "spark.speculation is true: a speculative copy of a task takes over its transactional id and "
            "fences the attempt that was about to finish. Nothing was written. Set spark.speculation=false "
            "for this application"
        )


def refuse_async_progress(execution: str) -> None:
    """OptionsError where the class that runs a Spark query is the one for asynchronous progress tracking."""
    if "AsyncProgressTracking" in execution:
        raise OptionsError(
            f"asyncProgressTrackingEnabled is true: {NO_ASYNC}. Nothing was written. Leave it out of the writeStream's options"
        )


PLAIN: dict[Side, tuple[Plain, ...]] = {"sink": SINK, "source": SOURCE}
NOT_YET: dict[Side, dict[str, str]] = {"sink": SINK_NOT_YET, "source": SOURCE_NOT_YET}
"""Options of Spark's Kafka sink and source that are not supported -> the alternative."""


def _read(
    options: Mapping[str, OptionValue | None], side: Side
) -> tuple[dict[str, Any], ClientSettings, list[str]]:
    """Sort the options by owner and read each value: fields the user set, client settings, problems."""
    problems: list[str] = []
    kafka: dict[str, str] = {}
    plain: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            problems.append(f"{name} has no value: leave it out or give it one")
            continue
        # Spark writes Python's True as "true"; a mapping that Spark never saw is treated the same way.
        text = str(value).lower() if isinstance(value, bool) else str(value)
        is_kafka = name.lower().startswith(KAFKA_PREFIX)
        key, target = (name[len(KAFKA_PREFIX) :], kafka) if is_kafka else (name.lower(), plain)
        if target.get(key, text) != text:
            problems.append(f"{name} is given twice, in different case and with different values: keep one")
        # Blanks around a password may be part of it; around anything else they are a mistake, as in Spark.
        target[key] = text if key in SECRET_NAMES else text.strip()
    rows = {row.name.lower(): row for row in PLAIN[side]}
    found: dict[str, Any] = {}
    for key, text in plain.items():
        if key not in rows:
            given = next(name for name in options if name.lower() == key)
            problems.append(_stranger(given, side))
            continue
        row = rows[key]
        word = text.lower() if row.kind is OFFSETS and not text.startswith("{") else text
        value = row.kind.read(row.name, word, problems)
        if row.field is not None:
            found[row.field] = value
    for row in PLAIN[side]:
        if row.default == "required" and row.name.lower() not in plain:
            problems.append(f"{row.name} is missing: {row.meaning}")
    values, client = translate(kafka, side, problems)
    return {**found, **values}, client, problems


def _stranger(name: str, side: Side) -> str:
    """The line for a name that is not an option of this side. Never shows its value: it may be a secret."""
    other: Side = "source" if side == "sink" else "sink"
    key = name.lower()
    for known, instead in NOT_YET[side].items():
        if known.lower() == key:
            return f"{known} is not supported yet: {instead}"
    elsewhere = {known.lower() for known in (*(row.name for row in PLAIN[other]), *NOT_YET[other])}
    if key in elsewhere:
        return f"{name} is an option of the {other}, not of the {side}"
    if key in ALL_NAMES:
        return f"{name} is not a known option: did you mean {KAFKA_PREFIX}{key}?"
    own = [row.name for row in PLAIN[side]]
    near = nearest(name, [*own, *NOT_YET[side], *(KAFKA_PREFIX + java for java in ALL_NAMES)])
    hint = f"did you mean {near}?" if near else f"the {side} has {', '.join(own)} and Kafka's own as kafka.*"
    return f"{name} is not a known option: {hint}"


def _build(found: Mapping[str, Any]) -> SourceOptions:
    """Build the options from values that were parsed one by one; pydantic checks their types once more."""
    try:
        return SourceOptions(**found)
    except ValidationError as error:
        # Only places and reasons: values may be secrets. Raised outside the handler, so no log has the
        # original.
        places = [
            f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in error.errors(include_input=False)
        ]
    _raise_if_any(places)
    raise AssertionError("a ValidationError without a place")


def _raise_if_any(problems: list[str]) -> None:
    if problems:
        raise OptionsError("\n".join(["these options cannot be used; nothing was written:", *problems]))


def documented_options(side: Side | None = None) -> list[tuple[str, str, str]]:
    """(name, default, meaning) of every option that has an effect, for the tables of docs/options.md: the given side's,
    or both sides' one after the other (shared names occur twice)."""
    if side is None:
        return documented_options("sink") + documented_options("source")
    plain = [(row.name, _shown(row, side), row.meaning) for row in PLAIN[side]]
    java = [
        (KAFKA_PREFIX + name, _shown(row, side), row.meaning)
        for name, row in ROWS[side].items()
        if isinstance(row, Use)
    ]
    security = [(KAFKA_PREFIX + name, "", meaning) for name, meaning in SECURITY_NAMES.items()]
    return plain + java + security


def _shown(row: Plain | Use, side: Side) -> str:
    """The default as a user would write it."""
    if row.default is not None:
        return row.default
    assert row.field is not None, "an option without a field has no default of its own"
    defaults = {each.name: each.default for each in (*fields(ClientSettings), *fields(SinkOptions))}
    if side == "source":
        defaults |= {name: each.default for name, each in SourceOptions.model_fields.items()}
    value = defaults[row.field]
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
