"""The Spark job of scope=batch: encode, shuffle finished batches so that each Kafka partition has one writer, send.

Owns: which writer a Kafka partition belongs to, the rows that finished batches travel in, how much of them Spark hands over
at once.
Does not know: options, the ledger, how a try ends.
Invariants: every batch of a Kafka partition reaches the same writer, in the order of its encoding task; a failure of the
second stage is returned, never raised, because Spark would start the task again and a second start may not write.
"""

from __future__ import annotations

import base64
import contextlib
import json
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from connector.commit.encoding import PackedBatch, pack_rows
from connector.commit.sending import SharedPlan, send_packed
from connector.errors import ExactlyOnceError
from connector.model import TopicPartition
from connector.spark.tasks import FINAL, RESULT_SCHEMA, result_of, task_context

PACKED_SCHEMA = "route int, topic string, number int, records int, bytes long, digest long, data binary, dead_letters int, failure string"

_ARROW_SCHEMA = pa.schema(
    [
        pa.field("route", pa.int32()),
        pa.field("topic", pa.string()),
        pa.field("number", pa.int32()),
        pa.field("records", pa.int32()),
        pa.field("bytes", pa.int64()),
        pa.field("digest", pa.int64()),
        pa.field("data", pa.binary()),
        pa.field("dead_letters", pa.int32()),
        pa.field("failure", pa.string()),
    ]
)

HAND_OVER_BYTES = 32 * 1024 * 1024
"""Bytes of finished batches that Spark may put into one Arrow batch. It counts rows otherwise, 10,000 of them, which may be
1 MB each. Double costs each sending task that much more memory, half gains nothing: a request is 1 MB."""

_PIECE_BYTES = 8 * 1024 * 1024
"""Finished batches that an encoding task hands back at once: enough to keep the pipe busy, little beside its open sections."""

_MOST_WRITERS = 64
"""Writers where Spark does not say how many tasks run at once (Connect); more would only wait for each other's cores."""

_BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"


def run_shared(rows: DataFrame, plan: SharedPlan) -> list[Any]:
    """Run a batch whose tasks share one transaction; returns rows of `RESULT_SCHEMA`, one per writer."""
    spark = rows.sparkSession
    at_once = _tasks_at_once(spark)
    writers = max(1, min(at_once, plan.partitions or at_once))
    if at_once == 1:
        # One task runs at a time, so it may as well be one task: nothing to shuffle.
        packed = rows.coalesce(1).mapInArrow(encode_task(plan, (0,)), PACKED_SCHEMA)
    else:
        routes = routes_to(writers)
        packed = rows.mapInArrow(encode_task(plan, routes), PACKED_SCHEMA).repartition(writers, "route")
    with _handed_over_in_pieces(spark):
        return packed.mapInArrow(send_task(plan), RESULT_SCHEMA).collect()


def writer_of(where: TopicPartition, writers: int) -> int:
    """The writer of a Kafka partition: neighbours go to different ones, and every task says the same."""
    return (zlib.crc32(where.topic.encode()) + where.partition) % writers


def routes_to(writers: int) -> tuple[int, ...]:
    """For each writer a number that Spark's hash partitioning sends to the Spark partition of that index.

    `repartition` by a plain index would let hashes collide, and a few writers share a core while others idle.
    """
    routes: dict[int, int] = {}
    number = 0
    while len(routes) < writers:
        routes.setdefault(spark_hash(number) % writers, number)
        number += 1
    return tuple(routes[index] for index in range(writers))


def spark_hash(number: int) -> int:
    """Spark's hash of a non-negative int column (Murmur3, seed 42), signed, as `HashPartitioning` uses it."""
    mask = 0xFFFFFFFF
    mixed = (number * 0xCC9E2D51) & mask
    mixed = (((mixed << 15) | (mixed >> 17)) * 0x1B873593) & mask
    value = 42 ^ mixed
    value = (((value << 13) | (value >> 19)) & mask) * 5 + 0xE6546B64 & mask
    value ^= 4
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & mask
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & mask
    value ^= value >> 16
    return value - 2**32 if value >= 2**31 else value


