"""Reports of commits are kept for those who show them, and not for ever."""

from __future__ import annotations

from pyspark_kafka_eos.commit import reports
from tests.pyspark_kafka_eos.spark.metrics.examples import REPORT, published


def test_a_report_is_found_by_query_and_batch_and_by_nothing_else() -> None:
    reports.publish("orders", "found", REPORT)

    found = reports.find("found", 7)
    assert found is not None
    assert (found.pipeline, found.report) == ("orders", REPORT)
    assert reports.find("found", 8) is None
    assert reports.find("other", 7) is None


def test_a_function_that_writes_two_pipelines_is_one_batch_of_both() -> None:
    one = published(resumed=True, left_ms=5_000.0).report
    reports.publish("orders", "both", REPORT, "here")
    reports.publish("refused", "both", one, "here")
    # The same name on another cluster is another pipeline.
    reports.publish("orders", "both", REPORT, "there")
    reports.publish("orders", "both", REPORT, "there")

    found = reports.find("both", 7)

    assert found is not None
    assert found.pipeline == "orders, refused"
    whole = found.report
    assert (whole.records, whole.bytes, whole.slots, whole.repaired) == (270, 3 * 4096, 12, 3)
    assert (whole.retries, whole.fences, whole.redone) == (6, 9, 3)
    assert (whole.commit_ms, whole.visible_ms) == (64.5, 90.0)
    assert (whole.left_ms, whole.resumed) == (5_000.0, True)
    assert whole.traffic is not None and whole.traffic.requests == 12


def test_the_oldest_reports_go_first_and_never_more_than_the_limit_are_kept() -> None:
    count = reports.MOST_REPORTS + 10
    for number in range(count):
        reports.publish("orders", "many", published(batch_id=number).report)

    kept = [number for number in range(count) if reports.find("many", number) is not None]
    assert kept == list(range(10, count))


def test_a_batch_that_is_reported_again_counts_as_new() -> None:
    reports.publish("orders", "again", REPORT)
    for number in range(reports.MOST_REPORTS - 1):
        reports.publish("orders", "filler", published(batch_id=number).report)
    reports.publish("orders", "again", published(resumed=True).report)
    reports.publish("orders", "filler", published(batch_id=-1).report)

    found = reports.find("again", 7)
    assert found is not None
    assert found.report.resumed
