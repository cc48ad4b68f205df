"""The numbers of a session's queries for Prometheus: the extra `prometheus`.

Owns: names, units and labels of the metrics; the HTTP server that Prometheus asks.
Does not know: Spark's events (they come in as values), where the numbers come from.
Invariants: base units (seconds, bytes); what is not known is not exported; one query is one series, however often it is
started again.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from connector.spark.listener import ERROR_NAMES, Observer
from connector.spark.progress import BatchProgress

_LABELS = ("pipeline", "query")

Metric = TypeVar("Metric", Counter, Gauge, Histogram)

_COMMIT_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""A commit takes 15 to 50 ms (DESIGN.md); the upper end is where brokers fail over. Half as many could not tell a slow commit
from a very slow one; each more is a series for every query."""

_BATCH_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""A trigger takes some 300 ms of Spark's own; the transactions' timeout is at most 15 minutes."""

MOST_QUERIES = 256
"""Queries that are followed: the series of the one not heard of for longest are dropped. A session that starts one query
after another would else grow without end; at half, a large session's dashboard would lose queries that run."""


class PrometheusMetrics(Observer):
    """Give it to the listener: `ExactlyOnceListener(PrometheusMetrics())`. `registry`: yours; without it one of its own.

    Labels: `pipeline`, empty where the batches are committed by another process and the listener was given no sink;
    `query`, its name or else its id. Every query of the session is exported, with what is known of it.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._per_batch: list[Counter | Gauge | Histogram] = []
        self._batches = self._counter("batches", "Micro-batches finished.")
        self._records = self._counter("records", "Records committed.")
        self._bytes = self._counter("written_bytes", "Bytes of records committed, before compression.")
        self._retries = self._counter("retries", "Record batches that were sent more than once.")
        self._fences = self._counter(
            "fences", "Earlier attempts and left-open transactions that were shut out."
        )
        self._repaired = self._counter(
            "repairs", "Rewrites of slots that a broker had aborted after the decision."
        )
        self._redone = self._counter("redone_batches", "Batches done again: too old to be decided at first.")
        self._resumed = self._counter("resumed_batches", "Batches that an earlier run had decided.")
        self._commit = self._histogram(
            "commit_seconds", "From all sealed to the last transaction ended.", _COMMIT_BUCKETS
        )
        self._visible = self._histogram(
            "visible_seconds", "From all sealed to all visible to readers.", _COMMIT_BUCKETS
        )
        self._batch = self._histogram("batch_seconds", "Spark's whole trigger.", _BATCH_BUCKETS)
        self._left = self._gauge(
            "transaction_left_seconds", "Time that the transactions had left; +Inf: no timeout."
        )
        self._lag_min = self._gauge("offsets_behind_latest_min", "Offsets behind: the best partition.")
        self._lag_max = self._gauge("offsets_behind_latest_max", "Offsets behind: the worst partition.")
        self._lag_avg = self._gauge("offsets_behind_latest_avg", "Offsets behind: mean of the partitions.")
        self._lag = self._gauge("offsets_behind_latest", "Offsets behind: sum of the partitions.")
        self._batch_id = self._gauge("last_batch_id", "The newest finished micro-batch.")
        self._at = self._gauge(
            "last_batch_timestamp_seconds", "When it was reported, in seconds since the epoch."
        )
        self._running = Gauge(
            "kafka_eos_query_running", "1 while the query runs, then 0.", ("query",), registry=self.registry
        )
        self._failures = Counter(
            "kafka_eos_query_failures",
            "Queries that ended with an error, by its class.",
            ("query", "error"),
            registry=self.registry,
        )
        self._queries: OrderedDict[str, str] = OrderedDict()
        self._series: dict[str, set[tuple[str, str]]] = {}
        self._errors: dict[str, set[str]] = {}

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        """The query runs."""
        query = self._follow(query_id, name)
        self._running.labels(query).set(1)
        for error in ERROR_NAMES:
            # PromQL sees no increase in a series that begins at 1.
            self._fail(query, error, 0)

    def progressed(self, progress: BatchProgress) -> None:
        """Count a finished batch."""
        query = self._follow(progress.query_id, progress.name)
        labels = (progress.pipeline or "", query)
        self._series.setdefault(query, set()).add(labels)
        self._running.labels(query).set(1)
        self._batches.labels(*labels).inc()
        counted = (
            (self._records, progress.records),
            (self._bytes, progress.bytes),
            (self._retries, progress.retries),
            (self._fences, progress.fences),
            (self._repaired, progress.repaired),
            (self._redone, progress.redone),
            (self._resumed, progress.resumed),
        )
        for counter, amount in counted:
            if amount is not None:
                counter.labels(*labels).inc(amount)
        timed = (
            (self._commit, progress.commit_ms),
            (self._visible, progress.visible_ms),
            (self._batch, progress.batch_ms),
        )
        for histogram, taken_ms in timed:
            if taken_ms is not None:
                histogram.labels(*labels).observe(taken_ms / 1000)
        if progress.left_s is not None:
            self._left.labels(*labels).set(progress.left_s)
        if (lag := progress.lag) is not None:
            self._lag_min.labels(*labels).set(lag.minimum)
            self._lag_max.labels(*labels).set(lag.maximum)
            self._lag_avg.labels(*labels).set(lag.average)
            self._lag.labels(*labels).set(lag.total)
        self._batch_id.labels(*labels).set(progress.batch_id)
        self._at.labels(*labels).set(time.time())

    def ended(self, query_id: str, run_id: str, error: str | None) -> None:
        """The query runs no more; its numbers stay."""
        query = self._follow(query_id, self._queries.get(query_id))
        self._running.labels(query).set(0)
        if error is not None:
            self._fail(query, error, 1)

    # ---- inside

    def _fail(self, query: str, error: str, count: int) -> None:
        self._errors.setdefault(query, set()).add(error)
        self._failures.labels(query, error).inc(count)

    def _counter(self, name: str, meaning: str) -> Counter:
        return self._kept(Counter(f"kafka_eos_{name}", meaning, _LABELS, registry=self.registry))

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return self._kept(Gauge(f"kafka_eos_{name}", meaning, _LABELS, registry=self.registry))

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        name = f"kafka_eos_{name}"
        return self._kept(Histogram(name, meaning, _LABELS, buckets=buckets, registry=self.registry))

    def _kept(self, metric: Metric) -> Metric:
        self._per_batch.append(metric)
        return metric

    def _follow(self, query_id: str, name: str | None) -> str:
        """The query's label; forgets the query that was not heard of for longest where there are too many."""
        label = name or query_id
        self._queries[query_id] = label
        self._queries.move_to_end(query_id)
        while len(self._queries) > MOST_QUERIES:
            _, old = self._queries.popitem(last=False)
            if old not in self._queries.values():
                self._forget(old)
        return label

    def _forget(self, query: str) -> None:
        self._running.remove(query)
        for error in self._errors.pop(query, set()):
            self._failures.remove(query, error)
        for labels in self._series.pop(query, set()):
            for metric in self._per_batch:
                # A number that was never known has no series.
                with contextlib.suppress(KeyError):
                    metric.remove(*labels)


class MetricsServer(PrometheusMetrics):
    """The same, with an HTTP server at `address`:`port` that Prometheus asks; see `serve_metrics`."""

    def __init__(self, port: int, address: str, registry: CollectorRegistry | None) -> None:
        super().__init__(registry)
        self._server, self._thread = start_http_server(port, address, self.registry)
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Stop answering; returns when the port is free."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(
    port: int, address: str = "127.0.0.1", registry: CollectorRegistry | None = None
) -> MetricsServer:
    """Serve /metrics at `port` (0: any free one, see `.port`) and return what to give to the listener:

        spark.streams.addListener(ExactlyOnceListener(serve_metrics(9200)))

    `address`: only this machine by default; "0.0.0.0" lets Prometheus in from elsewhere. There is no login and no TLS.
    OSError where the port is taken. It answers until `close()` or the process's end.
    """
    return MetricsServer(port, address, registry)


__all__ = ["MetricsServer", "PrometheusMetrics", "serve_metrics"]
