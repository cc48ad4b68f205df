"""The sink's own options: names, defaults, meanings, and the checks of several options together.

Owns: the rows that are Spark's or ours on the sink.
Does not know: Kafka's own names (`kafka`), the order in which a mapping is checked (`parsing`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import StringConstraints, TypeAdapter

from pyspark_kafka_eos.model import LEAST_DEAD_LETTER_BYTES, WriteSettings
from pyspark_kafka_eos.options.kinds import SERVICE_CREDENTIAL, TOPIC, UNPACKED, Use, is_name, name_kind, unused
from pyspark_kafka_eos.options.values import FLAG, LONG_TEXT, MILLISECONDS, Kind, one_of, whole_number

LONGEST_PIPELINE = 200
"""A topic's name is the shortest of the names made from a pipeline's: Kafka allows 249 characters. The rest
is for `.{slot}`."""

LONGEST_TRANSACTION_MS = 900_000
"""Kafka's default cap (transaction.max.timeout.ms, 15 minutes), requested where the user set nothing."""

DEFAULT_MARGIN_MS = 10_000
"""Deciding takes tens of milliseconds; the rest is for a coordinator that moves. At half, a decided slot
times out during a slow failover. At double, the default 15 minutes still lose nothing, but short transactions
are refused."""

DEFAULT_LEDGER_TOPIC = "exactly-once-ledger"


def is_pipeline_name(text: str) -> bool:
    """Whether the option `pipeline` may have this value."""
    return is_name(text, LONGEST_PIPELINE)


_HEADERS = Kind(
    "true (a headers column is written wherever there is one; drop the column to write none)",
    TypeAdapter(Annotated[str, StringConstraints(pattern="^(?i:true)$")]),
)

_GROUP = Kind(
    "a text of at most 255 characters; empty commits no offsets",
    TypeAdapter(Annotated[str, StringConstraints(max_length=255)]),
)
NO_ASYNC = (
    "with it Spark no longer logs each micro-batch's source offsets before the batch runs, but concurrently "
    "and only now and then. After a failure it plans other records under the same batch ids, and it cannot "
    "be determined which of them Kafka has already: no batch could be exactly once"
)
_ASYNC = Kind(
    f"false or left out: {NO_ASYNC}",
    TypeAdapter(Annotated[str, StringConstraints(pattern="^(?i:false)$")]),
)