def encode_task(
    plan: SharedPlan, routes: tuple[int, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for the first `mapInArrow`: rows to finished batches. A row that cannot be written becomes one row that
    says so."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = task_context()
        held: list[PackedBatch] = []
        size = 0
        try:
            for packed in pack_rows(plan.packing, context.partitionId(), batches):
                held.append(packed)
                size += len(packed.data)
                if size >= _PIECE_BYTES:
                    yield _to_arrow(held, routes)
                    held, size = [], 0
        except FINAL as error:
            yield _refusal(error, routes[0])
            return
        if held:
            yield _to_arrow(held, routes)

    return run


def _to_arrow(held: list[PackedBatch], routes: tuple[int, ...]) -> pa.RecordBatch:
    columns = [
        [routes[writer_of(each.where, len(routes))] for each in held],
        [each.where.topic for each in held],
        [each.where.partition for each in held],
        [each.records for each in held],
        [each.record_bytes for each in held],
        # Unsigned in Python, signed in Spark: the same 64 bits.
        [each.digest - 2**64 if each.digest >= 2**63 else each.digest for each in held],
        [each.data for each in held],
        [each.dead_letters for each in held],
        [None] * len(held),
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)


def _refusal(error: ExactlyOnceError, route: int) -> pa.RecordBatch:
    text = base64.b64encode(pickle.dumps(error)).decode()
    row: dict[str, list[Any]] = {
        field.name: [None] for field in _ARROW_SCHEMA
    } | {"route": [route], "failure": [text]}  # fmt: skip
    return pa.RecordBatch.from_pydict(row, _ARROW_SCHEMA)


class _EncodingFailed(Exception):
    """A row of the first stage says that a row cannot be written; its text is the pickled error."""


def send_task(plan: SharedPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for the second `mapInArrow`: sends a writer's batches and yields one row of `RESULT_SCHEMA`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = task_context()
        writer = context.partitionId()
        seal: str | None = None
        failure: str | None = None
        try:
            sent = send_packed(plan, writer, _from_arrow(batches), attempt=context.attemptNumber())
            seal = json.dumps(sent.to_json())
        except _EncodingFailed as refused:
            failure = str(refused)
        except ExactlyOnceError as error:
            failure = base64.b64encode(pickle.dumps(error)).decode()
        yield result_of(writer, seal, failure)

    return run


def _from_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[PackedBatch]:
    for batch in batches:
        columns = [
            batch.column(name).to_pylist()
            for name in ("topic", "number", "records", "bytes", "digest", "dead_letters", "failure")
        ]
        data = batch.column("data")
        for row, (topic, number, records, size, digest, dead_letters, failure) in enumerate(
            zip(*columns, strict=True)
        ):
            if failure is not None:
                raise _EncodingFailed(failure)
            yield PackedBatch(
                TopicPartition(topic, number),
                records,
                size,
                digest % 2**64,
                memoryview(data[row].as_buffer()),
                dead_letters,
            )


def _tasks_at_once(spark: SparkSession) -> int:
    context = getattr(spark, "_sc", None)
    if context is not None:
        return int(context.defaultParallelism)
    return min(_MOST_WRITERS, int(str(spark.conf.get("spark.sql.shuffle.partitions", "8"))))


@contextlib.contextmanager
def _handed_over_in_pieces(spark: SparkSession) -> Iterator[None]:
    """While the job runs Spark bounds its Arrow batches by bytes. The session is the micro-batch's own clone."""
    before: str | None = None
    # Serverless compute does not let it be set; there the limit is on, and 64 MB.
    with contextlib.suppress(Exception):
        before = spark.conf.get(_BYTES_PER_BATCH, None)
        spark.conf.set(_BYTES_PER_BATCH, str(HAND_OVER_BYTES))
    try:
        yield
    finally:
        if before is not None:
            with contextlib.suppress(Exception):
                spark.conf.set(_BYTES_PER_BATCH, before)
