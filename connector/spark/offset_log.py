"""Spark's offset log: which source offsets a batch ends at. Written by Spark before the batch runs.

Owns: reading `<checkpoint>/offsets/<batch>` through Spark, its form, and finding Kafka offsets in it.
Does not know: what is done with them.
Invariants: a file that cannot be read or understood is an error, never "no offsets".
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from connector.errors import PipelineConflict
from connector.model import TopicPartition

_KNOWN_VERSIONS = ("v1", "v2")


def read_offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> tuple[str, ...]:
    """The sources' offsets at the end of a batch, as Spark wrote them: one JSON text per source, "-" for none."""
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
    lines = [line for line in text.splitlines() if line.strip()]
    # The form, the metadata, then a line for each source; every query has one.
    if len(lines) < 3 or lines[0].strip() not in _KNOWN_VERSIONS:
        raise PipelineConflict(
            f"Spark's offset log {path} has a form that this connector does not know; nothing was written",
            {"path": path, "first_line": lines[0][:40] if lines else ""},
        )
    return tuple(_offset_text(line) for line in lines[2:])


def kafka_offsets(lines: tuple[str, ...]) -> dict[TopicPartition, int]:
    """The offsets of the Kafka sources among them (the same JSON as Spark's: {"topic": {"0": 23}}). Where two sources
    read one partition the lower offset counts: what is behind it is done by both."""
    found: dict[TopicPartition, int] = {}
    for line in lines:
        for where, offset in _kafka_line(line).items():
            found[where] = min(offset, found.get(where, offset))
    return found


def _kafka_line(line: str) -> dict[TopicPartition, int]:
    try:
        body: Any = json.loads(line)
    except ValueError as error:
        # Sources may have any form of offset, but a text that begins as JSON and is none was cut off or edited.
        if line.startswith("{"):
            raise PipelineConflict(
                "a line of Spark's offset log begins as JSON and is none, so the batch's source offsets are unknown; nothing "
                "was written; restore the checkpoint",
                {"line": line[:80]},
            ) from error
        return {}
    if not isinstance(body, dict):
        return {}
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in body.items():
        if not isinstance(partitions, dict):
            return {}
        for number, offset in partitions.items():
            if not (isinstance(number, str) and number.isdigit() and type(offset) is int and offset >= 0):
                return {}
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def _offset_text(line: str) -> str:
    return line.strip()


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
