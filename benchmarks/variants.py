"""The compared ways of writing, as functions for `mapInArrow`. Spark's workers import this module.

Owns: the task of each way. Ours are the product's own tasks; nothing here is tuned for the benchmark.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

COUNT_SCHEMA = "records long"

LIBRDKAFKA = {
    # librdkafka's own default of 5 ms makes small requests at this rate; what follows is what its tuning guide advises.
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
}


def values_of(seed: int, rows: int, value_bytes: int) -> pa.Array:
    """`rows` binary values of `value_bytes` random bytes, the same for the same seed. No codec can compress
    them."""
    data = np.random.default_rng(seed).bytes(rows * value_bytes)
    offsets = np.arange(rows + 1, dtype=np.int32) * value_bytes
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def words_of(seed: int, rows: int, value_bytes: int) -> pa.Array:
    """The same of words of eight bytes, 256 different ones: lz4 makes them two fifths as large, zstd a fifth."""
    words = np.random.default_rng(0).integers(97, 123, (256, 8), np.uint8)
    count = -(-rows * value_bytes // 8)
    data = words[np.random.default_rng(seed).integers(0, 256, count)].tobytes()[: rows * value_bytes]
    offsets = np.arange(rows + 1, dtype=np.int32) * value_bytes
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def make_values(value_bytes: int, *, words: bool = False) -> Task:
    """Rows of ids to as many rows with a random value, or one of random words."""
    make = words_of if words else values_of

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            values = make(context.partitionId() * 1_000_000 + number, batch.num_rows, value_bytes)
            yield pa.RecordBatch.from_arrays([values], ["value"])

    return run


def _counted(records: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"records": pa.array([records], pa.int64())})


def count_only() -> Task:
    """Takes the rows as Arrow and drops them: the cost of Spark's hand-over to Python."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _counted(sum(batch.num_rows for batch in batches))

    return run


def ready_made(bootstrap_servers: str, topic: str, partitions: int) -> Task:
    """Takes the rows as Arrow, drops them, and sends as many that were packed before: what any writer in Python has to
    take.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Imported, not taken along: what a worker has made stays with the module.
        from benchmarks.ready_made import send_in_place_of

        context = TaskContext.get()
        assert context is not None
        following = iter(batches)
        first = next(following, None)
        if first is None:
            yield _counted(0)
            return
        value_bytes = len(first.column(0)[0].as_py())
        rows = (batch.num_rows for batch in itertools.chain([first], following))
        yield _counted(send_in_place_of(rows, bootstrap_servers, topic, value_bytes, partitions, context.partitionId()))

    return run


def row_by_row(bootstrap_servers: str, topic: str) -> Task:
    """confluent-kafka as its examples show it: one produce() per row, flush at the end; at least once."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import KafkaException, Producer

        failed: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", **LIBRDKAFKA})
        records = 0
        for batch in batches:
            for value in batch.column("value").to_pylist():
                while True:
                    try:
                        producer.produce(topic, value, on_delivery=delivered)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.poll(0)
            records += batch.num_rows
        if producer.flush(120) or failed:
            raise KafkaException(f"not everything was delivered: {failed[:1]}")
        yield _counted(records)

    return run
