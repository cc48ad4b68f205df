"""Batches that were packed beforehand and go out through our client, with new sequences and checksums.

Owns: the packed records, in memory.
Does not know: who waits for them: a process without Spark (`replayer`), or a Spark task that drops its rows
(`variants`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

from benchmarks.variants import values_of
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.delivery import stamper
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import (
    BATCH_OVERHEAD_BYTES,
    Partitioner,
    RecordColumns,
    Section,
    SectionWriter,
    pack,
)

# Rows of one Arrow batch as Spark makes them by default.
_ROWS = 10_000
# Kafka's default max.message.bytes, as the topics of the benchmark have it.
_LARGEST_BATCH = 1_048_588


def options_of(bootstrap_servers: str) -> SinkOptions:
    """The connector's defaults."""
    return SinkOptions.parse({"kafka.bootstrap.servers": bootstrap_servers, "topic": "any", "pipeline": "limit"})


def packed(value_bytes: int, records: int, partitions: int, seed: int, batch_bytes: int) -> Iterator[Section]:
    """`records` random values for the partitions, as a task of ours would pack them."""
    limit = min(batch_bytes, _LARGEST_BATCH) - BATCH_OVERHEAD_BYTES
    writer = SectionWriter(partitions, limit, explicit_timestamps=False, digest_seeds=None)
    partitioner = Partitioner([partitions], sticky_start=seed, sticky_bytes=batch_bytes)
    for number, first in enumerate(range(0, records, _ROWS)):
        rows = min(_ROWS, records - first)
        values = values_of(seed * 1_000_000 + number, rows, value_bytes)
        columns = RecordColumns(None, values, None, None, rows)
        yield from writer.append(columns, partitioner.assign(columns, 0, None), int(time.time() * 1000))
    yield from writer.flush()


class Sending:
    """One idempotent producer that sends sections to a topic. A section that is sent again has to be acknowledged
    before.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = Producer(cluster, None)
        self._identity = self._producer.initialize()
        self._topic = topic
        self._producer.begin()

    def send(self, section: Section) -> None:
        """Hand it to the loop; waits for room."""
        # Nothing holds the batch of an earlier pass any more, so its room is used again.
        section.framed = False
        batch = pack(section, transactional=False)
        self._producer.send(
            TopicPartition(self._topic, section.partition), section.count, stamper(batch, self._identity)
        )

    def flush(self) -> None:
        """Wait for all acknowledgements."""
        self._producer.flush()


_TASK_BYTES = 64 * 1024 * 1024
"""What a Spark task has ready. It is larger than a processor's cache, as rows that come from Spark are."""


@functools.lru_cache(maxsize=2)
def _sections_of_worker(value_bytes: int, partitions: int, seed: int, batch_bytes: int) -> list[Section]:
    """Made once by each Python worker, in the runs that warm up."""
    return list(packed(value_bytes, _TASK_BYTES // value_bytes, partitions, seed, batch_bytes))


def send_in_place_of(
    rows: Iterator[int], bootstrap_servers: str, topic: str, value_bytes: int, partitions: int, seed: int
) -> int:
    """For so many rows as `rows` has, one number for each Arrow batch, ready-made batches instead; returns how many
    rows came.
    """
    options = options_of(bootstrap_servers)
    sending = Sending(Cluster.shared(options.client), topic)
    sections = _sections_of_worker(value_bytes, partitions, seed, options.batch_bytes)
    came = sent = following = 0
    for count in rows:
        came += count
        while sent < came:
            if following == len(sections):
                sending.flush()
                following = 0
            sending.send(sections[following])
            sent += sections[following].count
            following += 1
    sending.flush()
    return came
