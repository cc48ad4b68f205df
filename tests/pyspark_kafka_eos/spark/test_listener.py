"""A query followed in ordinary tools: its consumer group, Spark's listener, Prometheus, the progress display."""

from __future__ import annotations

import io
import logging
import threading
import urllib.request
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress
from rich.console import Console

from pyspark_kafka_eos import ExactlyOnceListener
from pyspark_kafka_eos.spark.metrics.display import ProgressDisplay
from pyspark_kafka_eos.spark.metrics.listener import Observer
from pyspark_kafka_eos.spark.metrics.progress import BatchProgress
from pyspark_kafka_eos.spark.metrics.prometheus import serve_metrics
from tests.pyspark_kafka_eos.commit.child import run as run_pipeline
from tests.pyspark_kafka_eos.commit.judge import settings_for
from tests.pyspark_kafka_eos.spark.follow import RECORDS, TIMEOUT_S, Job
from tests.support.brokers import AnyKafka
from tests.support.logs import said_by

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class Recorder(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.names: list[str | None] = []
        self.batches: list[BatchProgress] = []
        self.errors: list[str | None] = []
        self.over = threading.Event()

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        self.names.append(name)

    def progressed(self, progress: BatchProgress) -> None:
        self.batches.append(progress)

    def ended(self, query_id: str, run_id: str, error: str | None) -> None:
        self.errors.append(error)
        self.over.set()


@dataclass
class Followed:
    """One run to the end, and what everybody saw of it."""

    job: Job
    seen: Recorder
    newest: BatchProgress | None
    scraped: str
    shown: str


@pytest.fixture(scope="module")
def followed(spark: SparkSession, kafka: AnyKafka, tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """One for the tests that only look: a query takes longer than any of them."""
    job = Job(spark, kafka, tmp_path_factory.mktemp("followed"))
    seen, console = Recorder(), Console(file=io.StringIO(), width=200)
    with closing(serve_metrics(0)) as metrics:
        listener = ExactlyOnceListener(metrics, seen)
        spark.streams.addListener(listener)
        try:
            query = job.start()
            with ProgressDisplay(query, console=console):
                assert query.awaitTermination(TIMEOUT_S)
            assert seen.over.wait(TIMEOUT_S)
        finally:
            spark.streams.removeListener(listener)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=30) as answer:
            scraped = answer.read().decode()
    return Followed(job, seen, listener.newest(str(query.id)), scraped, console.file.getvalue())  # type: ignore[attr-defined]


def test_after_the_last_available_now_batch_the_group_stands_at_the_end(followed: Followed) -> None:
    assert followed.job.group() == [(13, 13, 13), (12, 12, 12)]


def test_the_listener_tells_each_batch_with_the_numbers_of_its_commit(followed: Followed) -> None:
    batches = followed.seen.batches

    assert [batch.batch_id for batch in batches] == [0, 1, 2]
    assert [batch.records for batch in batches] == [10, 10, 5]
    assert {batch.pipeline for batch in batches} == {followed.job.pipeline}
    for batch in batches:
        assert batch.commit_ms is not None and 0 < batch.commit_ms < batch.batch_ms
        assert batch.visible_ms >= batch.commit_ms
        assert 0 < batch.left_s <= 900
        assert (batch.retries, batch.fences, batch.repaired, batch.redone) == (0, 0, 0, 0)
    assert (followed.seen.names, followed.seen.errors) == ([followed.job.target], [None])
    assert followed.newest == batches[-1]


def test_the_lag_falls_to_nothing_as_the_query_comes_to_the_end(followed: Followed) -> None:
    lags = [batch.lag for batch in followed.seen.batches]

    assert [lag.total for lag in lags if lag] == [15, 5, 0]
    last = followed.seen.batches[-1].as_metrics()
    assert last["maxOffsetsBehindLatest"] == last["minOffsetsBehindLatest"] == last["avgOffsetsBehindLatest"] == 0


def test_prometheus_counts_what_the_query_wrote(followed: Followed) -> None:
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(followed.scraped)
        for sample in family.samples
        if sample.labels.get("query") == followed.job.target
    }

    assert samples["kafka_eos_batches_total"] == samples["kafka_eos_commit_seconds_count"] == 3
    assert samples["kafka_eos_records_total"] == RECORDS
    assert samples["kafka_eos_offsets_behind_latest"] == samples["kafka_eos_query_running"] == 0


def test_the_display_ends_with_the_last_batch_in_a_plain_line(followed: Followed) -> None:
    lines = followed.shown.splitlines()

    assert lines[-1].startswith(f"{followed.job.target}: done, batch 2, ")
    assert "100 % read, 0 behind" in lines[-1]


# ---- the ends of topics


