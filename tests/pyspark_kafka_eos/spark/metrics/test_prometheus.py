"""What Prometheus is told: judged by its own parser, over HTTP, and by the documents that use the names."""

from __future__ import annotations

import json
import math
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pyspark_kafka_eos.spark.metrics.progress import read_progress
from pyspark_kafka_eos.spark.metrics.prometheus import (
    MOST_QUERIES,
    MetricsServer,
    PrometheusMetrics,
    serve_metrics,
)
from tests.pyspark_kafka_eos.spark.metrics.examples import batch, spark_json

DOCS = Path(__file__).parents[4] / "docs"
LABELS = {"query": "clean-orders"}


def samples_in(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Scrape:
    """The samples of a registry by name and labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.samples = samples_in(generate_latest(registry).decode())

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, frozenset({**LABELS, **labels}.items())))

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


@pytest.fixture
def metrics() -> PrometheusMetrics:
    return PrometheusMetrics()


def test_a_batch_is_exported_in_base_units_under_its_query(metrics: PrometheusMetrics) -> None:
    metrics.progressed(batch())

    scrape = Scrape(metrics.registry)
    expected = {
        "kafka_eos_batches_total": 1, "kafka_eos_records_total": 90, "kafka_eos_written_bytes_total": 4096,
        "kafka_eos_retries_total": 2, "kafka_eos_fences_total": 3, "kafka_eos_repairs_total": 1,
        "kafka_eos_redone_batches_total": 1, "kafka_eos_resumed_batches_total": 0,
        "kafka_eos_produce_requests_total": 4, "kafka_eos_produce_request_seconds_total": 0.01,
        "kafka_eos_produce_request_seconds_max": 0.0045, "kafka_eos_throttle_seconds_total": 0.3,
        "kafka_eos_record_batches_total": 8, "kafka_eos_sent_bytes_total": 2048, "kafka_eos_connections": 3,
        "kafka_eos_commit_seconds_sum": 0.0215, "kafka_eos_visible_seconds_sum": 0.03,
        "kafka_eos_batch_seconds_sum": 0.4, "kafka_eos_transaction_left_seconds": 890,
        "kafka_eos_offsets_behind_latest_min": 0, "kafka_eos_offsets_behind_latest_max": 40,
        "kafka_eos_offsets_behind_latest_avg": 20, "kafka_eos_offsets_behind_latest": 40,
        "kafka_eos_last_batch_id": 7,
    }  # fmt: skip
    assert {name: scrape.value(name) for name in expected} == pytest.approx(expected)
    assert scrape.value("kafka_eos_commit_seconds_bucket", le="0.02") == 0
    assert scrape.value("kafka_eos_commit_seconds_bucket", le="0.05") == 1


def test_counters_add_up_and_gauges_say_the_newest(metrics: PrometheusMetrics) -> None:
    metrics.progressed(batch())
    metrics.progressed(batch(batch_id=8, records=10, left_s=880.0))

    scrape = Scrape(metrics.registry)
    assert scrape.value("kafka_eos_batches_total") == 2
    assert scrape.value("kafka_eos_records_total") == 100
    assert scrape.value("kafka_eos_transaction_left_seconds") == 880
    assert scrape.value("kafka_eos_last_batch_id") == 8


def test_what_is_not_known_is_not_exported(metrics: PrometheusMetrics) -> None:
    metrics.progressed(read_progress({"id": "q", "runId": "r", "batchId": 3}))

    samples = Scrape(metrics.registry).samples
    known = {name for name, labels in samples if ("query", "q") in labels}
    assert known == {
        "kafka_eos_batches_total", "kafka_eos_batches_created", "kafka_eos_last_batch_id",
        "kafka_eos_last_batch_timestamp_seconds", "kafka_eos_query_info", "kafka_eos_query_running",
    }  # fmt: skip


def test_transactions_without_a_timeout_have_infinitely_long(metrics: PrometheusMetrics) -> None:
    metrics.progressed(batch(left_s=math.inf))

    assert Scrape(metrics.registry).value("kafka_eos_transaction_left_seconds") == math.inf


def test_a_query_runs_until_it_ends_and_an_error_is_counted_by_its_class(metrics: PrometheusMetrics) -> None:
    def running() -> float | None:
        return metrics.registry.get_sample_value("kafka_eos_query_running", {"query": "clean-orders"})

    metrics.started("6d4f", "91aa", "clean-orders")
    assert running() == 1
    metrics.ended("6d4f", "91aa", "DecisionBroken")

    assert running() == 0
    assert failures(metrics)["DecisionBroken"] == 1
    assert sum(failures(metrics).values()) == 1


COUNTERS = {
    f"kafka_eos_{name}_total"
    for name in (
        "batches", "records", "written_bytes", "retries", "fences", "repairs", "redone_batches", "resumed_batches",
        "produce_requests", "produce_request_seconds", "throttle_seconds", "record_batches", "sent_bytes",
    )
}  # fmt: skip


def test_counters_stand_at_0_when_the_query_starts_so_that_its_first_batch_is_an_increase(
    metrics: PrometheusMetrics,
) -> None:
    metrics.started("6d4f", "91aa", "clean-orders")

    before = Scrape(metrics.registry)
    metrics.progressed(batch(resumed=True))
    after = Scrape(metrics.registry)

    assert {name: before.value(name) for name in COUNTERS} == dict.fromkeys(COUNTERS, 0.0)
    assert before.value("kafka_eos_commit_seconds_count") == before.value("kafka_eos_batch_seconds_count") == 0
    # The very same series.
    assert all((after.value(name) or 0) > 0 for name in COUNTERS)
    assert after.value("kafka_eos_commit_seconds_count") == 1


def test_what_the_first_batch_does_not_say_is_withdrawn_and_not_exported_as_0(
    metrics: PrometheusMetrics,
) -> None:
    metrics.started("q", "r", None)
    metrics.progressed(read_progress({"id": "q", "runId": "r", "batchId": 3}))

    scrape = Scrape(metrics.registry)
    counters = {name: scrape.value(name, query="q") for name in COUNTERS}
    assert counters == {**dict.fromkeys(COUNTERS), "kafka_eos_batches_total": 1}
    assert scrape.value("kafka_eos_commit_seconds_count", query="q") is None


def test_a_batch_of_which_less_is_known_takes_back_nothing_and_nor_does_a_new_start(
    metrics: PrometheusMetrics,
) -> None:
    metrics.started("6d4f", "91aa", "clean-orders")
    metrics.progressed(batch())
    metrics.progressed(batch(batch_id=8, repaired=None, redone=None))
    metrics.ended("6d4f", "91aa", None)
    metrics.started("6d4f", "91ab", "clean-orders")

    scrape = Scrape(metrics.registry)
    assert scrape.value("kafka_eos_repairs_total") == scrape.value("kafka_eos_redone_batches_total") == 1
    assert scrape.value("kafka_eos_records_total") == 180


def test_the_time_of_the_newest_repair_is_exported_once_there_was_one() -> None:
    now = [1_000.0]
    metrics = PrometheusMetrics(clock=lambda: now[0])
    metrics.started("6d4f", "91aa", "clean-orders")
    metrics.progressed(batch(repaired=0))
    assert Scrape(metrics.registry).value("kafka_eos_last_repair_timestamp_seconds") is None

    metrics.progressed(batch(batch_id=8))
    now[0] = 2_000.0
    metrics.progressed(batch(batch_id=9, repaired=0))

    assert Scrape(metrics.registry).value("kafka_eos_last_repair_timestamp_seconds") == 1_000


def test_a_query_names_its_pipeline_from_its_first_batch_on(metrics: PrometheusMetrics) -> None:
    def pipelines() -> list[str]:
        samples = Scrape(metrics.registry).samples
        return [dict(labels)["pipeline"] for name, labels in samples if name == "kafka_eos_query_info"]

    metrics.started("6d4f", "91aa", "clean-orders")
    assert pipelines() == [""]
    metrics.progressed(batch())
    metrics.progressed(batch(batch_id=8, pipeline=None))

    assert pipelines() == ["orders"]


def failed(metrics: PrometheusMetrics) -> list[str]:
    """The errors that queries are down with."""
    samples = Scrape(metrics.registry).samples.items()
    return [dict(labels)["error"] for (name, labels), value in samples if name == "kafka_eos_query_failed" and value]


def test_a_query_has_failed_until_it_is_started_again_and_one_that_is_done_has_not(
    metrics: PrometheusMetrics,
) -> None:
    seen = []
    for error in ("DecisionBroken", "STREAM_FAILED", None):
        metrics.started("6d4f", "91aa", "clean-orders")
        running = failed(metrics)
        metrics.ended("6d4f", "91aa", error)
        seen.append((running, failed(metrics)))

    assert seen == [([], ["DecisionBroken"]), ([], ["STREAM_FAILED"]), ([], [])]


@pytest.mark.parametrize("error", ["STREAM_FAILED", "other"])
def test_a_failure_of_another_class_than_ours_is_an_increase_too(metrics: PrometheusMetrics, error: str) -> None:
    metrics.started("6d4f", "91aa", "clean-orders")
    before = failures(metrics)
    metrics.ended("6d4f", "91aa", error)

    assert before["other"] == 0
    assert failures(metrics) == {**before, "other": 1}


def failures(metrics: PrometheusMetrics) -> dict[str, float]:
    samples = Scrape(metrics.registry).samples.items()
    return {dict(labels)["error"]: value for (name, labels), value in samples if name.endswith("failures_total")}


def test_a_query_that_was_stopped_has_not_failed_and_its_first_failure_will_be_an_increase(
    metrics: PrometheusMetrics,
) -> None:
    metrics.started("6d4f", "91aa", None)
    metrics.ended("6d4f", "91aa", None)

    assert set(failures(metrics).values()) == {0}
    assert {"DecisionBroken", "LedgerUnreadable", "PipelineConflict"} <= set(failures(metrics))


@pytest.mark.slow
def test_series_of_queries_long_gone_are_dropped_and_the_others_stay(metrics: PrometheusMetrics) -> None:
    for number in range(MOST_QUERIES + 5):
        metrics.started(f"q{number}", "r", None)
        metrics.progressed(batch(query_id=f"q{number}", name=None))
        metrics.ended(f"q{number}", "r", "OutcomeUnknown")

    exported = {dict(labels)["query"] for _, labels in Scrape(metrics.registry).samples}
    assert exported == {f"q{number}" for number in range(5, MOST_QUERIES + 5)}


# ---- over HTTP


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    running = serve_metrics(0)
    try:
        yield running
    finally:
        running.close()


def scraped(server: MetricsServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def test_prometheus_gets_over_http_what_the_listener_was_told(server: MetricsServer) -> None:
    server.progressed(batch())

    assert samples_in(scraped(server))["kafka_eos_records_total", frozenset(LABELS.items())] == 90


def test_a_closed_server_frees_its_port() -> None:
    first = serve_metrics(0)
    first.close()
    second = serve_metrics(first.port)
    second.close()

    assert second.port == first.port


# ---- the documents

_NAME = re.compile(r"\bkafka_eos_\w+")


def exported_names() -> set[str]:
    """Every name that can be exported, from a query to which everything has happened."""
    metrics = PrometheusMetrics()
    metrics.started("6d4f", "91aa", "clean-orders")
    metrics.progressed(batch())
    metrics.ended("6d4f", "91aa", "DecisionBroken")
    return Scrape(metrics.registry).names


def expressions(panel: Any) -> Iterator[str]:
    """Every PromQL text in a dashboard or a file of rules."""
    if isinstance(panel, dict):
        for name, value in panel.items():
            if name in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(panel, list):
        for each in panel:
            yield from expressions(each)


def test_every_metric_of_the_dashboard_is_exported() -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text(encoding="utf-8"))

    used = {name for text in expressions(dashboard) for name in _NAME.findall(text)}
    assert used - exported_names() == set()
    assert len(used) >= 10


def test_every_metric_of_the_alerts_is_exported() -> None:
    rules = yaml.safe_load((DOCS / "prometheus-alerts.yaml").read_text(encoding="utf-8"))

    used = {name for text in expressions(rules) for name in _NAME.findall(text)}
    assert used - exported_names() == set()
    assert len(used) >= 3


def test_the_alert_on_broken_decisions_names_classes_that_are_there() -> None:
    from kafka_core import errors

    text = (DOCS / "prometheus-alerts.yaml").read_text(encoding="utf-8")
    named = {name for group in re.findall(r'error=~?"([\w|]+)"', text) for name in group.split("|")}

    assert "DecisionBroken" in named
    assert {name for name in named if not hasattr(errors, name)} == set()


def test_a_metric_that_is_not_exported_would_be_seen() -> None:
    panel = {"targets": [{"expr": "rate(kafka_eos_nonsense_total[5m])"}]}

    used = {name for text in expressions(panel) for name in _NAME.findall(text)}
    assert used - exported_names() == {"kafka_eos_nonsense_total"}


def test_the_example_of_a_progress_is_what_spark_prints() -> None:
    # The other tests stand on it: a field that were misspelt there would make them say nothing.
    assert read_progress(spark_json()).batch_ms == 400
