"""The dead letters of rows that cannot be written to their topic.

Owns: the form of a dead letter, its own sections.
Does not know: which rows are bad (`records.judging`), how anything is sent, transactions.
Invariants:
- The same bad rows give the same dead letters, byte for byte, whenever they are made (a replay is compared by
  digest). So nothing of the clock or of the cluster's settings is in them.
- No row is too large to become a dead letter: what does not fit is cut, and a header states the cut.

A dead letter has the row's key and value as they were, its headers, and behind these `kafka_eos.error.*`, all values
UTF-8 text: class, message, topic, partition and timestamp_ms (as the row had them, left out where it had none),
size_bytes (of a record that is too large), pipeline, batch; and where something had to be cut: cut (what), key_bytes
and value_bytes (how long these were). Its own time is when it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_core import runtime
from kafka_core.errors import OptionsError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.model import LEAST_DEAD_LETTER_BYTES, RoutedTopic
from pyspark_kafka_eos.records import (
    BATCH_OVERHEAD_BYTES,
    HEADERS_TYPE,
    Partitioner,
    RecordColumns,
    Section,
    SectionWriter,
    topic_seed,
)
from pyspark_kafka_eos.records.judging import TOO_LARGE, WHY, Reasons, times_ms

PREFIX = "kafka_eos.error."

SECTIONS_BYTES = 8 * 1024 * 1024
"""Memory for dead letters on their way, over all partitions: an eighth of what good rows have. Dead letters
are few; many of them are a fault that more speed would not cure."""

_SMALLEST_SECTION_BYTES = 16 * 1024

_CHUNK_ROWS = 500
"""Bad rows that are held as Python objects at once. Only their headers are; 500 rows of 10 headers are about 5 MB."""

_LONGEST_NAME = 249
"""Characters of a row's topic that are kept: no real topic has more."""

_RECORD_OVERHEAD_BYTES = 64
"""A record's own lengths, deltas and attributes are at most 5 + 1 + 10 + 5 + 3 x 5 bytes."""

_HEADER_OVERHEAD_BYTES = 10
"""The lengths of a header's key and value, at most 5 bytes each."""

_CUT_HEADERS_BYTES = 200
"""Room for the headers that state what was cut."""


def require_topic(cluster: Cluster, topic: str | None) -> None:
    """Checked before anything is written: UnknownTopic where dead.letter.topic does not exist, OptionsError
    where its limit for a record is too low, or it is compacted."""
    if topic is None:
        return
    cluster.topic(topic, refresh=True)
    rules = admin.topic_rules(cluster, topic)
    limit = rules.max_batch_bytes
    if rules.needs_keys:
        raise OptionsError(
            f"dead.letter.topic {topic!r} is compacted (cleanup.policy): it takes no letter without a key, and keeps one of each key; "
            "nothing was written; set cleanup.policy to delete, or name another topic",
            {"topic": topic, "setting": "cleanup.policy"},
        )
    if limit < LEAST_DEAD_LETTER_BYTES:
        raise OptionsError(
            f"dead.letter.topic {topic!r} has max.message.bytes={limit}, too little for a row and the reason why it "
            f"is there; nothing was written; raise max.message.bytes to {LEAST_DEAD_LETTER_BYTES} or more",
            {"topic": topic, "limit_bytes": limit},
        )


@dataclass(frozen=True)
class Origin:
    """Where dead letters come from: the same for all dead letters of a slot."""

    pipeline: str
    batch_id: int
    slot: int
    topic: str | None


