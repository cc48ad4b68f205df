"""Every alert of docs/prometheus-alerts.yaml fires when its cause is played, and none of them in a calm run; the
dashboard's panels of what had to be mended show it.

The causes are commits on a broker and Spark's events about them, told to the listener. The metrics that come of it are
scraped once a minute, and Prometheus's promtool evaluates the rules over the scrapes.
"""

from __future__ import annotations

import json
import traceback
import uuid
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import QueryStartedEvent, QueryTerminatedEvent

from kafka_core import errors
from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit import reports
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.writer import write_slot
from pyspark_kafka_eos.spark.metrics.listener import ERROR_NAMES, ExactlyOnceListener
from pyspark_kafka_eos.spark.metrics.prometheus import PrometheusMetrics
from tests.pyspark_kafka_eos.commit.child import arrow_batches, run_child
from tests.pyspark_kafka_eos.commit.judge import settings_for
from tests.pyspark_kafka_eos.commit.test_damage import following, newest_value, put
from tests.pyspark_kafka_eos.commit.test_repair import decided_but_lost
from tests.pyspark_kafka_eos.spark.metrics.promtool import RULES, Scrape, evaluate, judge, severities
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

NAME = "clean-orders"
OPERATOR, AUTHOR, DOWN = (
    "ExactlyOncePipelineNeedsAnOperator",
    "ExactlyOnceJobNeedsItsAuthor",
    "ExactlyOnceQueryDown",
)
BEHIND, NEAR = "ExactlyOnceQueryFallsBehind", "ExactlyOnceTransactionsNearTheirTimeout"
REWRITTEN = "ExactlyOnceSlotsRewritten"


WHO = {"the operator": OPERATOR, "the author of the job": AUTHOR}
CALLING = sorted(
    # The base class is never raised, and a data directory in use is the embedded broker's error.
    name
    for name in ERROR_NAMES - {"UserError", "StorageInUse"}
    if getattr(errors, name).who_acts in WHO
)
"""The errors of a query after which an operator or the job's author has to act."""


class Story:
    """A driver's process with one query, and a Prometheus that scrapes it once a minute from minute 0 on."""

    def __init__(self) -> None:
        self.scrapes: list[Scrape] = []
        # Its own: a process keeps the reports of all queries, and a batch's is that of all pipelines that its query
        # wrote.
        self.query = str(uuid.uuid4())
        self.new_process()

    def new_process(self) -> None:
        """What an earlier process of the driver counted is gone."""
        self.metrics = PrometheusMetrics(clock=lambda: 60.0 * len(self.scrapes))
        self.listener = ExactlyOnceListener(self.metrics)

    def minutes(self, count: int = 1) -> None:
        """Time passes; each minute begins with a scrape."""
        for _ in range(count):
            families = text_string_to_metric_families(generate_latest(self.metrics.registry).decode())
            samples = [sample for family in families for sample in family.samples]
            self.scrapes.append({_series(each.name, each.labels): each.value for each in samples})

    def nobody_answers(self, count: int) -> None:
        """Minutes without a driver."""
        self.scrapes += [{}] * count

    # ---- Spark's events

    def starts(self) -> None:
        self.listener.onQueryStarted(
            QueryStartedEvent(uuid.UUID(self.query), uuid.uuid4(), NAME, "2026-01-01T00:00:00Z", set())
        )

    def ends(self, exception: str | None = None, spark_class: str | None = None) -> None:
        self.listener.onQueryTerminated(
            QueryTerminatedEvent(uuid.UUID(self.query), uuid.uuid4(), exception, spark_class)
        )

    def finishes_batch(self, number: int, *, behind: int = 0) -> None:
        source = {"description": "KafkaV2[Subscribe[in]]", "startOffset": {"in": {"0": 0}}, "endOffset": {"in": {"0": 9}},
                  "latestOffset": {"in": {"0": 9 + behind}}}  # fmt: skip
        body = {"id": self.query, "runId": self.query, "name": NAME, "batchId": number, "sources": [source],
                "durationMs": {"triggerExecution": 400}}  # fmt: skip
        self.listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=json.dumps(body))))  # type: ignore[arg-type]

    # ---- what the query does

    def writes(self, settings: dict[str, Any]) -> None:
        """One micro-batch as the writer does it; what it raises ends the query."""
        try:
            report = _write(settings)
        except ExactlyOnceError:
            self.ends(
                f"[FOREACH_BATCH_USER_FUNCTION_ERROR] {traceback.format_exc()}",
                "FOREACH_BATCH_USER_FUNCTION_ERROR",
            )
        else:
            reports.publish(settings["options"]["pipeline"], self.query, report)
            self.finishes_batch(settings["batch"])

    # ---- what Prometheus finds

    def last(self, name: str) -> float | None:
        """The query's series of that name, as last scraped."""
        return self.scrapes[-1].get(_series(name, {"query": NAME}))

    def must_fire(self, alerts: dict[str, Collection[int]], error: str | None = None) -> None:
        """These alerts fire in these minutes, in no other, and all others never. `error`: the label of those about
        errors.
        """
        expected: dict[str, dict[int, list[dict[str, Any]]]] = {}
        for alert, severity in severities().items():
            labels = {"query": NAME, "severity": severity}
            if alert in (OPERATOR, AUTHOR, DOWN):
                labels["error"] = str(error)
            expected[alert] = {
                minute: [{"exp_labels": labels}] if minute in alerts.get(alert, ()) else []
                for minute in range(len(self.scrapes))
            }
        objections = judge(self.scrapes, expected)
        assert not objections, objections


