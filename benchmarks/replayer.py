"""The limit: batches that were packed beforehand go out through our client, with new sequences and checksums.

    python -m benchmarks.replayer <bootstrap servers>       a child of `python -m benchmarks`; two of them, like two cores

Owns: the packed records, in memory. The measured time contains no Spark, no Arrow and no packing.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.children import cpu_seconds, serve
from benchmarks.ready_made import Sending, options_of, packed
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.records import Section


class Replayer:
    """Sections of records by the name of their data set."""

    def __init__(self, bootstrap_servers: str) -> None:
        options = options_of(bootstrap_servers)
        self._cluster = Cluster.shared(options.client)
        self._batch_bytes = options.batch_bytes
        self._sets: dict[str, list[Section]] = {}

    def load(self, name: str, value_bytes: int, records: int, partitions: int, seed: int) -> Mapping[str, Any]:
        """Pack `records` random values for the partitions, as a task of ours would."""
        self._sets[name] = list(packed(value_bytes, records, partitions, seed, self._batch_bytes))
        return {"batches": len(self._sets[name])}

    def unload(self) -> Mapping[str, Any]:
        """Release the memory."""
        self._sets.clear()
        gc.collect()
        return {}

    def write(self, name: str, topic: str, passes: int = 1) -> Mapping[str, Any]:
        """Send everything and wait for the acknowledgements, `passes` times, one after the other."""
        sections = self._sets[name]
        cpu = cpu_seconds(os.getpid())
        sending = Sending(self._cluster, topic)
        for _ in range(passes):
            for section in sections:
                sending.send(section)
            sending.flush()
        return {
            "records": passes * sum(section.count for section in sections),
            "cpu_seconds": cpu_seconds(os.getpid()) - cpu,
        }


def main() -> None:
    """Serve until the parent exits."""
    replayer = Replayer(sys.argv[1])
    serve({name: getattr(replayer, name) for name in ("load", "unload", "write")})


if __name__ == "__main__":
    main()