SINK: dict[str, Use] = {
    "pipeline": Use("pipeline", name_kind(LONGEST_PIPELINE), "required for exactly-once streams",
          "stable name of this query's output; part of its transactional ids and its key in the ledger"),
    "topic": Use("topic", TOPIC, "the topic column",
          "topic of all rows; without it each row names its topic"),
    "ledger.topic": Use("ledger_topic", TOPIC, None,
          "compacted topic with the newest decision of every pipeline"),
    "offsets.group": Use("offsets_group", _GROUP, "the pipeline",
          "consumer group for the source's offsets, committed with each batch if the source is on this cluster; empty: no group"),
    "adopt.checkpoint": Use("adopt_checkpoint", FLAG, None,
          "true, for one start: continue this pipeline with a new checkpoint"),
    "adopt.without.batch": Use("adopt_without_batch", whole_number("a whole number", 0, 2**63 - 1), None,
          "with adopt.checkpoint: the number of the last decided batch, of which records that the broker aborted are given up, or behind which the query begins elsewhere than it ended"),
    "transaction.margin.ms": Use("transaction_margin_ms", MILLISECONDS, None,
          "time that every transaction must have left when the batch is decided; with less the batch is aborted and retried"),
    "checkpointLocation": Use("checkpoint_location", LONG_TEXT, "the query's own",
          "the query's checkpoint; required by writeStream"),
    "includeHeaders": Use(None, _HEADERS, "true",
          "accepted for migrating jobs: a headers column is always written"),
    "asyncProgressTrackingEnabled": Use(None, _ASYNC, "false",
          "accepted as false only: Spark must log each batch's source offsets before the batch runs"),
    "asyncProgressTrackingCheckpointIntervalMs": unused(LONG_TEXT, "progress is never tracked asynchronously"),
    "transaction.scope": Use("scope", one_of("task", "batch"), None,
          "task: one transaction for each task; batch: one for the whole micro-batch, which becomes visible at one instant"),
    "delivery.guarantee": Use("guarantee", one_of("exactly-once", "at-least-once", "none"), None,
          "at-least-once: no transactions, a repeated batch is duplicated; none: sent once, losses are not detected"),
    "on.bad.record": Use("on_bad_record", one_of("fail", "dead-letter"), None,
          "for a row that cannot be written: fail stops the query, dead-letter sends the row to dead.letter.topic"),
    "dead.letter.topic": Use("dead_letter_topic", TOPIC, None,
          "topic for rows that cannot be written, in the same transaction; sets on.bad.record=dead-letter"),
    "max.unpacked.bytes": UNPACKED,
    "batch.rows.differ": Use("rows_differ", one_of("warn", "fail", "ignore"), None,
          "df.write with a batch.id that is committed already, and other rows: warn, fail, or ignore (the rows are not computed then)"),
    "on.expired.record": Use("on_expired", one_of("warn", "refuse"), None,
          "for a row whose timestamp is older than its topic's retention.ms: warn writes it, refuse takes it for a row that cannot be written"),
    "batch.id": Use("batch_id", whole_number("a whole number", 0, 2**63 - 1), None,
          "for df.write: with `pipeline`, makes a rerun idempotent; must increase with every write"),
}  # fmt: skip

SINK_NOT_YET: dict[str, str] = {**SERVICE_CREDENTIAL}
"""Options of Spark's Kafka sink that are not supported -> the alternative."""


Shape = Literal["stream", "batch"]
"""The kind of write: the micro-batches of a query, or one DataFrame with `df.write`."""

_TRANSACTIONS_ONLY = {
    "ledger_topic": ("ledger.topic", "no decision is recorded"),
    "adopt_checkpoint": ("adopt.checkpoint", "no ledger names an earlier checkpoint"),
    "adopt_without_batch": ("adopt.without.batch", "no ledger names a decided batch"),
    "transaction_margin_ms": ("transaction.margin.ms", "there is no transaction to decide"),
    "transaction_timeout_ms": ("kafka.transaction.timeout.ms", "there is no transaction that could time out"),
    "two_phase_commit": ("kafka.transaction.two.phase.commit.enable", "there is no transaction to prepare"),
    "scope": ("transaction.scope", "there is no transaction that could span more or less"),
    "rows_differ": ("batch.rows.differ", "nothing tells what was written before"),
    "batch_id": ("batch.id", "without a ledger there is no record that a batch was written before"),
}
"""Field -> its option, and the reason why it has no meaning without transactions."""

_STREAM_ONLY = {
    "checkpoint_location": ("checkpointLocation", "a batch write has no checkpoint"),
}


def check_sink(found: dict[str, Any], problems: list[str], shape: Shape = "stream") -> None:
    """Check several options together."""
    _check_shape(found, problems, shape)
    _check_guarantee(found, problems, shape)
    _check_dead_letters(found, problems)
    _take_level(found)
    _check_numbers(found, problems)
    if "adopt_without_batch" in found and not found.get("adopt_checkpoint"):
        problems.append(
            "adopt.without.batch needs adopt.checkpoint=true: it names a batch of the query that had the pipeline before"
        )


def _check_shape(found: dict[str, Any], problems: list[str], shape: Shape) -> None:
    if shape == "stream":
        if found.get("batch_id") is not None:
            problems.append(
                "batch.id belongs to a batch write (df.write): a stream has Spark's own batch ids, leave it out"
            )
        if "rows_differ" in found:
            problems.append("batch.rows.differ belongs to a batch write (df.write): leave it out")
        return
    problems.extend(
        f"{name} has no meaning here: {why}" for field, (name, why) in _STREAM_ONLY.items() if field in found
    )
    if found.get("offsets_group") is not None:
        problems.append("offsets.group has no meaning here: a batch write has no source offsets to commit")


