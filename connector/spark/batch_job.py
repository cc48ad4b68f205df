"""The Spark job of scope=batch: encode, shuffle finished batches so that each Kafka partition has one writer, send.

Owns: which writer a Kafka partition belongs to, the rows that finished batches travel in, how much of them Spark hands over
at once.
Does not know: options, the ledger, how a try ends.
Invariants: every batch of a Kafka partition reaches the same writer, in the order of its encoding task; all writers got the
same start of every encoding task, or the batch is refused; a failure of the second stage is returned, never raised, because
Spark would start the task again and a second start may not write.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from connector.commit.arrivals import Arrivals, require_agreement
from connector.commit.encoding import PackedBatch, pack_rows
from connector.commit.sending import SharedPlan, send_packed
from connector.errors import ExactlyOnceError
from connector.model import TopicPartition
from connector.spark.tasks import FINAL, RESULT_SCHEMA, pickled, result_of, task_context

_COLUMNS = {
    "route": ("int", pa.int32()),
    "topic": ("string", pa.string()),
    "number": ("int", pa.int32()),
    "records": ("int", pa.int32()),
    "bytes": ("long", pa.int64()),
    "digest": ("long", pa.int64()),
    "data": ("binary", pa.binary()),
    "dead_letters": ("int", pa.int32()),
    "failure": ("string", pa.string()),
    "task": ("int", pa.int32()),
    "start": ("long", pa.int64()),
}
"""A row that the shuffle moves: a piece of a batch (`data` set; the last one of a batch has `records`), or what `Arrivals.end`
has to be told (`task` set, `records` are batches), or `failure`. Each with its type for Spark and for Arrow."""

PACKED_SCHEMA = ", ".join(f"{name} {kind}" for name, (kind, _) in _COLUMNS.items())

_ARROW_SCHEMA = pa.schema([(name, kind) for name, (_, kind) in _COLUMNS.items()])

SENT_SCHEMA = f"{RESULT_SCHEMA}, word string"

HAND_OVER_BYTES = 32 * 1024 * 1024
"""Bytes of finished batches that Spark may put into one Arrow batch. It counts rows otherwise, 10,000 of them, of up to
`PIECE_BYTES` each. Double costs each sending task that much more memory, half gains nothing: a request is 1 MB."""

PIECE_BYTES = 256 * 1024
"""Bytes of one row that the shuffle moves. Arrays from half a heap region on (512 KB where the heap is small) get regions of
their own from Java's G1 collector and make it mark the whole heap: with whole batches it began to several times a second (seen in
its log; what that cost could not be told from the machine's noise). Half of it costs more rows, double meets that limit."""

_AT_ONCE_BYTES = 8 * 1024 * 1024
"""Finished batches that an encoding task hands back at once: enough to keep the pipe busy, little beside its open sections."""

_MOST_WRITERS = 64
"""Writers where Spark does not say how many tasks run at once (Connect); more would only wait for each other's cores."""

_ROW_CHECKSUMS = "spark.sql.shuffle.orderIndependentChecksum"

JOB_SETTINGS = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(HAND_OVER_BYTES),
    # From 4.1 on Spark hashes every byte that it shuffles, to learn whether a task that runs again makes other rows. Here the
    # writers tell (`arrivals`), on every version. A sixth of the JVM's time in the job (profiled on 4.3.0).
    f"{_ROW_CHECKSUMS}.enabled": "false",
    f"{_ROW_CHECKSUMS}.enableFullRetryOnMismatch": "false",
    f"{_ROW_CHECKSUMS}.enableQueryLevelRollbackOnMismatch": "false",
}
"""What the session is set to while the job runs."""


def run_shared(rows: DataFrame, plan: SharedPlan) -> list[Any]:
    """Run a batch whose tasks share one transaction; returns rows of `SENT_SCHEMA`, one per writer. AttemptRefused where all
    writers are done and did not get the same rows."""
    spark = rows.sparkSession
    at_once = _tasks_at_once(spark)
    writers = max(1, min(at_once, plan.partitions or at_once))
    if at_once == 1:
        # One task runs at a time, so it may as well be one task: nothing to shuffle.
        packed = rows.coalesce(1).mapInArrow(encode_task(plan, (0,)), PACKED_SCHEMA)
    else:
        routes = routes_to(writers)
        packed = rows.mapInArrow(encode_task(plan, routes), PACKED_SCHEMA).repartition(writers, "route")
    with set_for_this_job(spark):
        results = packed.mapInArrow(send_task(plan), SENT_SCHEMA).collect()
    words = [word for *_, word in results]
    # A writer that failed has none, and its failure says more.
    if None not in words:
        require_agreement(words)
    return results


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
        counts = dict.fromkeys(routes, 0)
        held: list[tuple[Any, ...]] = []
        size = 0
        try:
            for packed in pack_rows(plan.packing, context.partitionId(), batches):
                route = routes[writer_of(packed.where, len(routes))]
                held += _rows_of(packed, route)
                counts[route] += 1
                size += sum(map(len, packed.pieces))
                if size >= _AT_ONCE_BYTES:
                    yield _to_arrow(held)
                    held, size = [], 0
        except FINAL as error:
            yield _to_arrow([_row(route=routes[0], failure=pickled(error))])
            return
        # Every writer is told, also one that gets nothing: from another start it might have got something.
        task, start = context.partitionId(), context.taskAttemptId()
        held += [_row(route=route, records=count, task=task, start=start) for route, count in counts.items()]
        yield _to_arrow(held)

    return run


