"""The user's options of the sink and of the source: names, defaults, checks, one message for all problems.

Owns: the names that are Spark's or ours, their defaults and meanings; the order in which a mapping is judged.
Does not know: what the cluster allows (a transaction timeout above the broker's cap is found at the start,
there), Spark itself, the rows.
Invariants: no option is ignored; all problems of one mapping are in one `OptionsError`, one per line; no
secret is in a message or in a repr; the options pickle, because they travel to the executors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from connector.errors import OptionsError
from connector.kafka_options import (
    ALL_NAMES,
    FLAG,
    LONG_TEXT,
    MILLISECONDS,
    ROWS,
    TEXT,
    Kind,
    Side,
    Use,
    nearest,
    translate,
    whole_number,
)
from connector.kafka_security import SECRET_NAMES, SECURITY_NAMES
from connector.model import ClientSettings

OptionValue = str | int | bool | float
StartingOffsets = Literal["earliest", "latest"] | dict[str, dict[int, int]]

KAFKA_PREFIX = "kafka."

LONGEST_PIPELINE = 200
"""Kafka allows 249 characters in a topic's name, the tightest of the names made from it; the rest is for
`.{slot}`."""

LONGEST_TRANSACTION_MS = 900_000
"""Kafka's default cap (transaction.max.timeout.ms, 15 minutes): what is asked for where the user set
nothing."""

DEFAULT_MARGIN_MS = 10_000
"""Deciding takes tens of milliseconds; the rest is for a coordinator that moves. At half, a slow failover
times a decided slot out; at double, the default 15 minutes still lose nothing, but short transactions are
refused."""

DEFAULT_BATCH_BYTES = 1_048_576
"""Just under a topic's default max.message.bytes (1048588). Java's 16 KiB would cost a request per 160 small
records."""


class SinkOptions(BaseModel):
    """What `ExactlyOnceWriter` was told, checked. `transaction_timeout_ms` is None where the user set none:
    the broker's cap is taken then, at most 15 minutes. `max_request_bytes` is None where the topic alone
    bounds a record."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    pipeline: str
    topic: str | None = None
    ledger_topic: str = "exactly-once-ledger"
    offsets_group: str
    adopt_checkpoint: bool = False
    checkpoint_location: str | None = None
    transaction_timeout_ms: int | None = None
    transaction_margin_ms: int = DEFAULT_MARGIN_MS
    two_phase_commit: bool = True
    compression: str = "none"
    batch_bytes: int = DEFAULT_BATCH_BYTES
    max_request_bytes: int | None = None
    delivery_timeout_ms: int
    max_block_ms: int = 60_000
    client: ClientSettings

    @staticmethod
    def parse(options: Mapping[str, OptionValue]) -> SinkOptions:
        """Check the options of a sink; OptionsError naming every problem. Talks to no broker."""
        found, client, problems = _read(options, "sink")
        found.setdefault("offsets_group", found.get("pipeline"))
        _check_sink(found, problems)
        _raise_if_any(problems)
        return _build(
            SinkOptions, {**found, "client": client, "delivery_timeout_ms": client.delivery_timeout_ms}
        )


