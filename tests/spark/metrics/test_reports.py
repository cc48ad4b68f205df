"""Reports of commits are kept for those who show them, and not for ever."""

from __future__ import annotations

from connector.commit import reports
from tests.spark.metrics.examples import REPORT, published


def test_a_report_is_found_by_query_and_batch_and_by_nothing_else() -> None:
    reports.publish("orders", "found", REPORT)

    found = reports.find("found", 7)
    assert found is not None
    assert (found.pipeline, found.report) == ("orders", REPORT)
    assert reports.find("found", 8) is None
    assert reports.find("other", 7) is None


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