def _rows_of(batch: PackedBatch, route: int) -> list[tuple[Any, ...]]:
    """A row for each piece of a batch; `records` is in the last one only."""
    pieces = [piece for whole in batch.pieces for piece in _cut(whole)]
    topic, number = batch.where.topic, batch.where.partition
    # Unsigned in Python, signed in Spark: the same 64 bits.
    digest = batch.digest - 2**64 if batch.digest >= 2**63 else batch.digest
    last = _row(
        route=route, topic=topic, number=number, data=pieces[-1],
        records=batch.records, bytes=batch.record_bytes, digest=digest, dead_letters=batch.dead_letters,
    )  # fmt: skip
    return [*(_row(route=route, topic=topic, number=number, data=piece) for piece in pieces[:-1]), last]


def _row(**values: Any) -> tuple[Any, ...]:
    return tuple(values.get(name) for name in _COLUMNS)


def _to_arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)


def _cut(whole: bytes | memoryview) -> list[memoryview]:
    view = memoryview(whole)
    return [view[start : start + PIECE_BYTES] for start in range(0, len(view), PIECE_BYTES)]


class _EncodingFailed(Exception):
    """A row of the first stage says that a row cannot be written; its text is the pickled error."""


def send_task(plan: SharedPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for the second `mapInArrow`: sends a writer's batches and yields one row of `SENT_SCHEMA`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = task_context()
        writer = context.partitionId()
        arrivals = Arrivals()
        seal = failure = word = None
        try:
            sent = send_packed(plan, writer, _from_arrow(batches, arrivals), attempt=context.attemptNumber())
            seal, word = json.dumps(sent.to_json()), arrivals.word()
        except _EncodingFailed as refused:
            failure = str(refused)
        except ExactlyOnceError as error:
            failure = pickled(error)
        yield result_of(writer, seal, failure).append_column("word", pa.array([word], pa.string()))

    return run


def _from_arrow(batches: Iterable[pa.RecordBatch], arrivals: Arrivals) -> Iterator[PackedBatch]:
    """The batches that `_rows_of` cut. The shuffle keeps the rows of one task for one writer together and in order."""
    pieces: list[memoryview] = []
    for batch in batches:
        data = batch.column("data")
        for place, row in enumerate(batch.drop_columns(["data"]).to_pylist()):
            if row["failure"] is not None:
                raise _EncodingFailed(row["failure"])
            if row["task"] is not None:
                arrivals.end(row["task"], row["start"], row["records"])
                continue
            pieces.append(memoryview(data[place].as_buffer()))
            if row["records"] is not None:
                arrivals.batch()
                where = TopicPartition(row["topic"], row["number"])
                digest = row["digest"] % 2**64
                yield PackedBatch(
                    where, row["records"], row["bytes"], digest, tuple(pieces), row["dead_letters"]
                )
                pieces = []


def _tasks_at_once(spark: SparkSession) -> int:
    context = getattr(spark, "_sc", None)
    if context is not None:
        return int(context.defaultParallelism)
    return min(_MOST_WRITERS, int(str(spark.conf.get("spark.sql.shuffle.partitions", "8"))))


@contextlib.contextmanager
def set_for_this_job(spark: SparkSession) -> Iterator[None]:
    """While the job runs the session has `JOB_SETTINGS`. It is the micro-batch's own clone."""
    before: dict[str, str | None] = {}
    for name, value in JOB_SETTINGS.items():
        # Serverless compute lets none be set, and an older Spark has not all of them: the job only costs more then.
        with contextlib.suppress(Exception):
            before[name] = spark.conf.get(name, None)
            spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            with contextlib.suppress(Exception):
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
