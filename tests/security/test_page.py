"""The table of the matrix: its form, and that the one in the documents has every way and every part."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security import cells, embedded, ways
from tests.security.page import PAGE, Cell, page, summary
from tests.security.real import VERSIONS

RUN = [
    Cell("Kafka", "TLS", "source", True, "20 = 20"),
    Cell("Kafka", "TLS", "doctor", False, "Differs: exit code 1"),
    Cell("Kafka", "GSSAPI", "source", None, "no KDC"),
    Cell("Kafka", "GSSAPI", "doctor", None, "no KDC"),
]


def test_a_table_has_a_row_for_each_way_and_the_reasons_below() -> None:
    text = page(RUN, ["source", "doctor"], rows=20, spark="4.3.0")

    assert "## Kafka\n\n| | source | doctor |\n|---|---|---|\n" in text
    assert "| TLS | 20 = 20 | FAILED |" in text
    assert "| GSSAPI | not possible | not possible |" in text
    assert text.count("- GSSAPI: not possible, no KDC") == 1
    assert text.endswith("1 of 2 cells passed; 2 are not possible.\n")


def test_the_table_in_the_documents_has_every_way_part_and_broker() -> None:
    parts = PAGE.read_text().split("\n## ")[1:]

    assert [part.partition("\n")[0] for part in parts] == [
        *(f"Apache Kafka {version}" for version in VERSIONS),
        "Embedded broker",
    ]
    for part in parts:
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
        assert rows[0] == list(cells.USES)
        assert [row[0] for row in rows[1:]] == list(ways.NAMES)
        assert {len(row) for row in rows[1:]} == {1 + len(cells.USES)}
        assert "FAILED" not in part


@pytest.mark.parametrize("way", embedded.LACKS)
def test_what_the_embedded_broker_lacks_stands_in_its_document(way: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "embedded-broker.md").read_text()

    assert way in ways.NAMES
    assert "delegation tokens, GSSAPI" in text


def test_the_summary_counts_failures() -> None:
    assert summary(RUN) == "1 of 2 cells passed; 2 are not possible."
