"""Spark's offset log: which source offsets a batch ends at. Written by Spark before the batch runs.

Owns: reading `<checkpoint>/offsets/<batch>` through Spark, its form, and finding Kafka offsets in it.
Does not know: what is done with them.
Invariants: a file that cannot be read or understood is an error, never "no offsets".

Two forms. v1 has a line for each source, in the order of the plan. v2 (spark.sql.streaming.offsetLog.formatVersion=2 since
Spark 4.2, and queries that name their sources) has `id:offset` in any order; the id is a source's number or its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from connector.errors import PipelineConflict
from connector.model import TopicPartition

_KNOWN_VERSIONS = ("v1", "v2")
_NAMED = re.compile(r"(\w+):(.*)", re.ASCII | re.DOTALL)
"""A source's line of v2. Spark allows letters, digits and underscores in a name, so no JSON begins like this."""

CLUSTER = "cluster:"
"""Before a cluster's id: the entry by which `format("kafka_eos")` says in its offsets whose topics they are. A topic's name has
no colon, and the entry names no partition, so that Spark's own Kafka source and older versions read nothing there."""


@dataclass(frozen=True)
class KafkaSource:
    """A Kafka source's offsets at the end of a batch; `cluster_id` is empty where the source does not say it."""

    cluster_id: str
    offsets: dict[TopicPartition, int]


def read_offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> tuple[str, ...]:
    """The sources' offsets at the end of a batch, as Spark wrote them: a text for each source, JSON or "-" for none, in v2
    behind the source's number or name and a colon."""
    path = f"{checkpoint.rstrip('/')}/offsets/{batch_id}"
    try:
        text = _read_text(spark, path)
    except Exception as error:
        raise unreadable(path, batch_id, error) from error
    return parse_offsets(text, path)


def unreadable(path: str, batch_id: int, error: Exception) -> PipelineConflict:
    """What is raised where a file of the offset log cannot be read."""
    return PipelineConflict(
        f"Spark's offset log {path} cannot be read, so the batch's source offsets are unknown; nothing was written; "
        f"give the writer the query's own checkpointLocation ({type(error).__name__})",
        {"path": path, "batch": batch_id},
    )


def parse_offsets(text: str, path: str) -> tuple[str, ...]:
    """The same from a file's text; PipelineConflict, naming `path`, where it has another form."""
    # As Spark divides it: a source's offset may hold what Python's splitlines takes for the end of a line.
    lines = [line.strip() for line in re.split(r"\r?\n|\r", text) if line.strip()]
    form = lines[0][:40] if lines else ""
    if form not in _KNOWN_VERSIONS:
        raise _unknown(
            path, f"its format is {form!r}, and this connector reads {' and '.join(_KNOWN_VERSIONS)}"
        )
    # The form, the metadata, then a line for each source; every query has one.
    if len(lines) < 3:
        raise _unknown(path, "it ends before the first source's offsets")
    sources = tuple(lines[2:])
    if form == "v2":
        for line in sources:
            if not _NAMED.fullmatch(line):
                raise _unknown(path, f"a source's line in it has no number or name: {line[:80]!r}")
    return sources


def _unknown(path: str, why: str) -> PipelineConflict:
    return PipelineConflict(
        f"Spark's offset log {path} has an unknown format: {why}. The batch's source offsets are "
        "unknown, so nothing was written. If a newer Spark wrote it, use a version of this connector that supports that Spark; "
        "if the file was damaged, restore the checkpoint",
        {"path": path},
    )


def kafka_sources(lines: Sequence[str]) -> tuple[KafkaSource, ...]:
    """The Kafka sources among the lines, with the offsets that they have come to (Spark's JSON, {"topic": {"0": 23}})."""
    return tuple(source for source in map(_kafka_source, lines) if source.offsets)


def lower_offsets(sources: Sequence[KafkaSource]) -> dict[TopicPartition, int]:
    """The offsets of all of them together. Where two read one partition the lower offset counts: what is behind it is
    done by both."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        for where, offset in source.offsets.items():
            found[where] = min(offset, found.get(where, offset))
    return found


def _kafka_source(line: str) -> KafkaSource:
    named = _NAMED.fullmatch(line)
    text = named[2] if named else line
    nothing = KafkaSource("", {})
    try:
        body: Any = json.loads(text)
    except ValueError as error:
        # Sources may have any form of offset, but a text that begins as JSON and is none was cut off or edited.
        if text.startswith("{"):
            raise PipelineConflict(
                "a line of Spark's offset log begins as JSON and is none, so the batch's source offsets are unknown; nothing "
                "was written; restore the checkpoint",
                {"line": line[:80]},
            ) from error
        return nothing
    if not isinstance(body, dict):
        return nothing
    cluster_id = ""
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in body.items():
        if not isinstance(partitions, dict):
            return nothing
        if topic.startswith(CLUSTER):
            cluster_id = topic.removeprefix(CLUSTER)
        for number, offset in partitions.items():
            if not (isinstance(number, str) and number.isdigit() and type(offset) is int and offset >= 0):
                return nothing
            offsets[TopicPartition(topic, int(number))] = offset
    return KafkaSource(cluster_id, offsets)


def _read_text(spark: SparkSession, path: str) -> str:
    context = getattr(spark, "_sc", None)
    if context is None:
        # Spark Connect has no JVM to ask; the session reads the file where the server can.
        return "\n".join(row[0] for row in spark.read.text(path).collect())
    jvm: Any = context._jvm
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    files = hadoop_path.getFileSystem(context._jsc.hadoopConfiguration())
    stream = files.open(hadoop_path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
