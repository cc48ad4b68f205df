"""docs/brokers.md names the requests that the code sends and the defaults that a broker has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from tests.support.brokers import AnyKafka

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "brokers.md"
SENDERS = ("client", "commit", "operations", "slot")
LOGINS = {"SaslHandshake", "SaslAuthenticate"}
"""Of connections, in connector/pyspark_kafka_eos/client/net/exchange.py; the page is about batches."""


def rows_under(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = re.search(r"\|---.*?\n((?:\|.*\n)+)", section)
    assert table is not None
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[1].splitlines()]


def test_the_page_names_every_request_that_is_sent_and_no_other() -> None:
    sent = {
        name
        for folder in SENDERS
        for path in (ROOT / "connector" / "pyspark_kafka_eos" / folder).rglob("*.py")
        for name in re.findall(r"\bm\.([A-Z]\w+)Request\b", path.read_text(encoding="utf-8"))
    }
    named = {name for _, text in rows_under("Requests") for name in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+|\bProduce\b|\bFetch\b|\bMetadata\b", text)}  # fmt: skip

    assert named == sent - LOGINS


@pytest.mark.kafka
@pytest.mark.real
def test_the_defaults_of_the_settings_are_those_of_the_newest_broker(kafka: AnyKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    broker = str(next(iter(admin.list_topics(timeout=30).brokers)))
    resource = ConfigResource(ResourceType.BROKER, broker)
    found = admin.describe_configs([resource])[resource].result(30)

    def default(name: str) -> str:
        entry = found[name]
        # What the tests' broker was started with hides the default behind it.
        behind = [each for each in entry.synonyms.values() if each.source == ConfigSource.DEFAULT_CONFIG.value]
        return (behind[0] if behind else entry).value or ""

    named = {cells[0].strip("`"): cells[1] for cells in rows_under("Settings")}
    assert len(named) >= 10
    assert {name: default(name) for name in named} == named
