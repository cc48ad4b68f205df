"""The numbers of a session's queries for Prometheus: the extra `prometheus`.

Owns: names, units and labels of the metrics; the HTTP server that Prometheus scrapes.
Does not know: Spark's events (they come in as values), the origin of the numbers.
Invariants:
- Base units (seconds, bytes).
- An unknown number is not exported.
- One query is one series, however often it is restarted.
- A counter is 0 from the query's start on: PromQL sees no increase in a series that begins later.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from pyspark_kafka_eos.spark.metrics.listener import ERROR_NAMES, Observer
from pyspark_kafka_eos.spark.metrics.progress import BatchProgress

_LABELS = ("query",)

OTHER = "other"
"""The class under which errors of Spark and of the user's code are counted. These have hundreds of classes,
too many to export each with 0 in advance; `kafka_eos_query_failed` has the class itself."""

Metric = TypeVar("Metric", Counter, Gauge, Histogram)

_COMMIT_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""A commit takes 15 to 50 ms (docs/design/performance.md); the upper end is for brokers that fail over. Half
as many could not distinguish a slow commit from a very slow one; each further bucket is a series for every
query."""

_BATCH_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Spark itself needs some 300 ms per trigger; the transactions' timeout is at most 15 minutes."""

MOST_QUERIES = 256
"""Queries that are followed. Beyond this the series of the query without events for longest are dropped:
otherwise a session that starts one query after another would grow without end. At half a large session's
dashboard would lose running queries."""