def _series(name: str, labels: dict[str, str]) -> str:
    inside = ", ".join(f"{label}={json.dumps(value)}" for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}"


def _write(settings: dict[str, Any]) -> CommitReport:
    options = SinkOptions.parse(settings["options"])
    driver = PerTask(Run(Cluster.shared(options.client), options, settings["query"]))
    batch_id = settings["batch"]

    def write(only: frozenset[int] | None = None) -> list[Seal]:
        plan = driver.plan(batch_id, only)
        return [write_slot(plan, slot, arrow_batches(values)) for slot, values in enumerate(settings["rows"])]

    return driver.start(batch_id, write) or driver.process(batch_id, write, (), {})


# ---- nothing is wrong


def test_none_fires_in_a_calm_run_that_is_stopped_and_started_again(kafka: AnyKafka) -> None:
    settings, story = settings_for(kafka), Story()
    story.starts()
    for batch in range(3):
        story.minutes()
        story.writes(following(settings, batch) if batch else settings)
    story.minutes()
    story.ends()
    story.minutes(5)
    story.starts()
    story.writes(following(settings, 3))
    story.minutes(20)

    assert story.last("kafka_eos_records_total") == 4 * 1200
    story.must_fire({})


def test_none_fires_for_an_available_now_query_that_is_done_while_its_process_goes_on(
    kafka: AnyKafka,
) -> None:
    settings, story = settings_for(kafka), Story()
    story.starts()
    story.minutes()
    story.writes(settings)
    story.ends()
    story.minutes(30)

    assert story.last("kafka_eos_query_running") == 0
    story.must_fire({})


def test_none_fires_when_a_new_process_finishes_what_the_one_before_had_decided(kafka: AnyKafka) -> None:
    settings, story = decided_but_lost(kafka, lost=()), Story()
    story.starts()
    story.minutes(2)
    story.nobody_answers(3)
    story.new_process()
    story.starts()
    story.minutes()
    story.writes(settings)
    story.minutes(20)

    assert story.last("kafka_eos_resumed_batches_total") == 1
    story.must_fire({})


# ---- a query stops


def test_a_ledger_that_cannot_be_read_calls_the_operator_until_it_is_put_right(kafka: AnyKafka) -> None:
    settings, story = settings_for(kafka), Story()
    story.starts()
    story.writes(settings)
    story.minutes(2)
    good = newest_value(kafka, settings)
    put(kafka, settings, b"garbage")
    story.writes(following(settings))  # before the third scrape
    story.minutes(20)
    put(kafka, settings, good)
    story.starts()
    story.writes(following(settings))
    story.minutes(20)

    # Ten minutes behind the last scrape that saw it; down from the fifth minute on.
    story.must_fire({OPERATOR: range(2, 32), DOWN: range(7, 22)}, "LedgerUnreadable")


def test_a_query_that_fails_before_its_first_scrape_calls_all_the_same(kafka: AnyKafka) -> None:
    settings, story = settings_for(kafka), Story()
    assert run_child(settings).report["batch"] == 0
    put(kafka, settings, b"garbage")
    story.starts()
    story.writes(following(settings))
    story.minutes(3)

    story.must_fire({OPERATOR: range(3)}, "LedgerUnreadable")


def test_a_scheduler_that_starts_a_broken_query_again_and_again_does_not_interrupt_the_call(
    kafka: AnyKafka,
) -> None:
    settings, story = settings_for(kafka), Story()
    assert run_child(settings).report["batch"] == 0
    put(kafka, settings, b"garbage")
    for _ in range(6):
        story.starts()
        story.writes(following(settings))
        story.minutes(1)
        story.starts()
        story.minutes(1)
        story.writes(following(settings))
    story.minutes(1)

    story.must_fire({OPERATOR: range(13)}, "LedgerUnreadable")


def test_a_second_query_under_the_pipelines_name_calls_its_author(kafka: AnyKafka) -> None:
    settings, story = settings_for(kafka), Story()
    assert run_child({**settings, "query": "another"}).report["batch"] == 0
    story.starts()
    story.minutes()
    story.writes(settings)
    story.minutes(7)

    story.must_fire({AUTHOR: range(1, 8), DOWN: range(6, 8)}, "PipelineConflict")