def test_a_tail_of_markers_alone_is_a_batch_without_rows_and_closes_the_lag(
    spark: SparkSession, kafka: AnyKafka, tmp_path: Path
) -> None:
    job = Job(spark, kafka, tmp_path)
    open_one = Producer({**job.servers, "transactional.id": f"{job.source}.open"})
    open_one.init_transactions(TIMEOUT_S)
    open_one.begin_transaction()
    open_one.produce(job.source, b"never committed", partition=0)
    open_one.flush()

    job.run()
    # What is open cannot be read yet; lag tools that count to the end of the log show it, and so it is.
    assert job.group() == [(13, 13, 14), (12, 12, 12)]

    open_one.abort_transaction(TIMEOUT_S)
    query = job.run()
    # The aborted record and its marker: no row, and all the same a batch.
    assert (query.lastProgress.batchId, query.lastProgress.numInputRows) == (3, 0)
    assert job.group() == [(15, 15, 15), (12, 12, 12)]


# ---- what the listener does not get from Spark, and what goes wrong


def event_of(query_id: str, batch_id: int, source: dict[str, Any]) -> QueryProgressEvent:
    """An event as Spark hands it out, on classic and on Connect."""
    body = {
        "id": query_id, "runId": str(uuid.uuid4()), "name": None, "timestamp": "2026-01-01T00:00:00Z", "batchId": batch_id,
        "batchDuration": 5, "durationMs": {}, "stateOperators": [], "numInputRows": 0, "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0, "sink": {"description": "s", "numOutputRows": -1},
        "sources": [{"description": "python.PythonMicroBatchStream@1", "startOffset": None, "latestOffset": None,
                     "numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0, **source}],
    }  # fmt: skip
    return QueryProgressEvent(StreamingQueryProgress.fromJson(body))


def test_what_another_process_committed_is_read_from_the_ledger_that_the_sinks_options_name(
    kafka: AnyKafka,
) -> None:
    settings = {**settings_for(kafka), "query": str(uuid.uuid4())}
    run_pipeline(settings)
    seen = Recorder()
    listener = ExactlyOnceListener(seen, sink=settings["options"])

    listener.onQueryProgress(event_of(settings["query"], 0, {"endOffset": None}))
    listener.onQueryProgress(event_of(settings["query"], 1, {"endOffset": None}))

    known, unknown = seen.batches
    assert (known.pipeline, known.records, known.slots) == (settings["options"]["pipeline"], 1200, 3)
    assert known.decided_ms is not None and known.decided_ms > 0
    assert known.commit_ms is None
    # The ledger's decision is of batch 0 and says nothing of batch 1.
    assert (unknown.pipeline, unknown.records) == (None, None)


def test_brokers_are_asked_for_the_ends_where_spark_does_not_say_them(
    spark: SparkSession, kafka: AnyKafka, tmp_path: Path
) -> None:
    job = Job(spark, kafka, tmp_path)
    seen = Recorder()
    source = {"endOffset": {job.source: {"0": 10, "1": 11}}}

    asking = ExactlyOnceListener(seen, source={**job.options, "subscribe": job.source})
    asking.onQueryProgress(event_of(str(uuid.uuid4()), 0, source))
    ExactlyOnceListener(seen).onQueryProgress(event_of(str(uuid.uuid4()), 0, source))

    asked, not_asked = seen.batches
    assert asked.lag is not None
    assert (asked.lag.minimum, asked.lag.maximum, asked.lag.average) == (1, 3, 2.0)
    assert not_asked.lag is None


class Failing(Observer):
    """An observer with a bug."""

    def __init__(self) -> None:
        self.called = 0

    def progressed(self, progress: BatchProgress) -> None:
        self.called += 1
        raise RuntimeError("a bug of the observer")


def test_an_observer_that_fails_is_logged_once_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    failing, seen = Failing(), Recorder()
    listener = ExactlyOnceListener(failing, seen)

    with caplog.at_level(logging.WARNING, "pyspark_kafka_eos.spark.metrics.listener"):
        for batch_id in range(3):
            listener.onQueryProgress(event_of(str(uuid.uuid4()), batch_id, {"endOffset": None}))

    assert failing.called == 3
    assert [batch.batch_id for batch in seen.batches] == [0, 1, 2]
    assert said_by(caplog, "pyspark_kafka_eos.spark.metrics.listener") == [
        "Failing.progressed failed with RuntimeError; the same failure there is not logged again"
    ]


def test_an_error_that_ends_a_query_is_told_by_its_class(
    spark: SparkSession, followed: Followed, tmp_path: Path
) -> None:
    seen = Recorder()
    listener = ExactlyOnceListener(seen)
    spark.streams.addListener(listener)
    try:
        # Another checkpoint under the same pipeline.
        with pytest.raises(StreamingQueryException):
            followed.job.start(tmp_path).awaitTermination(TIMEOUT_S)
        assert seen.over.wait(TIMEOUT_S)
    finally:
        spark.streams.removeListener(listener)

    assert seen.errors == ["PipelineConflict"]
    assert seen.batches == []
