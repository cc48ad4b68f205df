"""`ExactlyOnceListener`: follows the streaming queries of a session, batch by batch, and calls observers.

Owns: joining Spark's events with the reports of the commits, asking the brokers for numbers that Spark does
not report.
Does not know: the observers' use of the numbers (metrics, displays).
Invariants:
- No callback raises into Spark, and no observer stops another one.
- An error is logged once per place and class.

The listener runs in the process that called addListener: on classic Spark the driver's Python process, on
Spark Connect the client's. The reports of the commits are in the process that writes the batches: with
foreachBatch on classic Spark the same one, in all other cases another one. Then the listener reads the
ledger, if `sink` names it.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kafka_core import errors
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.commit import reports
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.options import SinkOptions, SourceOptions
from pyspark_kafka_eos.spark.metrics.progress import BatchProgress, read_progress

log = logging.getLogger(__name__)

MOST_QUERIES = 256
"""Queries whose newest progress is kept. Bounds the memory of a process that starts one query after the
other. Half would do; double gains nothing."""

ERROR_NAMES = {
    name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, errors.ExactlyOnceError)
}
"""The classes of `kafka_core.errors`."""

Answer = TypeVar("Answer")

_ERROR_NAME = re.compile(r"kafka_core\.errors\.(\w+)")


class Observer:
    """Callbacks for a session's queries. Override the ones you need; slow work delays the events of all
    queries."""

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        """A query has started."""

    def progressed(self, progress: BatchProgress) -> None:
        """A micro-batch has finished."""

    def ended(self, query_id: str, run_id: str, error: str | None) -> None:
        """A query has ended. `error`: None where it was stopped or done; else the class of `kafka_core.errors`, or
        Spark's own error class, or "other".
        """


class ExactlyOnceListener(StreamingQueryListener):
    """Add it with `spark.streams.addListener(...)`: it logs each batch and calls the observers.

    `source`: the options of the query's kafka_eos source. Needed only before pyspark 4.2: there Spark does
    not report where a source ends, so the listener asks the brokers. `sink`: the options of the query's
    writer, to read its ledger where another process commits the batches (`format("kafka_eos")`, Spark
    Connect). OptionsError where they cannot work.
    """

    def __init__(
        self,
        *observers: Observer,
        source: Mapping[str, str | int | bool | float] | None = None,
        sink: Mapping[str, str | int | bool | float] | None = None,
    ) -> None:
        self._observers = observers
        self._source = None if source is None else SourceOptions.parse(source)
        self._sink = None if sink is None else SinkOptions.parse(sink)
        self._newest: dict[str, BatchProgress] = {}
        self._logged: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def newest(self, query_id: str) -> BatchProgress | None:
        """The newest finished batch of a query, None where there is none yet. Any thread may ask."""
        with self._lock:
            return self._newest.get(str(query_id))

    # ---- Spark's events

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Calls the observers. Spark waits for this in start()."""
        for observer in self._observers:
            self._guarded(observer.started, str(event.id), str(event.runId), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Reads the progress, keeps it as the query's newest, logs it, calls the observers."""
        self._guarded(self._progressed, event)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Does nothing: the newest batch is still the newest."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Calls the observers."""
        error = error_name(event.exception, event.errorClassOnException)
        for observer in self._observers:
            self._guarded(observer.ended, str(event.id), str(event.runId), error)

    # ---- inside

    def _progressed(self, event: QueryProgressEvent) -> None:
        body = json.loads(event.progress.json)
        query_id, batch_id = str(body["id"]), int(body["batchId"])
        published = reports.find(query_id, batch_id)
        decision = None
        if published is None and self._sink is not None:
            decision = self._guarded(self._decided, query_id, batch_id)
        progress = read_progress(body, published, decision)
        if progress.latest is None and progress.end and self._source is not None:
            ends = self._guarded(self._ends, list(progress.end))
            progress = read_progress(body, published, decision, ends)
        with self._lock:
            self._newest.pop(query_id, None)
            self._newest[query_id] = progress
            while len(self._newest) > MOST_QUERIES:
                del self._newest[next(iter(self._newest))]
        log.info("query %s: %s", progress.label, progress.as_metrics())
        for observer in self._observers:
            self._guarded(observer.progressed, progress)

    def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        assert self._source is not None
        return Offsets(Cluster.shared(self._source.client)).latest(partitions, self._source.isolation_level)

    def _decided(self, query_id: str, batch_id: int) -> Decision | None:
        """The ledger's decision about exactly this batch, if it is the newest one."""
        found = self._ledger().newest(settle=False)
        matches = found is not None and (found.query_id, found.batch_id) == (query_id, batch_id)
        return found if matches else None

    def _ledger(self) -> Ledger:
        assert self._sink is not None
        return Ledger(Cluster.shared(self._sink.client), self._sink.ledger_topic, self._sink.pipeline)

    def _guarded(self, call: Callable[..., Answer], *arguments: Any) -> Answer | None:
        """The call's result, None where it failed."""
        try:
            return call(*arguments)
        except Exception as error:
            # An observer must never stop a query.
            place = (getattr(call, "__qualname__", repr(call)), type(error).__name__)
            if place not in self._logged:
                self._logged.add(place)
                log.warning("%s failed with %s; the same failure there is not logged again", *place, exc_info=True)
            return None


def error_name(text: str | None, spark_class: str | None) -> str | None:
    """The class of the error that ended a query, as far as Spark's text names it: one of `kafka_core.errors`,
    otherwise Spark's, otherwise "other"; None where there was no error."""
    if text is None:
        return None
    # The last one named was raised; those before it are its causes.
    ours = [name for name in _ERROR_NAME.findall(text) if name in ERROR_NAMES]
    return ours[-1] if ours else spark_class or "other"


__all__ = ["ERROR_NAMES", "ExactlyOnceListener", "Observer", "error_name"]
