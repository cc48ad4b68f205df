"""What becomes of the soak's page when one broker is soaked again."""

from __future__ import annotations

from tests.soak.page import HEAD, with_section

KAFKA = ["## Apache Kafka 4.3.1, foreachBatch", "", "60 minutes"]
EMBEDDED = ["## the embedded broker, foreachBatch", "", "| a | b |", "|---|---|", ""]


def test_a_run_of_one_broker_leaves_the_others_section() -> None:
    both = with_section(with_section("", KAFKA), EMBEDDED)
    again = [KAFKA[0], "", "10 minutes"]

    assert both.splitlines() == [*HEAD, *KAFKA, "", *EMBEDDED[:-1]]
    assert with_section(both, again).splitlines() == [*HEAD, *again, "", *EMBEDDED[:-1]]


def test_the_same_section_twice_changes_nothing() -> None:
    page = with_section(with_section("", KAFKA), EMBEDDED)

    assert with_section(page, EMBEDDED) == page
