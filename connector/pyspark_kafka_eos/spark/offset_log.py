"""Spark's offset log: which source offsets a batch ends at. Spark writes it before the batch runs.

Owns: reading `<checkpoint>/offsets/<batch>` through Spark, its form, and finding Kafka offsets in it.
Does not know: the use of the offsets.
Invariants:
- A file that cannot be read or parsed is an error, never "no offsets".

Two forms. v1 has a line for each source, in the order of the plan. v2
(spark.sql.streaming.offsetLog.formatVersion=2 since Spark 4.2, and queries that name their sources) has
`id:offset` in any order; the id is a source's number or name.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from kafka_core.errors import OptionsError, PipelineConflict
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.model import GroupOffset, LoggedOffsets, strict
from pyspark_kafka_eos.spark.java import java_class
from pyspark_kafka_eos.spark.offset_json import ENTRIES, Position, position_of

log = logging.getLogger(__name__)

_KNOWN_VERSIONS = ("v1", "v2")
_NUMBER = re.compile(r"[0-9]{1,9}")
"""A partition. Other scripts have digits too, which are none of Kafka's."""

_NAMED = re.compile(r"(\w+):(.*)", re.ASCII | re.DOTALL)
"""A source's line in v2. A name has letters, digits and underscores, so no JSON begins this way."""


def read_offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> LoggedOffsets:
    """The sources' offsets at the end of a batch, as Spark wrote them: a text for each source, JSON or "-" for none, in
    v2 behind the source's number or name and a colon.
    """
    path = f"{checkpoint.rstrip('/')}/offsets/{batch_id}"
    try:
        text = read_text(spark, path)
    except Exception as error:
        raise unreadable(path, batch_id, error) from error
    return parse_offsets(text, path)


def read_earlier(spark: SparkSession, checkpoint: str, batch_id: int) -> LoggedOffsets | None:
    """The same of a batch before the one that runs; None where the file cannot be read, as Spark deletes old ones."""
    path = f"{checkpoint.rstrip('/')}/offsets/{batch_id}"
    try:
        text = read_text(spark, path)
    except Exception as error:  # noqa: BLE001 -- its class differs between classic, Connect and file systems
        log.info("the offset log's batch %d is not compared with the ledger: %s", batch_id, type(error).__name__)
        return None
    return parse_offsets(text, path)


def is_newest(spark: SparkSession, checkpoint: str, batch_id: int) -> bool:
    """Whether the offset log has this batch and not the next one, so it is the one that runs: Spark logs a batch before
    it begins, and after the batch before is done.
    """
    logged = f"{checkpoint.rstrip('/')}/offsets"
    return _can_read(spark, f"{logged}/{batch_id}") and not _can_read(spark, f"{logged}/{batch_id + 1}")


def is_passed(spark: SparkSession, checkpoint: str, batch_id: int) -> bool:
    """Whether the offset log has the next batch."""
    return _can_read(spark, f"{checkpoint.rstrip('/')}/offsets/{batch_id + 1}")


def is_committed(spark: SparkSession, checkpoint: str, batch_id: int) -> bool:
    """Whether Spark's commit log has this batch: Spark writes it when the batch is done."""
    return _can_read(spark, f"{checkpoint.rstrip('/')}/commits/{batch_id}")


def _can_read(spark: SparkSession, path: str) -> bool:
    try:
        read_text(spark, path)
    except Exception:  # noqa: BLE001 -- its class differs between classic, Connect and file systems
        return False
    return True


def unreadable(path: str, batch_id: int, error: Exception) -> PipelineConflict:
    """The error for a file of the offset log that cannot be read."""
    return PipelineConflict(
        f"Spark's offset log {path} cannot be read, so the batch's source offsets are unknown; nothing was written; "
        f"give the writer the query's own checkpointLocation, and call it with the number that Spark gave the function "
        f"({type(error).__name__})",
        {"path": path, "batch": batch_id},
    )


def parse_offsets(text: str, path: str) -> LoggedOffsets:
    """The sources' offsets from a file's text, and when Spark planned the batch where some source's do not say which
    rows they are; PipelineConflict, naming `path`, where it has another form.
    """
    # Split as Spark does: Python's splitlines also splits at characters that a source's offset may contain.
    lines = [line.strip() for line in re.split(r"\r?\n|\r", text) if line.strip()]
    form = lines[0][:40] if lines else ""
    if form not in _KNOWN_VERSIONS:
        raise _unknown(path, f"its format is {form!r}, and this connector reads {' and '.join(_KNOWN_VERSIONS)}")
    # The form, the metadata, then a line for each source; every query has at least one source.
    if len(lines) < 3:
        raise _unknown(path, "it ends before the first source's offsets")
    sources = tuple(lines[2:])
    if form == "v2":
        for line in sources:
            if not _NAMED.fullmatch(line):
                raise _unknown(path, f"a source's line in it has no number or name: {line[:80]!r}")
    # Spark's file source logs a number, whose files are in a log of their own: another plan of the batch has other
    # files under it.
    return LoggedOffsets(sources, None if all(map(_tells, sources)) else _planned_ms(lines[1]))