class DeadLetters:
    """The dead letters of one slot: rows in, sections for the topic `routed` out."""

    def __init__(
        self, routed: RoutedTopic, limit_bytes: int, batch_bytes: int, sticky_bytes: int, origin: Origin
    ) -> None:
        topic, partitions = routed.name, routed.partitions
        self.topic = topic
        self.routed = routed
        self.count = 0
        self._origin = origin
        share = max(_SMALLEST_SECTION_BYTES, SECTIONS_BYTES // partitions)
        usable = min(limit_bytes, batch_bytes, share) - BATCH_OVERHEAD_BYTES
        alone = limit_bytes - BATCH_OVERHEAD_BYTES
        self._room_bytes = alone - _RECORD_OVERHEAD_BYTES
        self._partitioner = Partitioner([partitions], sticky_start=origin.slot, sticky_bytes=sticky_bytes)
        self._sections = SectionWriter(
            partitions,
            max(1, usable),
            explicit_timestamps=False,
            digest_seeds=np.full(partitions, topic_seed(topic), dtype=np.uint64),
            hard_limit_bytes=alone,
        )

    def where(self, section: Section) -> TopicPartition:
        """Where a section goes."""
        return TopicPartition(self.topic, section.partition)

    def bury(
        self, rows: pa.RecordBatch, reasons: Reasons, sizes: npt.NDArray[np.int64] | None = None
    ) -> Iterator[Section]:
        """Make dead letters of these rows, all of which are bad; yields sections as they get full. `sizes`:
        bytes of each row's record, where size is the reason."""
        for start in range(0, rows.num_rows, _CHUNK_ROWS):
            chunk = rows.slice(start, _CHUNK_ROWS)
            columns = self._columns(
                chunk,
                reasons[start : start + _CHUNK_ROWS],
                None if sizes is None else sizes[start : start + _CHUNK_ROWS],
            )
            self.count += chunk.num_rows
            targets = self._partitioner.assign(columns, 0, None)
            yield from self._sections.append(columns, targets, int(runtime.time() * 1000))

    def flush(self) -> Iterator[Section]:
        """What is left."""
        return self._sections.flush()

    def _columns(self, rows: pa.RecordBatch, reasons: Reasons, sizes: npt.NDArray[np.int64] | None) -> RecordColumns:
        key, value = _binary(rows, "key"), _binary(rows, "value")
        key_bytes = _lengths(key)
        value_bytes = _lengths(value)
        headers: list[list[dict[str, Any]]] = []
        cut: dict[int, tuple[int, int]] = {}
        for row in range(rows.num_rows):
            why = self._why(rows, row, int(reasons[row]), None if sizes is None else int(sizes[row]))
            own = _headers_of(rows, row)
            left = self._room_bytes - _size_of(why) - _CUT_HEADERS_BYTES
            if _size_of(own) + key_bytes[row] + value_bytes[row] > left:
                own, at = _cut(own, int(key_bytes[row]), int(value_bytes[row]), left, why)
                cut[row] = at
            headers.append([*own, *why])
        return RecordColumns(
            key=_shortened(key, {row: at[0] for row, at in cut.items()}),
            value=_shortened(value, {row: at[1] for row, at in cut.items()}),
            headers=pa.array(headers, HEADERS_TYPE),
            timestamp_ms=None,
            num_rows=rows.num_rows,
        )

    def _why(self, rows: pa.RecordBatch, row: int, reason: int, size: int | None) -> list[dict[str, Any]]:
        error, message = WHY[reason]
        names = rows.schema.names
        topic = self._origin.topic or rows.column("topic")[row].as_py()
        partition = rows.column("partition")[row].as_py() if "partition" in names else None
        stamp = None
        if "timestamp" in names:
            column = rows.column("timestamp").slice(row, 1)
            stamp = None if column.null_count else int(times_ms(column)[0])
        facts = {
            "class": error.__name__,
            "message": message,
            "topic": None if topic is None else topic[:_LONGEST_NAME],
            "partition": partition,
            "timestamp_ms": stamp,
            "size_bytes": size if reason == TOO_LARGE else None,
            "pipeline": self._origin.pipeline or None,
            "batch": self._origin.batch_id,
            # Not the slot: a replay may have the row in another one, and its dead letter has to be the same.
        }
        return [_header(name, fact) for name, fact in facts.items() if fact is not None]


def is_dead_letter(headers: Sequence[dict[str, Any]] | None, pipeline: str, batch_id: int) -> bool:
    """Whether a record with these headers is a dead letter of this batch of the pipeline. One that was written on as a
    row, with its headers, is none, unless it was refused again.
    """
    # The last of a name counts: a row that was a dead letter once keeps its headers in front of the new ones.
    said = {each["key"]: each["value"] for each in headers or ()}
    wanted = {"pipeline": pipeline, "batch": str(batch_id)}
    return all(said.get(PREFIX + name) == value.encode() for name, value in wanted.items())


def _header(name: str, fact: object) -> dict[str, Any]:
    return {"key": PREFIX + name, "value": str(fact).encode()}


def _cut(
    own: list[dict[str, Any]], key_bytes: int, value_bytes: int, left: int, why: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], tuple[int, int]]:
    """(the row's headers that stay, (bytes of its key, of its value that stay)). Adds to `why` what was cut.

    Headers are dropped as a whole where they take more than half of the room. The key is then cut to half of
    the remaining room, and the value gets the rest: the key is the first means to identify a record.
    """
    parts: list[str] = []
    if _size_of(own) > left // 2:
        own = []
        parts.append("headers")
    left -= _size_of(own)
    key_stays = min(key_bytes, left // 2)
    value_stays = min(value_bytes, left - key_stays)
    parts += ["key"] * (key_stays < key_bytes) + ["value"] * (value_stays < value_bytes)
    why.append(_header("cut", ",".join(parts)))
    why.append(_header("key_bytes", key_bytes))
    why.append(_header("value_bytes", value_bytes))
    return own, (key_stays, value_stays)


def _headers_of(rows: pa.RecordBatch, row: int) -> list[dict[str, Any]]:
    """The row's headers. One that is null is left out; one without a key has an empty key, which Kafka allows."""
    own = rows.column("headers")[row].as_py() if "headers" in rows.schema.names else None
    return [{"key": each["key"] or "", "value": each["value"]} for each in own or () if each is not None]


def _size_of(headers: Sequence[dict[str, Any]]) -> int:
    return sum(_HEADER_OVERHEAD_BYTES + len(each["key"].encode()) + len(each["value"] or b"") for each in headers)


def _binary(rows: pa.RecordBatch, name: str) -> pa.Array:
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.binary())
    return rows.column(name).cast(pa.binary())


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = (
        pc.fill_null(pc.binary_length(column), 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    )
    return lengths


def _shortened(column: pa.Array, stays: dict[int, int]) -> pa.Array:
    """The column with these rows cut to the given numbers of bytes."""
    if not stays:
        return column
    pieces: list[pa.Array] = []
    done = 0
    for row in sorted(stays):
        whole = column[row]
        pieces.append(column.slice(done, row - done))
        # Through a buffer: the whole value is never copied.
        data = None if not whole.is_valid else whole.as_buffer()[: stays[row]].to_pybytes()
        pieces.append(pa.array([data], pa.binary()))
        done = row + 1
    pieces.append(column.slice(done))
    return pa.concat_arrays(pieces)


__all__ = ["PREFIX", "DeadLetters", "Origin", "is_dead_letter", "require_topic"]