def _check_guarantee(found: dict[str, Any], problems: list[str], shape: Shape) -> None:
    guarantee = found.get("guarantee", "exactly-once")
    if guarantee == "exactly-once":
        if "pipeline" not in found and shape == "stream":
            problems.append(
                "pipeline is missing: set it to a stable name of this query's output, under which it goes on after a restart"
            )
        elif "pipeline" not in found and "batch_id" in found:
            problems.append("batch.id needs pipeline: the stable name under which the ids grow")
        return
    problems.extend(
        f"{name} has no meaning with delivery.guarantee={guarantee}: {why}; leave it out"
        for field, (name, why) in _TRANSACTIONS_ONLY.items()
        if field in found
    )


def _take_level(found: dict[str, Any]) -> None:
    """The level of the codec in use; those of other codecs have no effect, as in the Java client."""
    codec = found.get("compression", WriteSettings.compression)
    for other in ("gzip", "lz4", "zstd"):
        level = found.pop(f"{other}_level", None)
        if level is None:
            continue
        if other != codec:
            why = f"kafka.compression.{other}.level (kafka.compression.type is {codec})"
            found["ignored"] = (*found.get("ignored", ()), why)
        elif level != -1 or codec != "gzip":
            found["compression_level"] = level


def _check_dead_letters(found: dict[str, Any], problems: list[str]) -> None:
    wanted, where = found.get("on_bad_record"), found.get("dead_letter_topic")
    if where is None:
        if wanted == "dead-letter":
            problems.append("on.bad.record=dead-letter needs dead.letter.topic: the topic for those rows")
        return
    if wanted == "fail":
        problems.append("on.bad.record=fail contradicts dead.letter.topic: give one of them")
    found["on_bad_record"] = "dead-letter"
    if where == found.get("topic"):
        problems.append(f"dead.letter.topic and topic are both {where}: rows refused there need another topic")
    if where == found.get("ledger_topic", DEFAULT_LEDGER_TOPIC):
        problems.append(f"dead.letter.topic and ledger.topic are both {where}: the ledger must be a topic of its own")
    largest = found.get("max_request_bytes")
    if largest is not None and largest < LEAST_DEAD_LETTER_BYTES:
        problems.append(
            f"kafka.max.request.size ({largest}) is too small for dead letters: at least {LEAST_DEAD_LETTER_BYTES}"
        )


def _check_numbers(found: dict[str, Any], problems: list[str]) -> None:
    ledger = found.get("ledger_topic", DEFAULT_LEDGER_TOPIC)
    if found.get("topic") is not None and found["topic"] == ledger:
        problems.append(f"topic and ledger.topic are both {ledger}: the ledger must be a topic of its own")
    margin = found.get("transaction_margin_ms") or DEFAULT_MARGIN_MS
    timeout = found.get("transaction_timeout_ms")
    if margin >= (timeout or LONGEST_TRANSACTION_MS):
        problems.append(
            f"kafka.transaction.timeout.ms ({timeout}) leaves no time: it must be more than transaction.margin.ms ({margin})"
            if timeout is not None
            else f"transaction.margin.ms ({margin}) leaves no time: it must be less than kafka.transaction.timeout.ms "
            f"(not set, at most {LONGEST_TRANSACTION_MS})"
        )
    largest, batch = found.get("max_request_bytes"), found.get("batch_bytes")
    if largest is not None and batch is not None and batch > largest:
        problems.append(
            f"kafka.batch.size ({batch}) is more than kafka.max.request.size ({largest}): raise or lower one"
        )
    elif largest is not None and batch is None:
        found["batch_bytes"] = min(largest, WriteSettings.batch_bytes)