def _tells(line: str) -> bool:
    """Whether equal texts of the source are equal rows: Kafka's offsets, and none."""
    named = _NAMED.fullmatch(line)
    with suppress(PipelineConflict):  # it is raised where the offsets are used
        return (named[2] if named else line) == "-" or bool(_kafka_source(line).offsets)
    return False


def _planned_ms(metadata: str) -> int | None:
    """When Spark planned the batch, by the log's second line; None where it does not say."""
    try:
        return strict.time_ms(strict.load(metadata)["batchTimestampMs"]) or None
    except strict.MALFORMED:
        return None


def _unknown(path: str, why: str) -> PipelineConflict:
    return PipelineConflict(
        f"Spark's offset log {path} has an unknown format: {why}. The batch's source offsets are "
        "unknown, so nothing was written. If a newer Spark wrote it, use a version of this connector that supports that Spark; "
        "if the file was damaged, restore the checkpoint",
        {"path": path},
    )


def kafka_sources(lines: Sequence[str]) -> tuple[Position, ...]:
    """The Kafka sources among the lines, with the offsets they reached (JSON like {"topic": {"0": 23}})."""
    return tuple(source for source in map(_kafka_source, lines) if source.offsets)


def placed_of(source: Position, cluster_id: str = "") -> dict[TopicPartition, GroupOffset]:
    """The offsets of a source, as a consumer group keeps them. `cluster_id`: theirs, where they do not name it
    themselves.
    """
    found: dict[TopicPartition, GroupOffset] = {}
    for where, offset in source.offsets.items():
        log = source.logs.get(where, LogMark())
        found[where] = GroupOffset(offset, log.leader_epoch, log.topic_id, source.cluster_id or cluster_id)
    return found


def lowest(several: Iterable[Mapping[TopicPartition, GroupOffset]]) -> dict[TopicPartition, GroupOffset]:
    """All offsets together. Where two sources read one partition the lower offset counts: both have read up to it."""
    found: dict[TopicPartition, GroupOffset] = {}
    for offsets in several:
        for where, at in offsets.items():
            if where not in found or at.offset < found[where].offset:
                found[where] = at
    return found


def lower_offsets(sources: Iterable[Position]) -> dict[TopicPartition, GroupOffset]:
    """The offsets of all sources together, as `lowest` has them."""
    return lowest(map(placed_of, sources))


def begins_elsewhere(ended: Sequence[str], source_offsets: Sequence[str], before: Sequence[str] | None) -> list[str]:
    """Where a batch begins elsewhere than another query's batch `ended`, in words; of partitions of which both say that
    they are of the same topic. `source_offsets`: of the batch; `before`: of the batch before it in its checkpoint, None
    for the first one.
    """
    sources = kafka_sources(source_offsets)
    # A first batch without a beginning of its own ends where it began.
    begins = lower_offsets(sources if before is None else kafka_sources(before))
    # It is of the cluster of its batch's end.
    begins |= lowest(placed_of(each.began, each.cluster_id) for each in sources if each.began is not None)

    def of(at: GroupOffset) -> tuple[str, str]:
        return at.cluster_id, at.topic_id

    found = []
    for where, end in sorted(lower_offsets(kafka_sources(ended)).items()):
        begin = begins.get(where)
        if begin is None or not end.topic_id or of(begin) != of(end):
            continue
        if begin.offset != end.offset:
            found.append(f"{where} at offset {begin.offset} instead of {end.offset}")
    return found


def _kafka_source(line: str) -> Position:
    named = _NAMED.fullmatch(line)
    text = named[2] if named else line
    nothing = Position({})
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        # Sources may use any form of offset, but broken JSON was cut off or edited.
        if text.startswith("{"):
            raise PipelineConflict(
                "a line of Spark's offset log begins as JSON but does not parse, so the batch's source "
                "offsets are unknown; nothing was written; restore the checkpoint",
                {"line": line[:80]},
            ) from error
        return nothing
    if not isinstance(body, dict):
        return nothing
    for partitions in body.values():
        if not isinstance(partitions, dict):
            return nothing
        for number, offset in partitions.items():
            if not (_NUMBER.fullmatch(number) and type(offset) is int and 0 <= offset <= strict.MOST):
                return nothing
    if any(":" in entry and not entry.startswith(ENTRIES) for entry in body):
        return nothing
    try:
        return position_of(body)
    except OptionsError as error:
        raise PipelineConflict(
            f"a line of Spark's offset log cannot be read, so the batch's source offsets are unknown; nothing was written: {error.message}",
            {"line": line[:80]},
        ) from error


def read_text(spark: SparkSession, path: str) -> str:
    """A file of a checkpoint, read through Spark."""
    context = getattr(spark, "_sc", None)
    if context is None:
        # Spark Connect gives no access to the JVM; the session reads the file on the server.
        return "\n".join(row[0] for row in spark.read.text(path).collect())
    hadoop_path = java_class(context, "org.apache.hadoop.fs.Path")(path)
    files = hadoop_path.getFileSystem(context._jsc.hadoopConfiguration())
    stream = files.open(hadoop_path)
    try:
        return str(java_class(context, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
    finally:
        stream.close()