class SourceOptions(BaseModel):
    """What `format("kafka_eos")` was told, checked. `starting_offsets` maps topic to partition to offset
    where the user gave JSON (-2 earliest, -1 latest); it counts for a query's first start only."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    subscribe: tuple[str, ...]
    starting_offsets: StartingOffsets = "latest"
    max_offsets_per_trigger: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    isolation_level: str = "read_committed"
    group_id: str | None = None
    client: ClientSettings

    @staticmethod
    def parse(options: Mapping[str, OptionValue]) -> SourceOptions:
        """Check the options of a source; OptionsError naming every problem. Talks to no broker."""
        found, client, problems = _read(options, "source")
        _check_source(found, problems)
        _raise_if_any(problems)
        return _build(SourceOptions, {**found, "client": client})


def refuse_speculation(spark_conf: Mapping[str, str]) -> None:
    """OptionsError where Spark may run a second copy of a task: the two would fence each other."""
    if str(spark_conf.get("spark.speculation", "false")).strip().lower() == "true":
        raise OptionsError(
            "spark.speculation is true: a speculative copy of a task takes over its transactional id and "
            "fences the attempt that was about to finish. Nothing was written. Set spark.speculation=false "
            "for this application"
        )


# ---- names that are Spark's or ours, read in any case as Spark does


@dataclass(frozen=True)
class Plain:
    """One option without `kafka.` prefix; `field` is None where it is accepted and has no effect."""

    name: str
    field: str | None
    kind: Kind
    default: str
    meaning: str


def _name_kind(longest: int) -> Kind:
    # Kafka refuses . and .. because topics are directories on the broker.
    pattern = re.compile(rf"(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,{longest}}}")
    legal = BeforeValidator(lambda text: text if pattern.fullmatch(text) else None)
    expected = f"1 to {longest} of the characters A-Z a-z 0-9 . _ - and not . or .. (Kafka's rule for names)"
    return Kind(expected, TypeAdapter(Annotated[str, legal]))


_TOPIC = _name_kind(249)
_POSITIVE = whole_number("a whole number", 1, 2**63 - 1)
_PartitionOffsets = Annotated[
    dict[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=-2)]], Field(min_length=1)
]
_OFFSETS = Kind(
    'earliest, latest, or JSON such as {"topic":{"0":23,"1":-2}} with -2 for earliest and -1 for latest',
    TypeAdapter(Literal["earliest", "latest"] | Json[dict[str, _PartitionOffsets]]),
)
_HEADERS = Kind(
    "true (a headers column is written wherever there is one; drop the column to write none)",
    TypeAdapter(Annotated[str, StringConstraints(pattern="^(?i:true)$")]),
)

PLAIN: dict[Side, tuple[Plain, ...]] = {
    "sink": (
        Plain("pipeline", "pipeline", _name_kind(LONGEST_PIPELINE), "required",
              "stable name of this query's output; transactional ids and the ledger's key are made from it"),
        Plain("topic", "topic", _TOPIC, "the topic column",
              "where all rows go; without it each row names its topic"),
        Plain("ledger.topic", "ledger_topic", _TOPIC, "exactly-once-ledger",
              "compacted topic that records every decision"),
        Plain("offsets.group", "offsets_group", TEXT, "the pipeline",
              "consumer group that gets the source's offsets with each batch"),
        Plain("adopt.checkpoint", "adopt_checkpoint", FLAG, "false",
              "true once, to go on under this pipeline with a new checkpoint"),
        Plain("transaction.margin.ms", "transaction_margin_ms", MILLISECONDS, str(DEFAULT_MARGIN_MS),
              "time that every transaction must have left before the batch is decided"),
        Plain("checkpointLocation", "checkpoint_location", LONG_TEXT, "what the query says",
              "the query's checkpoint; writeStream needs it in any case"),
        Plain("includeHeaders", None, _HEADERS, "true",
              "accepted for migrating jobs: a headers column is always written"),
    ),
    "source": (
        Plain("subscribe", "subscribe", LONG_TEXT, "required", "topics to read, parted by commas"),
        Plain("startingOffsets", "starting_offsets", _OFFSETS, "latest",
              f"where a new query begins: {_OFFSETS.expected}"),
        Plain("maxOffsetsPerTrigger", "max_offsets_per_trigger", _POSITIVE, "no limit",
              "offsets read per micro-batch, over all partitions"),
        Plain("includeHeaders", "include_headers", FLAG, "false", "true adds the headers column"),
        Plain("failOnDataLoss", "fail_on_data_loss", FLAG, "true",
              "true stops the query where offsets it needs are gone"),
    ),
}  # fmt: skip

_RATE = "set the pace with trigger(processingTime=...) and the size with maxOffsetsPerTrigger"
_START = "look the offsets up and give them as startingOffsets JSON"
_END = "a streaming query has no end; trigger(availableNow=True) reads what is there and stops"
_SPLIT = "one task reads one Kafka partition; call repartition() after the read for more tasks"
_ASYNC = "an exactly-once batch needs Spark's offset log written before it, each time; leave it out"
NOT_YET: dict[Side, dict[str, str]] = {
    "sink": {
        "asyncProgressTrackingEnabled": _ASYNC,
        "asyncProgressTrackingCheckpointIntervalMs": _ASYNC,
    },
    "source": {
        "subscribePattern": "list the topics in subscribe",
        "assign": "name the topics in subscribe and filter on the partition column",
        "startingTimestamp": _START,
        "startingOffsetsByTimestamp": _START,
        "startingOffsetsByTimestampStrategy": _START,
        "endingOffsets": _END,
        "endingTimestamp": _END,
        "endingOffsetsByTimestamp": _END,
        "minPartitions": _SPLIT,
        "maxRecordsPerPartition": _SPLIT,
        "minOffsetsPerTrigger": _RATE,
        "maxTriggerDelay": _RATE,
        "groupIdPrefix": "the source joins no consumer group; leave it out",
        "kafkaConsumer.pollTimeoutMs": "kafka.request.timeout.ms bounds the wait for one answer",
        "fetchOffset.numRetries": "the client asks again by itself; leave it out",
        "fetchOffset.retryIntervalMs": "the client asks again by itself; leave it out",
    },
}
"""Options of Spark's Kafka sink and source that are not supported yet, and what to use."""


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
        # Spark writes Python's True as "true"; so does a mapping that never went through Spark.
        text = str(value).lower() if isinstance(value, bool) else str(value)
        is_kafka = name.lower().startswith(KAFKA_PREFIX)
        key, target = (name[len(KAFKA_PREFIX) :], kafka) if is_kafka else (name.lower(), plain)
        if target.get(key, text) != text:
            problems.append(f"{name} is given twice, in different case and with different values: keep one")
        # Blanks around a password may be part of it; around anything else they are a slip, as for Spark.
        target[key] = text if key in SECRET_NAMES else text.strip()
    rows = {row.name.lower(): row for row in PLAIN[side]}
    found: dict[str, Any] = {}
    for key, text in plain.items():
        if key not in rows:
            given = next(name for name in options if name.lower() == key)
            problems.append(_stranger(given, side))
            continue
        row = rows[key]
        word = text.lower() if row.kind is _OFFSETS and not text.startswith("{") else text
        value = row.kind.read(row.name, word, problems)
        if row.field is not None:
            found[row.field] = value
    for row in PLAIN[side]:
        if row.default == "required" and row.name.lower() not in plain:
            problems.append(f"{row.name} is missing: {row.meaning}")
    values, client = translate(kafka, side, problems)
    return {**found, **values}, client, problems


