"""Makes the picture of the progress display for the documents, from a real run on the embedded broker.

    python -m tools.progress_picture docs/images/progress.svg

Owns: the run that is shown, which moment of it.
Does not know: what the display looks like.
Invariants: every number in the picture was measured in the run; without a moment worth showing there is no picture.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real.java import require_java
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.slot.writer import SlotWriter, WritePlan
from pyspark_kafka_eos.spark.metrics.display import ProgressDisplay, QueryView, render
from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter

RECORDS = 200_000
BATCHES = 8
PARTITIONS = 4
_WIDTH = 104


def make(path: Path) -> None:
    """Run a query over `RECORDS` records in about `BATCHES` batches and save the view of its middle as SVG."""
    os.environ.update(require_java().environ())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as checkpoint:
        _load(kafka.bootstrap_servers)
        views = _run(kafka.bootstrap_servers, checkpoint)
    halfway = [each for each in views if each.way is not None and 0.3 < each.way[0] / each.way[1] < 0.8]
    if not halfway:
        raise SystemExit("the run was never seen in its middle: no picture was made")
    shown = max(halfway, key=lambda view: view.progress.batch_id if view.progress else 0)
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(render([shown]))
    path.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(path), title="ProgressDisplay(query)")


def _load(bootstrap_servers: str) -> None:
    settings = ClientSettings((bootstrap_servers,))
    cluster = Cluster.shared(settings)
    for topic in ("orders", "orders.clean"):
        admin.create_topic(cluster, topic, partitions=PARTITIONS, settings={})
    plan = WritePlan(
        pipeline="load",
        batch_id=0,
        client=settings,
        topic="orders",
        delivery_timeout_ms=60_000,
        guarantee="at-least-once",
    )
    writer = SlotWriter(plan, 0)
    values = [f"order {number}".encode() for number in range(RECORDS)]
    spread = [number % PARTITIONS for number in range(RECORDS)]
    writer.write(pa.RecordBatch.from_pydict({"value": values, "partition": pa.array(spread, pa.int32())}))
    writer.seal()


def _run(bootstrap_servers: str, checkpoint: str) -> list[QueryView]:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    seen: list[QueryView] = []

    def keep(views: Sequence[QueryView]) -> None:
        seen.extend(views)

    kafka = {"kafka.bootstrap.servers": bootstrap_servers}
    source = (
        spark.readStream.format("kafka_eos")
        .options(**kafka, subscribe="orders", startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", RECORDS // BATCHES)
        .load()
    )
    writer = ExactlyOnceWriter({**kafka, "topic": "orders.clean", "pipeline": "clean-orders"})
    try:
        query = (
            source.select("key", "value")
            .writeStream.queryName("clean-orders")
            .foreachBatch(writer)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        with ProgressDisplay(query, console=Console(stderr=True), every_s=0.1, watch=keep):
            query.processAllAvailable()
        query.stop()
    finally:
        spark.stop()
    return seen


if __name__ == "__main__":
    make(Path(sys.argv[1]))
