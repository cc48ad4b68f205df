"""Peak memory of the Python processes, over batches of one and of ten million records: it must not grow with the batch.

    python -m benchmarks.memory [--records 1000000,10000000] [--value-bytes 100] [--scope batch]

Owns: one fresh Spark application per size, one exactly-once batch in each; the limit of 512 MB.
Invariants:
- The numbers are the kernel's high-water marks of resident memory (VmHWM), so no peak between two samples is
  missed.
- The JVM generates the rows as they are read and caches none.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.children import Child
from embedded_kafka.real import NEWEST_KAFKA, LocalKafka

LIMIT_MB = 512
# What a larger batch may add: the allocator's rounding and the ledger's few bytes, but no rows.
FLAT_WITHIN_MB = 64
_ADMIN_TIMEOUT_S = 30


def main() -> int:
    """Measure and print; returns 1 where memory is above the limit or grows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--records",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[1_000_000, 10_000_000],
    )
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--scope", choices=("task", "batch"), default="task", help="transaction.scope (task)")
    parser.add_argument("--python", default=sys.executable, help="the environment to measure in")
    parser.add_argument("--kafka", default=NEWEST_KAFKA)
    arguments = parser.parse_args()
    drivers: list[float] = []
    tasks: list[float] = []
    print(
        f"{'records':>11} {'driver':>9} {'largest task':>13}   peak resident MB of one Python process",
        flush=True,
    )
    logs = Path(tempfile.mkdtemp(prefix="benchmarks-"))
    with LocalKafka(arguments.kafka) as broker:
        for records in arguments.records:
            answer = _measure(arguments, broker.bootstrap_servers, records, logs)
            drivers.append(answer["driver_mb"])
            tasks.append(max(answer["workers_mb"]))
            print(f"{records:>11,} {drivers[-1]:>9.0f} {tasks[-1]:>13.0f}", flush=True)
    shutil.rmtree(logs)
    small = max(drivers + tasks) < LIMIT_MB
    flat = all(max(each) - min(each) < FLAT_WITHIN_MB for each in (drivers, tasks))
    print(
        f"under {LIMIT_MB} MB: {'yes' if small else 'NO'}; flat within {FLAT_WITHIN_MB} MB: {'yes' if flat else 'NO'}"
    )
    return 0 if small and flat else 1


def _measure(arguments: argparse.Namespace, bootstrap_servers: str, records: int, logs: Path) -> dict[str, Any]:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    topic = f"memory-{records}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    new = NewTopic(topic, num_partitions=arguments.partitions, replication_factor=1)
    admin.create_topics([new], operation_timeout=_ADMIN_TIMEOUT_S)[topic].result(_ADMIN_TIMEOUT_S)
    log = logs / f"{records}.log"
    with Child(arguments.python, "benchmarks.application", bootstrap_servers, log=log) as application:
        application.ask(
            "stream",
            name="rows",
            value_bytes=arguments.value_bytes,
            records=records,
            partitions=arguments.partitions,
        )
        options = {"transaction.scope": arguments.scope}
        application.ask("write", name="rows", way="exactly-once", topic=topic, options=options)
        return application.ask("peaks")


if __name__ == "__main__":
    sys.exit(main())
