"""The user's options of the sink and of the source: names, defaults, checks, one message for all problems.

Owns: Spark's and our own names, their defaults and meanings; the order in which a mapping is checked.
Does not know: the cluster's limits (a transaction timeout above the broker's cap is found at the query's
start), Spark itself, the rows.
Invariants:
- No option is dropped silently: one without effect is in the options' `ignored`.
- All problems of one mapping are in one `OptionsError`, one per line.
- No message and no repr contains a secret.
- The options pickle, because executors receive them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from kafka_core.errors import OptionsError
from kafka_core.similar import did_you_mean
from kafka_core.values import DEFAULT_UNPACKED_BYTES
from pyspark_kafka_eos.model import ClientSettings, WriteSettings
from pyspark_kafka_eos.model.handed_over import HandedOver
from pyspark_kafka_eos.options.given import named, text_of
from pyspark_kafka_eos.options.kafka import ALL_NAMES, ROWS, Ignore, Side
from pyspark_kafka_eos.options.kinds import Use
from pyspark_kafka_eos.options.ledger import EVERY, LEDGER, LedgerOptions
from pyspark_kafka_eos.options.login.security import SECRET_NAMES, SECURITY_NAMES
from pyspark_kafka_eos.options.sink import (
    DEFAULT_LEDGER_TOPIC,
    DEFAULT_MARGIN_MS,
    LONGEST_TRANSACTION_MS,
    NO_ASYNC,
    SINK,
    SINK_NOT_YET,
    Shape,
    check_sink,
)
from pyspark_kafka_eos.options.source import (
    DEFAULT_TRIGGER_DELAY_MS,
    OFFSETS,
    SOURCE,
    SOURCE_NOT_YET,
    STARTING_OFFSETS,
    Bound,
    Mode,
    Start,
    Times,
    check_source,
)
from pyspark_kafka_eos.options.translating import reason_to_ignore, translate

__all__ = ["LONGEST_TRANSACTION_MS", "NOT_YET", "PLAIN", "OptionValue", "SinkOptions", "SourceOptions"]

OptionValue = str | int | bool | float

KAFKA_PREFIX = "kafka."


STICKY_BATCHES = 16
"""With scope=batch, how many record batches of rows without a key a task writes to one partition before it needs the
next one's turn (16 MB by default). Tasks begin at different partitions, so they seldom meet. With one, every batch is
for another partition, and most wait for a turn; half passes turns on twice as often; with double two tasks fill their
partitions unevenly by up to 32 MB.
"""


@dataclass(frozen=True, kw_only=True)
class SinkOptions(WriteSettings):
    """The options of a sink, checked. `transaction_timeout_ms` is None where the user set none; the broker's
    cap applies then, at most 15 minutes. `pipeline` and `offsets_group` are empty only where the guarantee
    needs none and none was given. `batch_id`: of a batch write; `rows_differ`: what happens where its rows differ from
    those committed under that id. `adopt_without_batch`: of the decision that is given up. `ephemeral`: the pipeline's
    name was generated for one write, and no later run uses it. `ignored`: the names that have no effect, each with the
    reason."""

    ledger_topic: str = DEFAULT_LEDGER_TOPIC
    offsets_group: str = ""
    adopt_checkpoint: bool = False
    adopt_without_batch: int | None = None
    checkpoint_location: str | None = None
    transaction_timeout_ms: int | None = None
    transaction_margin_ms: int = DEFAULT_MARGIN_MS
    two_phase_commit: bool = True
    max_block_ms: int = 60_000
    scope: str = "task"
    on_bad_record: str = "fail"
    batch_id: int | None = None
    rows_differ: str = "warn"
    ephemeral: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def sticky_bytes(self) -> int:
        """How many bytes of rows without a key go to one partition before the next one's. A decision records it,
        because a repair has to put the same rows into the same partitions.
        """
        return self.batch_bytes * (STICKY_BATCHES if self.scope == "batch" else 1)

    @staticmethod
    def parse(options: Mapping[str, OptionValue], shape: Shape = "stream") -> SinkOptions:
        """Check the options of a sink; OptionsError naming every problem. Talks to no broker."""
        found, client, problems = read(options, "sink")
        check_sink(found, problems, shape)
        found.setdefault("pipeline", "")
        found.setdefault("offsets_group", found["pipeline"])
        _raise_if_any(problems)
        return SinkOptions(**found, client=client, delivery_timeout_ms=client.delivery_timeout_ms)


@dataclass(frozen=True, kw_only=True)
class SourceOptions(HandedOver):
    """The options of `format("kafka_eos")` as a source, checked. Exactly one of `subscribe`,
    `subscribe_pattern` (Java's syntax) and `assign` (topic -> partitions) is set. `starting_offsets` and
    `ending_offsets` map topic to partition to offset where the user gave JSON (-2 earliest, -1 latest); the
    former is "group" for the offsets that `group_id` has committed, with `offset_reset` where it has none;
    `starting_times` and `ending_times`, milliseconds, override them. The beginning counts for a query's first
    start only. `adopt_cluster`: the id of the cluster that a checkpoint's offsets may be of. `max_unpacked_bytes`: of
    one batch of records. `rack` and `rack_variable`: where an executor runs. `ignored`: the names that have no effect,
    each with the reason.
    """

    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting_offsets: Start = "latest"
    starting_entries: tuple[str, ...] = ()
    starting_times: Times | None = None
    fail_on_no_match: bool = True
    ending_offsets: Bound = "latest"
    ending_entries: tuple[str, ...] = ()
    ending_times: Times | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    adopt_cluster: str | None = None
    max_unpacked_bytes: int = DEFAULT_UNPACKED_BYTES
    isolation_level: str = "read_committed"
    group_id: str | None = None
    offset_reset: str = "none"
    rack: str = ""
    rack_variable: str | None = None
    ignored: tuple[str, ...] = ()
    client: ClientSettings

    @staticmethod
    def parse(options: Mapping[str, OptionValue], mode: Mode | None = None) -> SourceOptions:
        """Check the options of a source; OptionsError naming every problem. Talks to no broker.

        `mode`: whether a stream or a batch is read; without it only the rules that hold for both are checked.
        """
        found, client, problems = read(options, "source")
        check_source(found, problems, mode)
        _raise_if_any(problems)
        return SourceOptions(**found, client=client)


def parse_ledger(options: Mapping[str, OptionValue]) -> LedgerOptions:
    """Check the options of a read of the ledger; OptionsError naming every problem. Talks to no broker."""
    found, client, problems = read(options, "ledger")
    _raise_if_any(problems)
    pipeline = found.pop("ledger")
    topic = found.get("ledger_topic", DEFAULT_LEDGER_TOPIC)
    return LedgerOptions(client, None if pipeline == EVERY else pipeline, topic, found["ignored"])


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


PLAIN: dict[Side, dict[str, Use]] = {"sink": SINK, "source": SOURCE, "ledger": LEDGER}
NOT_YET: dict[Side, dict[str, str]] = {"sink": SINK_NOT_YET, "source": SOURCE_NOT_YET, "ledger": {}}
"""Options of Spark's Kafka sink and source that are not supported -> the alternative."""


def read(options: Mapping[str, OptionValue | None], side: Side) -> tuple[dict[str, Any], ClientSettings, list[str]]:
    """Sort the options by owner and read each value: fields the user set, client settings, problems. The
    options together are checked by `check`."""
    problems: list[str] = []
    kafka: dict[str, str] = {}
    plain: dict[str, str] = {}
    for name, value in named(options).items():
        if (text := text_of(name, value, problems)) is None:
            continue
        is_kafka = name.lower().startswith(KAFKA_PREFIX)
        key, target = (name[len(KAFKA_PREFIX) :], kafka) if is_kafka else (name.lower(), plain)
        if target.get(key, text) != text:
            problems.append(f"{name} is given twice, in different case and with different values: keep one")
        # Blanks around a password may be part of it; around anything else they are a mistake, as in Spark.
        target[key] = text if key in SECRET_NAMES else text.strip()
    rows = {name.lower(): (name, row) for name, row in PLAIN[side].items()}
    found: dict[str, Any] = {}
    for key, text in plain.items():
        if key not in rows:
            given = next(name for name in options if name.lower() == key)
            problems.append(_stranger(given, side))
            continue
        name, row = rows[key]
        word = text.lower() if row.kind in (OFFSETS, STARTING_OFFSETS) and not text.startswith("{") else text
        value = row.kind.read(name, word, problems)
        if row.field is not None:
            found[row.field] = value
    for name, row in PLAIN[side].items():
        if row.default == "required" and name.lower() not in plain:
            problems.append(f"{name} is missing: {row.meaning}")
    values, client = translate(kafka, side, problems)
    return {**found, **values, "ignored": tuple(_without_effect(plain, kafka, side))}, client, problems


def check(found: dict[str, Any], problems: list[str], side: Side) -> None:
    """Check the fields of `read` together, by the rules of every shape of the query."""
    if side == "sink":
        check_sink(found, problems)
    elif side == "source":
        check_source(found, problems, None)


def _without_effect(plain: Mapping[str, str], kafka: Mapping[str, str], side: Side) -> Iterator[str]:
    """The given names that are accepted and have no effect, in order, each with the reason."""
    for name, row in sorted(PLAIN[side].items(), key=lambda each: each[0].lower()):
        if row.without_effect and name.lower() in plain:
            yield f"{name} ({row.without_effect})"
    for name in sorted(kafka):
        why = reason_to_ignore(name, kafka[name], side)
        if why:
            yield f"{KAFKA_PREFIX}{name} ({why})"


def _stranger(name: str, side: Side) -> str:
    """The line for a name that is not an option of this side. Never shows its value: it may be a secret."""
    key = name.lower()
    if side == "ledger" and key in {known.lower() for known in (*SINK, *SOURCE)}:
        return (
            f"{name} has no meaning with the option ledger, which reads decisions and no records: leave one of them out"
        )
    other: Side = "source" if side == "sink" else "sink"
    for known, instead in NOT_YET[side].items():
        if known.lower() == key:
            return f"{known} is not supported yet: {instead}"
    elsewhere = {known.lower() for known in (*PLAIN[other], *NOT_YET[other])}
    if key in elsewhere:
        return f"{name} is an option of the {other}, not of the {side}"
    if key in ALL_NAMES:
        return f"{name} is not a known option: did you mean {KAFKA_PREFIX}{key}?"
    names = [*PLAIN[side], *NOT_YET[side], *(KAFKA_PREFIX + java for java in ALL_NAMES)]
    hint = (
        did_you_mean(name, names, joint=": ") or f": the {side} has {', '.join(PLAIN[side])} and Kafka's own as kafka.*"
    )
    return f"{name} is not a known option{hint}"


def _raise_if_any(problems: list[str]) -> None:
    if problems:
        count = "an option" if len(problems) == 1 else f"{len(problems)} options"
        raise OptionsError.listing(f"{count} cannot be used, and nothing was read or written", problems)


def documented_options(side: Side | None = None) -> list[tuple[str, str, str]]:
    """(name, default, meaning) of every option that has an effect, for the tables of docs/options.md: the given side's,
    or those of all sides one after the other (shared names occur several times)."""
    if side is None:
        return documented_options("sink") + documented_options("source") + documented_options("ledger")
    rows: dict[str, object] = {
        **PLAIN[side],
        **{KAFKA_PREFIX + name: row for name, row in ROWS[side].items()},
    }
    used = [
        (name, _shown(row, side), row.meaning)
        for name, row in rows.items()
        if isinstance(row, Use) and row.without_effect is None
    ]
    security = [(KAFKA_PREFIX + name, "", meaning) for name, meaning in SECURITY_NAMES.items()]
    return used + security


def documented_without_effect() -> list[tuple[str, str]]:
    """(name, reason) of every option that is accepted and has no effect, of both sides, in order."""
    plain = {name: row.without_effect for rows in PLAIN.values() for name, row in rows.items() if row.without_effect}
    java = {
        KAFKA_PREFIX + name: row.why
        for side in ROWS
        for name, row in ROWS[side].items()
        if isinstance(row, Ignore) and not any(isinstance(ROWS[each].get(name), Use) for each in ROWS)
    }
    return sorted({**plain, **java}.items())


def _shown(row: Use, side: Side) -> str:
    """The default as a user would write it."""
    if row.default is not None:
        return row.default
    assert row.field is not None, "an option without a field has no default of its own"
    told = SourceOptions if side == "source" else SinkOptions
    value = {each.name: each.default for each in (*fields(ClientSettings), *fields(told))}[row.field]
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
