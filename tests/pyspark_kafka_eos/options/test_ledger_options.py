"""The options of a read of the ledger: what is accepted, and what is refused with which words."""

from __future__ import annotations

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.options import asks_for_ledger, parse_ledger

LEAST = {"kafka.bootstrap.servers": "broker:9092", "ledger": "orders"}


def refusal(options: dict[str, str]) -> list[str]:
    """The lines of the refusal, without its heading."""
    with pytest.raises(OptionsError) as caught:
        parse_ledger(options)
    return caught.value.problems()


def test_a_pipeline_or_all_of_them_are_read() -> None:
    assert parse_ledger(LEAST).pipeline == "orders"
    assert parse_ledger({**LEAST, "ledger": "*"}).pipeline is None
    assert parse_ledger(LEAST).topic == "exactly-once-ledger"
    assert parse_ledger({**LEAST, "LEDGER.TOPIC": "other"}).topic == "other"


def test_the_clients_settings_are_those_of_source_and_sink() -> None:
    found = parse_ledger({**LEAST, "kafka.client.id": "me", "kafka.security.protocol": "PLAINTEXT"})

    assert (found.client.client_id, found.client.bootstrap_servers) == ("me", ("broker:9092",))


def test_a_name_that_no_pipeline_can_have_is_refused() -> None:
    (line,) = refusal({**LEAST, "ledger": "or ders"})

    assert line.startswith("ledger is 'or ders': must be *, or 1 to 200 of the characters")


@pytest.mark.parametrize("name", ["subscribe", "startingOffsets", "topic", "pipeline"])
def test_options_about_records_have_no_meaning_with_the_ledger(name: str) -> None:
    (line,) = refusal({**LEAST, name: "x"})

    assert line == (
        f"{name} has no meaning with the option ledger, which reads decisions and no records: leave one of them out"
    )


@pytest.mark.parametrize("name", ["isolation.level", "acks", "batch.size", "group.id"])
def test_settings_of_consumers_and_producers_have_no_meaning_either(name: str) -> None:
    (line,) = refusal({**LEAST, f"kafka.{name}": "1"})

    assert line.startswith(f"kafka.{name} has no meaning for the ledger")


def test_harmless_settings_are_reported_here_too() -> None:
    (reported,) = parse_ledger({**LEAST, "kafka.session.timeout.ms": "1"}).ignored

    assert reported.startswith("kafka.session.timeout.ms (")


def test_a_misspelt_option_names_the_nearest_one() -> None:
    (line,) = refusal({**LEAST, "ledger.topik": "x"})

    assert line == "ledger.topik is not a known option: did you mean ledger.topic?"


@pytest.mark.parametrize(("name", "asks"), [("ledger", True), ("LEDGER", True), ("ledger.topic", False)])
def test_the_option_ledger_alone_asks_for_the_ledger(name: str, asks: bool) -> None:
    assert asks_for_ledger({name: "x"}) is asks