def _stranger(name: str, side: Side) -> str:
    """The line for a name that is no option of this side. Its value is never shown: it may be a secret."""
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


def _check_sink(found: dict[str, Any], problems: list[str]) -> None:
    """What no single option can tell."""
    ledger = found.get("ledger_topic", SinkOptions.model_fields["ledger_topic"].default)
    if found.get("topic") is not None and found["topic"] == ledger:
        problems.append(f"topic and ledger.topic are both {ledger}: the ledger must be a topic of its own")
    margin = found.get("transaction_margin_ms") or DEFAULT_MARGIN_MS
    timeout = found.get("transaction_timeout_ms")
    if margin >= (timeout or LONGEST_TRANSACTION_MS):
        problems.append(
            f"transaction.margin.ms ({margin}) leaves no time: it must be less than "
            f"kafka.transaction.timeout.ms ({timeout or f'not set, at most {LONGEST_TRANSACTION_MS}'})"
        )
    largest, batch = found.get("max_request_bytes"), found.get("batch_bytes")
    if largest is not None and batch is not None and batch > largest:
        problems.append(
            f"kafka.batch.size ({batch}) is more than kafka.max.request.size ({largest}): raise or lower one"
        )
    elif largest is not None and batch is None:
        found["batch_bytes"] = min(largest, DEFAULT_BATCH_BYTES)


def _check_source(found: dict[str, Any], problems: list[str]) -> None:
    """What no single option can tell; turns `subscribe` into its topics."""
    if found.get("subscribe") is None:
        return
    topics = tuple(dict.fromkeys(part.strip() for part in found["subscribe"].split(",") if part.strip()))
    for topic in topics:
        _TOPIC.read("a topic in subscribe", topic, problems)
    if not topics:
        problems.append("subscribe names no topic")
    found["subscribe"] = topics
    starting = found.get("starting_offsets")
    if isinstance(starting, dict) and set(starting) != set(topics):
        problems.append(
            f"startingOffsets names the topics {', '.join(sorted(starting)) or '(none)'}, "
            f"but subscribe names {', '.join(sorted(topics))}: they must be the same"
        )


Options = TypeVar("Options", SinkOptions, SourceOptions)


def _build(model: type[Options], fields: Mapping[str, Any]) -> Options:
    """Build the options from values that were read one by one; pydantic checks their types once more."""
    try:
        return model(**fields)
    except ValidationError as error:
        # Only places and reasons: values may be secrets. Raised outside, so that no log has the original.
        places = [
            f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in error.errors(include_input=False)
        ]
    _raise_if_any(places)
    raise AssertionError("a ValidationError without a place")


def _raise_if_any(problems: list[str]) -> None:
    if problems:
        raise OptionsError("\n".join(["these options cannot be used; nothing was written:", *problems]))


def documented_options(side: Side | None = None) -> list[tuple[str, str, str]]:
    """(name, default, meaning) of every option that has an effect, for the README's tables: the given side's,
    or both sides' one after the other (the names that both have come twice)."""
    if side is None:
        return documented_options("sink") + documented_options("source")
    plain = [(row.name, row.default, row.meaning) for row in PLAIN[side]]
    java = [
        (KAFKA_PREFIX + name, row.default, row.meaning)
        for name, row in ROWS[side].items()
        if isinstance(row, Use)
    ]
    security = [(KAFKA_PREFIX + name, "", meaning) for name, meaning in SECURITY_NAMES.items()]
    return plain + java + security
