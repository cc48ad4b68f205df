"""How long the driver's commit takes, and how much of a micro-batch's trigger that is.

    python -m benchmarks.commit_latency [--tasks 4,16,64] [--batches 20]

Owns: a streaming query over Spark's rate source through `ExactlyOnceWriter`, one per number of tasks.
Invariants: `commit` is from the last seal in the driver's hands to the last EndTxn answered; `trigger` is what Spark
reports for the whole micro-batch, `tasks` what is left of the writer's own time, `Spark` what is left of the trigger.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.application import session
from connector import ExactlyOnceWriter
from connector.local import NEWEST_KAFKA, LocalKafka

# The first batches compile the JVM's and our code and open the connections.
_WARM_UP = 5
_ROWS_PER_BATCH = 6_400
_ADMIN_TIMEOUT_S = 30


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.commit_latency", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--tasks", type=lambda text: [int(each) for each in text.split(",")], default=[4, 16, 64]
    )
    parser.add_argument("--batches", type=int, default=20, help="that count, after 5 that do not")
    parser.add_argument("--kafka", default=NEWEST_KAFKA)
    arguments = parser.parse_args()
    print(
        f"Kafka {arguments.kafka}, medians of {arguments.batches} micro-batches of {_ROWS_PER_BATCH} rows, ms"
    )
    print(
        f"{'tasks':>6} {'commit':>8} {'slowest':>8} {'tasks run':>10} {'Spark':>8} {'trigger':>8}", flush=True
    )
    with LocalKafka(arguments.kafka) as broker, tempfile.TemporaryDirectory() as directory:
        spark = session()
        try:
            for tasks in arguments.tasks:
                measure(
                    spark, broker.bootstrap_servers, tasks, arguments.batches, Path(directory, str(tasks))
                )
        finally:
            spark.stop()
    return 0


def measure(spark: SparkSession, bootstrap_servers: str, tasks: int, batches: int, directory: Path) -> None:
    """Run one query of as many tasks until there are enough batches, and print its line."""
    topic = f"latency-{tasks}"
    _create(bootstrap_servers, topic)
    writer = ExactlyOnceWriter(
        {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic, "pipeline": f"latency-{tasks}"}
    )
    commits: dict[int, float] = {}
    writes: dict[int, float] = {}

    def write(frame: DataFrame, batch_id: int) -> None:
        began = time.perf_counter()
        writer(frame, batch_id)
        writes[batch_id] = (time.perf_counter() - began) * 1000
        assert writer.last_report is not None
        assert writer.last_report.slots == tasks
        commits[batch_id] = writer.last_report.commit_ms

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS_PER_BATCH)
    rows = source.option("numPartitions", tasks).load().selectExpr("CAST(value AS STRING) AS value")
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(directory)).start()
    triggers: dict[int, float] = {}
    try:
        while len([batch for batch in triggers if batch >= _WARM_UP]) < batches:
            if query.exception() is not None:
                raise RuntimeError(f"the query failed: {query.exception()}")
            for progress in query.recentProgress:
                triggers[int(progress["batchId"])] = float(progress["durationMs"]["triggerExecution"])
            time.sleep(0.2)
    finally:
        query.stop()
    counted = [batch for batch in sorted(triggers) if batch >= _WARM_UP and batch in commits][:batches]
    commit = statistics.median(commits[batch] for batch in counted)
    running = statistics.median(writes[batch] - commits[batch] for batch in counted)
    trigger = statistics.median(triggers[batch] for batch in counted)
    rest = statistics.median(triggers[batch] - writes[batch] for batch in counted)
    slowest = max(commits[batch] for batch in counted)
    print(
        f"{tasks:>6} {commit:>8.1f} {slowest:>8.1f} {running:>10.1f} {rest:>8.1f} {trigger:>8.1f}", flush=True
    )


def _create(bootstrap_servers: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    new = NewTopic(topic, num_partitions=4, replication_factor=1)
    admin.create_topics([new], operation_timeout=_ADMIN_TIMEOUT_S)[topic].result(_ADMIN_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
