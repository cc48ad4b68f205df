"""All facts of a finished micro-batch: Spark's progress and the report of its commit, as one value.

Owns: reading Spark's progress JSON, the lag behind the source's end, the names under which numbers are shown.
Does not know: pyspark, brokers, the display of the value.
Invariants:
- An unknown number is None, never 0.
- Any progress of any query can be read, regardless of its sources and sink.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.commit.reports import Published
from pyspark_kafka_eos.model import Decision, Traffic

Positions = Mapping[TopicPartition, int]

_NO_REPORT = re.compile(r"\.PythonMicroBatchStream@")
"""Spark's description of a Python source that cannot report its end: all of them before pyspark 4.2. Spark
then gives the batch's end as latestOffset, which with maxOffsetsPerTrigger would show a query as having
nothing left."""


@dataclass(frozen=True)
class Lag:
    """Offsets between the end of a batch and the end of its partitions. Offsets are not counts: they include
    markers."""

    minimum: int
    maximum: int
    average: float
    total: int


@dataclass(frozen=True)
class BatchProgress:
    """One finished micro-batch. Times in milliseconds, `left_s` in seconds; None for a value unknown to this
    process.

    `start`, `end`, `latest`: positions of the query's Kafka sources before and after the batch, and where the
    partitions ended when the batch was planned. `rows_per_s`: rows over the whole trigger's time. `pipeline`
    and everything after it come from the commit: see `CommitReport`. `left_s` is infinite where the
    transactions have no timeout. `decided_ms` is the time of the decision by the driver's clock, set where
    the ledger was read. `traffic`: what sending the records took.
    """

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    input_rows: int
    rows_per_s: float | None
    batch_ms: int | None
    start: Positions | None
    end: Positions | None
    latest: Positions | None
    pipeline: str | None = None
    records: int | None = None
    bytes: int | None = None
    slots: int | None = None
    commit_ms: float | None = None
    visible_ms: float | None = None
    left_s: float | None = None
    retries: int | None = None
    fences: int | None = None
    repaired: int | None = None
    redone: int | None = None
    resumed: bool | None = None
    decided_ms: int | None = None
    traffic: Traffic | None = None

    @property
    def label(self) -> str:
        """The query's name, or its id where it has none."""
        return self.name or self.query_id

    @property
    def lag(self) -> Lag | None:
        """How far the batch's end is behind the sources' end; None where either is unknown, or no source is Kafka."""
        if not self.end or not self.latest:
            return None
        # A partition without a position is new, and read from its beginning.
        behind = [max(0, last - self.end.get(where, 0)) for where, last in self.latest.items()]
        return Lag(min(behind), max(behind), sum(behind) / len(behind), sum(behind))

    def as_metrics(self) -> dict[str, int | float]:
        """The known numbers by name: those of Spark's own Kafka source under its names, ours in the same
        style. `secondsLeft` is left out where there is no timeout, so the result is always plain JSON."""
        lag = self.lag
        named: dict[str, int | float | None] = {
            "batchId": self.batch_id,
            "minOffsetsBehindLatest": lag.minimum if lag else None,
            "maxOffsetsBehindLatest": lag.maximum if lag else None,
            "avgOffsetsBehindLatest": lag.average if lag else None,
            "commitMs": self.commit_ms,
            "visibleMs": self.visible_ms,
            "secondsLeft": None if self.left_s == math.inf else self.left_s,
            "records": self.records,
            "bytes": self.bytes,
            "retries": self.retries,
            "fences": self.fences,
            "repaired": self.repaired,
            "redone": self.redone,
            **(_of_traffic(self.traffic) if self.traffic is not None else {}),
        }
        return {name: value for name, value in named.items() if value is not None}


def read_progress(
    body: Mapping[str, Any],
    published: Published | None = None,
    decision: Decision | None = None,
    latest: Positions | None = None,
) -> BatchProgress:
    """Spark's progress JSON joined with the `published` report of the batch's commit in this process, or with
    the ledger's `decision`. `latest` is used where Spark does not report where the sources end."""
    sources = body.get("sources") or []
    durations = body.get("durationMs") or {}
    commit: dict[str, Any] = {}
    if published is not None:
        commit = _of_report(published)
    elif decision is not None:
        commit = _of_decision(decision)
    return BatchProgress(
        query_id=str(body["id"]),
        run_id=str(body["runId"]),
        name=body.get("name"),
        batch_id=int(body["batchId"]),
        input_rows=int(body.get("numInputRows") or 0),
        rows_per_s=_number(body.get("processedRowsPerSecond")),
        batch_ms=durations.get("triggerExecution"),
        start=_positions(sources, "startOffset"),
        end=_positions(sources, "endOffset"),
        latest=_latest(sources) or latest,
        **commit,
    )


def _of_report(published: Published) -> dict[str, Any]:
    report = published.report
    return {
        "pipeline": published.pipeline,
        "records": report.records,
        "bytes": report.bytes,
        "slots": report.slots,
        "commit_ms": report.commit_ms,
        "visible_ms": report.visible_ms,
        "left_s": report.left_ms / 1000,
        "retries": report.retries,
        "fences": report.fences,
        "repaired": report.repaired,
        "redone": report.redone,
        "resumed": report.resumed,
        "traffic": report.traffic,
    }


def _of_decision(decision: Decision) -> dict[str, Any]:
    # The ledger contains neither the commit's duration nor whether it was interrupted.
    return {
        "pipeline": decision.pipeline,
        "records": decision.records,
        "bytes": sum(seal.bytes for seal in decision.seals),
        "slots": len(decision.seals),
        "retries": sum(seal.retries for seal in decision.seals),
        "fences": sum(seal.attempt for seal in decision.seals),
        "repaired": decision.repaired,
        "decided_ms": decision.decided_ms,
        "traffic": decision.traffic,
    }


def _of_traffic(traffic: Traffic) -> dict[str, int | float | None]:
    return {
        "produceRequests": traffic.requests,
        "requestLatencyAvgMs": traffic.latency_mean_ms,
        "requestLatencyMaxMs": traffic.longest_us / 1000,
        "throttleMs": traffic.throttled_ms,
        "batchSizeAvgBytes": traffic.batch_mean_bytes,
        "connections": traffic.connections,
    }


def _positions(sources: list[Mapping[str, Any]], name: str) -> dict[TopicPartition, int] | None:
    """The positions of all Kafka sources; where two read one partition the lower counts. None without any."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        for where, offset in _kafka_positions(source.get(name)).items():
            found[where] = min(offset, found.get(where, offset))
    return found or None


def _latest(sources: list[Mapping[str, Any]]) -> dict[TopicPartition, int] | None:
    """Where the partitions of all Kafka sources end; None unless this is known for every source."""
    for source in sources:
        known = not _NO_REPORT.search(str(source.get("description"))) and _kafka_positions(source.get("latestOffset"))
        if _kafka_positions(source.get("endOffset")) and not known:
            return None
    return _positions(sources, "latestOffset")


def _kafka_positions(value: Any) -> dict[TopicPartition, int]:
    # Spark's JSON has the offset as an object, its Python classes have it as text. Other sources have other
    # forms.
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, Mapping):
        return {}
    found: dict[TopicPartition, int] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, Mapping):
            return {}
        for number, offset in partitions.items():
            if not (str(number).isdigit() and type(offset) is int and offset >= 0):
                return {}
            found[TopicPartition(str(topic), int(number))] = offset
    return found


def _number(value: Any) -> float | None:
    # Spark omits a rate that it cannot compute, or gives it as text ("NaN").
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
