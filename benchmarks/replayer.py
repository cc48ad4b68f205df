"""The limit: batches that were packed beforehand go out through our client, with new sequences and checksums.

    python -m benchmarks.replayer <bootstrap servers>       a child of `python -m benchmarks`; two of them, like two cores

Owns: the packed records, in memory. The measured time contains no Spark, no Arrow and no packing.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.children import cpu_seconds, serve
from connector.client.cluster import Cluster
from connector.client.producer import Producer
from connector.model import ProducerIdentity, TopicPartition
from connector.options import SinkOptions
from connector.records import BATCH_OVERHEAD_BYTES, Partitioner, RecordColumns, Section, SectionWriter, frame

# Rows of one Arrow batch as Spark makes them by default.
_ROWS = 10_000
# Kafka's default max.message.bytes, as the topics of the benchmark have it.
_LARGEST_BATCH = 1_048_588


class Replayer:
    """Sections of records by the name of their data set."""

    def __init__(self, bootstrap_servers: str) -> None:
        options = SinkOptions.parse(
            {"kafka.bootstrap.servers": bootstrap_servers, "topic": "any", "pipeline": "limit"}
        )
        self._cluster = Cluster.shared(options.client)
        self._batch_bytes = options.batch_bytes
        self._sets: dict[str, list[Section]] = {}

    def load(
        self, name: str, value_bytes: int, records: int, partitions: int, seed: int
    ) -> Mapping[str, Any]:
        """Pack `records` random values for the partitions, as a task of ours would."""
        # Here, because it needs pyspark's module to be importable.
        from benchmarks.variants import values_of

        limit = min(self._batch_bytes, _LARGEST_BATCH) - BATCH_OVERHEAD_BYTES
        writer = SectionWriter(partitions, limit, explicit_timestamps=False, digest_seeds=None)
        partitioner = Partitioner([partitions], sticky_start=seed, sticky_bytes=self._batch_bytes)
        sections: list[Section] = []
        for number, first in enumerate(range(0, records, _ROWS)):
            rows = min(_ROWS, records - first)
            columns = RecordColumns(
                None, values_of(seed * 1_000_000 + number, rows, value_bytes), None, None, rows
            )
            sections += writer.append(columns, partitioner.assign(columns, 0, None), int(time.time() * 1000))
        sections += writer.flush()
        self._sets[name] = sections
        return {"batches": len(sections)}

    def unload(self) -> Mapping[str, Any]:
        """Release the memory."""
        self._sets.clear()
        gc.collect()
        return {}

    def write(self, name: str, topic: str, passes: int = 1) -> Mapping[str, Any]:
        """Send everything and wait for the acknowledgements, `passes` times, one after the other."""
        sections = self._sets[name]
        cpu = cpu_seconds(os.getpid())
        producer = Producer(self._cluster, None)
        identity = producer.initialize()
        producer.begin()
        for _ in range(passes):
            self._send(producer, identity, sections, topic)
        return {
            "records": passes * sum(section.count for section in sections),
            "cpu_seconds": cpu_seconds(os.getpid()) - cpu,
        }

    def _send(
        self, producer: Producer, identity: ProducerIdentity, sections: list[Section], topic: str
    ) -> None:
        for section in sections:
            # Nothing holds the batch of an earlier pass any more, so its room is used again.
            section.framed = False

            def stamp(base_sequence: int, section: Section = section) -> memoryview:
                return frame(
                    section,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.epoch,
                    base_sequence=base_sequence,
                    transactional=False,
                )

            producer.send(TopicPartition(topic, section.partition), section.count, stamp)
        producer.flush()


def main() -> None:
    """Serve until the parent exits."""
    replayer = Replayer(sys.argv[1])
    serve({name: getattr(replayer, name) for name in ("load", "unload", "write")})


if __name__ == "__main__":
    main()
