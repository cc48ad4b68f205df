"""A finished batch in the three forms that it comes in: Spark's JSON, the report of its commit, both as one value."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pyspark_kafka_eos.commit.reports import CommitReport, Published
from pyspark_kafka_eos.model import Traffic
from pyspark_kafka_eos.spark.metrics.progress import BatchProgress, read_progress

REPORT = CommitReport(
    batch_id=7, records=90, bytes=4096, slots=4, commit_ms=21.5, left_ms=890_000.0, repaired=1, redone=1,
    visible_ms=30.0, retries=2, fences=3,
    traffic=Traffic(
        requests=4, record_batches=8, sent_bytes=2048, waited_us=10_000, longest_us=4_500, throttled_ms=300, connections=3
    ),
)  # fmt: skip


def spark_json(**changed: Any) -> dict[str, Any]:
    """As Spark 4.3 prints it, without what nobody reads."""
    source = {
        "description": "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow@5f",
        "startOffset": {"orders": {"0": 10, "1": 20}},
        "endOffset": {"orders": {"0": 60, "1": 60}},
        "latestOffset": {"orders": {"0": 60, "1": 100}},
    }
    body = {
        "id": "6d4f", "runId": "91aa", "name": "clean-orders", "batchId": 7, "numInputRows": 90,
        "processedRowsPerSecond": 300.5, "durationMs": {"triggerExecution": 400}, "sources": [source],
    }  # fmt: skip
    return {**body, **changed}


def published(**changed: Any) -> Published:
    """The report as the writer publishes it."""
    return Published("orders", "6d4f", replace(REPORT, **changed))


def batch(**changed: Any) -> BatchProgress:
    """Both joined."""
    return replace(read_progress(spark_json(), published()), **changed)


def ended_query() -> Any:
    """What Spark's StreamingQuery says of itself when it is done."""
    progress = SimpleNamespace(json=json.dumps(spark_json()))
    return SimpleNamespace(
        id="6d4f", name="clean-orders", isActive=False, lastProgress=progress, recentProgress=[progress],
        exception=lambda: None, awaitTermination=lambda: True,
    )  # fmt: skip
