"""How long the driver's commit takes, and its share of a micro-batch's trigger.

    python -m benchmarks.commit_latency [--tasks 4,16,64] [--batches 20]

Owns: a streaming query over Spark's rate source through `ExactlyOnceWriter`, one per number of tasks.
Invariants:
- `commit` is the time from the driver's receipt of the last seal to the last EndTxn answered, `visible` to
  the last marker written.
- `trigger` is the time that Spark reports for the whole micro-batch, `tasks run` the rest of the writer's own
  time, `Spark` the rest of the trigger.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.application import session
from embedded_kafka.real import NEWEST_KAFKA, LocalKafka
from pyspark_kafka_eos import ExactlyOnceWriter

# The first batches compile the JVM's and our code and open the connections. (Spark keeps the progress of 100.)
_WARM_UP = 30
_ROWS_PER_BATCH = 6_400
_ADMIN_TIMEOUT_S = 30


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commit_latency", description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=lambda text: [int(each) for each in text.split(",")], default=[4, 16, 64])
    parser.add_argument("--batches", type=int, default=20, help="that count, after 30 that do not")
    parser.add_argument("--kafka", default=NEWEST_KAFKA)
    parser.add_argument("--json", type=Path, help="also write the medians there")
    arguments = parser.parse_args()
    print(f"Kafka {arguments.kafka}, medians of {arguments.batches} micro-batches of {_ROWS_PER_BATCH} rows, ms")
    print(
        f"{'tasks':>6} {'commit':>8} {'slowest':>8} {'visible':>8} {'tasks run':>10} {'Spark':>8} {'trigger':>8}",
        flush=True,
    )
    lines = []
    with LocalKafka(arguments.kafka) as broker, tempfile.TemporaryDirectory() as directory:
        spark = session()
        try:
            for tasks in arguments.tasks:
                line = measure(spark, broker.bootstrap_servers, tasks, arguments.batches, Path(directory, str(tasks)))
                lines.append(line)
                print(
                    f"{tasks:>6} {line['commit_ms']:>8.1f} {line['slowest_ms']:>8.1f} {line['visible_ms']:>8.1f} "
                    f"{line['tasks_run_ms']:>10.1f} {line['spark_ms']:>8.1f} {line['trigger_ms']:>8.1f}",
                    flush=True,
                )
        finally:
            spark.stop()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(lines))
    return 0


def measure(spark: SparkSession, bootstrap_servers: str, tasks: int, batches: int, directory: Path) -> dict[str, float]:
    """Run one query with this number of tasks until there are enough batches; returns the medians in
    milliseconds."""
    topic = f"latency-{tasks}"
    _create(bootstrap_servers, topic)
    writer = ExactlyOnceWriter(
        {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic, "pipeline": f"latency-{tasks}"}
    )
    commits: dict[int, float] = {}
    visible: dict[int, float] = {}
    writes: dict[int, float] = {}

    def write(frame: DataFrame, batch_id: int) -> None:
        began = time.perf_counter()
        writer(frame, batch_id)
        writes[batch_id] = (time.perf_counter() - began) * 1000
        assert writer.last_report is not None
        assert writer.last_report.slots == tasks
        commits[batch_id] = writer.last_report.commit_ms
        visible[batch_id] = writer.last_report.visible_ms

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS_PER_BATCH)
    rows = source.option("numPartitions", tasks).load().selectExpr("CAST(value AS STRING) AS value")
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(directory)).start()
    triggers: dict[int, float] = {}
    try:
        # Spark's progress is read once, at the end: parsing it would take the interpreter from the commits.
        while len(commits) < _WARM_UP + batches + 1:
            if not query.isActive:
                raise RuntimeError(f"the query failed: {query.exception()}")
            time.sleep(0.2)
        for progress in query.recentProgress:
            triggers[int(progress["batchId"])] = float(progress["durationMs"]["triggerExecution"])
    finally:
        query.stop()
    counted = [batch for batch in sorted(triggers) if batch >= _WARM_UP and batch in commits][:batches]
    return {
        "tasks": tasks,
        "commit_ms": statistics.median(commits[batch] for batch in counted),
        "slowest_ms": max(commits[batch] for batch in counted),
        "visible_ms": statistics.median(visible[batch] for batch in counted),
        "tasks_run_ms": statistics.median(writes[batch] - visible[batch] for batch in counted),
        "spark_ms": statistics.median(triggers[batch] - writes[batch] for batch in counted),
        "trigger_ms": statistics.median(triggers[batch] for batch in counted),
    }


def _create(bootstrap_servers: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    new = NewTopic(topic, num_partitions=4, replication_factor=1)
    admin.create_topics([new], operation_timeout=_ADMIN_TIMEOUT_S)[topic].result(_ADMIN_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