@pytest.mark.parametrize("error", CALLING)
def test_every_error_after_which_somebody_must_act_calls_him(error: str) -> None:
    story = Story()
    story.starts()
    story.minutes()
    story.ends(f"Spark's text\nkafka_core.errors.{error}: what is known", "STREAM_FAILED")
    story.minutes()

    story.must_fire({WHO[getattr(errors, error).who_acts]: [1]}, error)


def test_an_error_of_spark_brings_the_query_down(kafka: AnyKafka) -> None:
    story = Story()
    story.starts()
    story.minutes()
    story.ends("org.apache.spark.SparkException: Job aborted", "STREAM_FAILED")
    story.minutes(8)
    story.starts()
    story.minutes(3)

    story.must_fire({DOWN: range(6, 9)}, "STREAM_FAILED")


# ---- a query goes on


def test_a_query_that_falls_further_and_further_behind_is_named(kafka: AnyKafka) -> None:
    story = Story()
    story.starts()
    for batch in range(45):
        # Behind by 10 more each minute, then for as long at most as far behind as it was.
        story.finishes_batch(batch, behind=10 * min(batch, 40))
        story.minutes()

    # Looked at from the second scrape on, it is behind at all from the one after; then the quarter of an hour of `for`.
    first = 1 + 15 + 15
    story.must_fire({BEHIND: range(first, 45)})


def test_a_query_that_catches_up_is_not(kafka: AnyKafka) -> None:
    story = Story()
    story.starts()
    for batch in range(45):
        story.finishes_batch(batch, behind=1000 - 10 * batch)
        story.minutes()

    story.must_fire({})


def test_a_decision_shortly_before_the_transactions_time_out_is_named_while_the_query_runs(
    kafka: AnyKafka,
) -> None:
    settings, story = settings_for(kafka), Story()
    settings["options"]["kafka.transaction.timeout.ms"] = "30000"
    story.starts()
    story.minutes()
    story.writes(settings)
    story.minutes(2)
    story.ends()
    story.minutes(3)

    story.must_fire({NEAR: [1, 2]})


@pytest.mark.parametrize("scraped_before", [True, False])
def test_slots_that_were_written_again_in_a_new_process_are_reported_for_an_hour(
    kafka: AnyKafka, scraped_before: bool
) -> None:
    settings, story = decided_but_lost(kafka, lost=(1,)), Story()
    story.starts()
    story.minutes(3)
    story.nobody_answers(20)
    story.new_process()
    story.starts()
    if scraped_before:
        story.minutes()
    story.writes(settings)
    repaired = len(story.scrapes)
    story.minutes(70)

    assert story.last("kafka_eos_repairs_total") == 1
    story.must_fire({REWRITTEN: range(repaired, repaired + 60)})


# ---- the dashboard


def panels() -> dict[str, str]:
    """Title and legend of each of the dashboard's expressions -> the expression, for every query."""
    dashboard = json.loads((RULES.parent / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return {
        f"{panel['title']}, {target['legendFormat']}": target["expr"]
        .replace("$query", ".*")
        .replace("$__rate_interval", "5m")
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }


def test_a_repair_in_the_first_batch_of_a_new_process_shows_in_the_panels(kafka: AnyKafka) -> None:
    settings, story = decided_but_lost(kafka, lost=(1,)), Story()
    story.starts()
    story.minutes()
    story.writes(settings)
    story.minutes(5)

    mended = "What had to be mended, {{query}}: "
    for legend in ("repairs", "resumed"):
        shown = f"({panels()[mended + legend]}) > bool 0"
        assert not evaluate(story.scrapes, shown, 5, {f'{{query="{NAME}"}}': 1})


def test_a_failure_of_any_class_shows_in_its_panel() -> None:
    for text, counted in (
        ("kafka_core.errors.DecisionBroken: x", "DecisionBroken"),
        ("java.lang.Error", "other"),
    ):
        story = Story()
        story.starts()
        story.minutes()
        story.ends(text, "STREAM_FAILED")
        story.minutes(5)

        shown = f"({panels()['Failures in the last hour, {{query}}: {{error}}']}) > bool 0"
        assert not evaluate(story.scrapes, shown, 5, {f'{{query="{NAME}", error="{counted}"}}': 1})


# ---- the texts


def test_what_is_said_of_a_query_has_its_numbers(kafka: AnyKafka) -> None:
    story = Story()
    story.starts()
    for batch in range(40):
        story.finishes_batch(batch, behind=100 + 10 * batch)
        story.minutes()
    labels = {"query": NAME, "severity": "warning"}
    summary = f"{NAME} is 150 offsets further behind than a quarter of an hour ago"

    assert not judge(
        story.scrapes,
        {BEHIND: {39: [{"exp_labels": labels, "exp_annotations": {"summary": summary}}]}},
        annotations=True,
    )


def test_an_alert_that_does_not_fire_would_be_seen() -> None:
    story = Story()
    story.starts()
    story.minutes()

    with pytest.raises(AssertionError, match="FAILED"):
        story.must_fire({REWRITTEN: [0]})