class PrometheusMetrics(Observer):
    """Pass it to the listener: `ExactlyOnceListener(PrometheusMetrics())`. `registry`: yours; without it one
    of its own. `clock`: seconds since the epoch.

    Label: `query`, its name, or its id if it has none. Every query of the session is exported, with all its
    known numbers. `kafka_eos_query_info` has its `pipeline`: empty before the first batch, and where another
    process commits the batches and the listener has no `sink` options. Counters start at 0 with the query. A
    counter that the first batch has no number for is withdrawn then.
    """

    def __init__(self, registry: CollectorRegistry | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.registry = CollectorRegistry() if registry is None else registry
        self._per_batch: list[Counter | Gauge | Histogram] = []
        self._from_zero: list[Counter | Histogram] = []
        self._batches = self._counter("batches", "Micro-batches finished.")
        self._records = self._counter("records", "Records committed.")
        self._bytes = self._counter("written_bytes", "Bytes of records committed, before compression.")
        self._retries = self._counter("retries", "Record batches that were sent more than once.")
        self._fences = self._counter("fences", "Earlier attempts and left-open transactions that were fenced.")
        self._repaired = self._counter("repairs", "Rewrites of slots that a broker had aborted after the decision.")
        self._redone = self._counter("redone_batches", "Batches done again because they got too old to decide.")
        self._resumed = self._counter("resumed_batches", "Batches that an earlier run had decided.")
        self._requests = self._counter("produce_requests", "Produce requests that were answered.")
        self._waited = self._counter("produce_request_seconds", "Time from Produce requests to their answers, summed.")
        self._throttled = self._counter(
            "throttle_seconds", "Time that brokers asked this client to wait (quotas), summed."
        )
        self._record_batches = self._counter("record_batches", "Record batches sent, also those sent again.")
        self._sent = self._counter("sent_bytes", "Bytes of record batches sent, after compression.")
        self._longest = self._gauge("produce_request_seconds_max", "The newest batch's slowest Produce request.")
        self._connections = self._gauge(
            "connections", "Open connections to brokers, the most of one process, in the newest batch."
        )
        self._commit = self._histogram(
            "commit_seconds", "From all sealed to the last transaction ended.", _COMMIT_BUCKETS
        )
        self._visible = self._histogram(
            "visible_seconds", "From all sealed to all visible to readers.", _COMMIT_BUCKETS
        )
        self._batch = self._histogram("batch_seconds", "Spark's whole trigger.", _BATCH_BUCKETS)
        self._left = self._gauge("transaction_left_seconds", "Time that the transactions had left; +Inf: no timeout.")
        self._lag_min = self._gauge("offsets_behind_latest_min", "Offsets behind: the best partition.")
        self._lag_max = self._gauge("offsets_behind_latest_max", "Offsets behind: the worst partition.")
        self._lag_avg = self._gauge("offsets_behind_latest_avg", "Offsets behind: mean of the partitions.")
        self._lag = self._gauge("offsets_behind_latest", "Offsets behind: sum of the partitions.")
        self._batch_id = self._gauge("last_batch_id", "The newest finished micro-batch.")
        self._at = self._gauge(
            "last_batch_timestamp_seconds", "When the batch was reported, in seconds since the epoch."
        )
        self._repaired_at = self._gauge(
            "last_repair_timestamp_seconds", "When slots were last written again, in seconds since the epoch."
        )
        self._running = self._gauge("query_running", "1 while the query runs, then 0.")
        self._info = Gauge(
            "kafka_eos_query_info", "1: the pipeline that the query writes under.", ("query", "pipeline"),
            registry=self.registry,
        )  # fmt: skip
        self._failed = Gauge(
            "kafka_eos_query_failed", "1 from an end with an error until the query is started again.",
            ("query", "error"), registry=self.registry,
        )  # fmt: skip
        self._failures = Counter(
            "kafka_eos_query_failures", "Queries that ended with an error, by its class; \"other\": not one of ours.",
            ("query", "error"), registry=self.registry,
        )  # fmt: skip
        self._queries: OrderedDict[str, str] = OrderedDict()
        self._pipelines: dict[str, str] = {}
        self._error: dict[str, str] = {}
        self._known: dict[str, set[Counter | Histogram]] = {}

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        """The query has started."""
        query = self._follow(query_id, name)
        self._running.labels(query).set(1)
        self._recovered(query)
        for metric in self._from_zero:
            metric.labels(query)
        for error in (*ERROR_NAMES, OTHER):
            self._failures.labels(query, error)

    def progressed(self, progress: BatchProgress) -> None:
        """Count a finished batch."""
        query = self._follow(progress.query_id, progress.name)
        self._running.labels(query).set(1)
        if progress.pipeline is not None:
            self._of_pipeline(query, progress.pipeline)
        sent = progress.traffic
        counted = (
            (self._batches, 1),
            (self._records, progress.records),
            (self._bytes, progress.bytes),
            (self._retries, progress.retries),
            (self._fences, progress.fences),
            (self._repaired, progress.repaired),
            (self._redone, progress.redone),
            (self._resumed, progress.resumed),
            (self._requests, sent and sent.requests),
            (self._waited, sent and sent.waited_us / 1e6),
            (self._throttled, sent and sent.throttled_ms / 1000),
            (self._record_batches, sent and sent.record_batches),
            (self._sent, sent and sent.sent_bytes),
        )
        for counter, amount in counted:
            if self._is_known(query, counter, amount is not None):
                counter.labels(query).inc(amount or 0)
        timed = (
            (self._commit, progress.commit_ms),
            (self._visible, progress.visible_ms),
            (self._batch, progress.batch_ms),
        )
        for histogram, taken_ms in timed:
            if self._is_known(query, histogram, taken_ms is not None) and taken_ms is not None:
                histogram.labels(query).observe(taken_ms / 1000)
        if progress.left_s is not None:
            self._left.labels(query).set(progress.left_s)
        if sent is not None:
            self._longest.labels(query).set(sent.longest_us / 1e6)
            self._connections.labels(query).set(sent.connections)
        if (lag := progress.lag) is not None:
            self._lag_min.labels(query).set(lag.minimum)
            self._lag_max.labels(query).set(lag.maximum)
            self._lag_avg.labels(query).set(lag.average)
            self._lag.labels(query).set(lag.total)
        now = self._clock()
        if progress.repaired:
            self._repaired_at.labels(query).set(now)
        self._batch_id.labels(query).set(progress.batch_id)
        self._at.labels(query).set(now)

    def ended(self, query_id: str, run_id: str, error: str | None) -> None:
        """The query has ended; its numbers stay. `error`: None where it was stopped or is done."""
        query = self._follow(query_id, self._queries.get(query_id))
        self._running.labels(query).set(0)
        self._recovered(query)
        if error is not None:
            self._error[query] = error
            self._failed.labels(query, error).set(1)
            self._failures.labels(query, error if error in ERROR_NAMES else OTHER).inc()

    # ---- inside

    def _recovered(self, query: str) -> None:
        """Clear the error that ended the query's previous run."""
        if query in self._error:
            self._failed.remove(query, self._error.pop(query))

    def _of_pipeline(self, query: str, pipeline: str) -> None:
        before = self._pipelines.get(query)
        if before != pipeline:
            if before is not None:
                self._info.remove(query, before)
            self._pipelines[query] = pipeline
            self._info.labels(query, pipeline).set(1)

    def _is_known(self, query: str, metric: Counter | Histogram, told: bool) -> bool:
        """Whether this process has the number, from this batch or an earlier one; if not, the initial 0 is
        withdrawn."""
        known = self._known.setdefault(query, set())
        if told:
            known.add(metric)
        elif metric not in known:
            _drop(metric, query)
        return metric in known

    def _counter(self, name: str, meaning: str) -> Counter:
        metric = self._kept(Counter(f"kafka_eos_{name}", meaning, _LABELS, registry=self.registry))
        self._from_zero.append(metric)
        return metric

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return self._kept(Gauge(f"kafka_eos_{name}", meaning, _LABELS, registry=self.registry))

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        name = f"kafka_eos_{name}"
        metric = self._kept(Histogram(name, meaning, _LABELS, buckets=buckets, registry=self.registry))
        self._from_zero.append(metric)
        return metric

    def _kept(self, metric: Metric) -> Metric:
        self._per_batch.append(metric)
        return metric

    def _follow(self, query_id: str, name: str | None) -> str:
        """The query's label. Where there are too many queries, drops the one without events for longest."""
        label = name or query_id
        self._queries[query_id] = label
        self._queries.move_to_end(query_id)
        if label not in self._pipelines:
            self._of_pipeline(label, "")
        while len(self._queries) > MOST_QUERIES:
            _, old = self._queries.popitem(last=False)
            if old not in self._queries.values():
                self._forget(old)
        return label

    def _forget(self, query: str) -> None:
        self._recovered(query)
        self._info.remove(query, self._pipelines.pop(query))
        self._known.pop(query, None)
        for error in (*ERROR_NAMES, OTHER):
            _drop(self._failures, query, error)
        for metric in self._per_batch:
            _drop(metric, query)


def _drop(metric: Counter | Gauge | Histogram, *labels: str) -> None:
    # A number that was never known has no series.
    with contextlib.suppress(KeyError):
        metric.remove(*labels)


class MetricsServer(PrometheusMetrics):
    """The same, with an HTTP server at `address`:`port` for Prometheus; see `serve_metrics`."""

    def __init__(self, port: int, address: str, registry: CollectorRegistry | None) -> None:
        super().__init__(registry)
        self._server, self._thread = start_http_server(port, address, self.registry)
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Stop answering; returns when the port is free."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(port: int, address: str = "127.0.0.1", registry: CollectorRegistry | None = None) -> MetricsServer:
    """Serve /metrics at `port` (0: any free one, see `.port`) and return the observer for the listener:

        spark.streams.addListener(ExactlyOnceListener(serve_metrics(9200)))

    `address`: only this machine by default; "0.0.0.0" admits Prometheus from elsewhere. There is no login and
    no TLS. OSError where the port is taken. The server answers until `close()` or the process's end.
    """
    return MetricsServer(port, address, registry)


__all__ = ["MetricsServer", "PrometheusMetrics", "serve_metrics"]
