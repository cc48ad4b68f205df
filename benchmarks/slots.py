"""Batches of slots without Spark: real slot writers in worker processes, and what such a measurement asks of the
machine.

Owns: a pipeline's options, its output topic, the writing of slots, a new run's beginning; resident memory; the slope of
a curve.
Does not know: what is measured, how many pipelines or slots there are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.writer import write_slot

QUERY = "query"
WORKERS = 2
"""Processes that write slots: one for each core."""

_ADMIN_TIMEOUT_S = 60
_MADE_WITHIN_S = 300
_PARTITIONS_AT_ONCE = 5_000
"""Kafka refuses a request that would make 10,000 or more."""
_TIMEOUT_MS = 900_000
"""The longest that a broker allows by default: 10,000 slots take minutes to write on two cores."""


def options_of(servers: str, pipeline: str, topic: str) -> dict[str, str]:
    """A pipeline's options, as a user gives them."""
    return {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "pipeline": pipeline,
        "kafka.transaction.timeout.ms": str(_TIMEOUT_MS),
    }


def create_topic(servers: str, topic: str, partitions: int) -> None:
    """An output topic."""
    from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    at_first = min(partitions, _PARTITIONS_AT_ONCE)
    new = NewTopic(topic, num_partitions=at_first, replication_factor=1)
    admin.create_topics([new], operation_timeout=_ADMIN_TIMEOUT_S)[topic].result(_ADMIN_TIMEOUT_S)
    for count in range(2 * at_first, partitions + 1, _PARTITIONS_AT_ONCE):
        more = NewPartitions(topic, count)
        admin.create_partitions([more], operation_timeout=_ADMIN_TIMEOUT_S)[topic].result(_ADMIN_TIMEOUT_S)
    # A broker makes some 200 logs a second, and shows what was added when it has made those before.
    until = time.monotonic() + _MADE_WITHIN_S
    while len(admin.list_topics(topic, timeout=_ADMIN_TIMEOUT_S).topics[topic].partitions) < partitions:
        if time.monotonic() > until:
            raise TimeoutError(f"{topic} does not have its {partitions} partitions")
        time.sleep(0.5)


def source_offsets(batch: int) -> tuple[str, ...]:
    """What Spark's offset log would have of the batch."""
    return (json.dumps({"batch": batch}),)


def write_slots(plan: Any, slots: Iterable[int], partitions: int) -> list[Seal]:
    """In a worker process: some slots one after another, each with one record to every partition."""
    rows = pa.RecordBatch.from_pydict({
        "value": pa.array(["x"] * partitions),
        "partition": pa.array(range(partitions), pa.int32()),
    })  # fmt: skip
    return [write_slot(plan, slot, iter([rows])) for slot in slots]


def restart(given: dict[str, str], batch: int) -> float:
    """In a worker process, which has nothing of the run before: milliseconds of a new run's beginning."""
    parsed = SinkOptions.parse(given)
    cluster = Cluster.shared(parsed.client)
    began = time.perf_counter()
    ho.begin(cluster, parsed, QUERY, batch, source_offsets(batch))
    return (time.perf_counter() - began) * 1000


def resident_mb(pid: int | str) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


def slope(points: Sequence[Any], over: str, name: str) -> float | None:
    """What each further one of `over` adds to `name`, from the first point to the last; None without two different
    ones.
    """
    first, last = points[0], points[-1]
    apart = getattr(last, over) - getattr(first, over)
    if not apart or None in (getattr(first, name), getattr(last, name)):
        return None
    return float((getattr(last, name) - getattr(first, name)) / apart)
