"""The script of requests, played to the embedded broker and to Apache Kafka: the answers are equal, or listed in `known`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential import compare
from tests.differential.brokers import PAIRS, Brokers, Pair, open_brokers
from tests.differential.known import KNOWN
from tests.differential.script import Scenario, scenarios

pytestmark = [pytest.mark.kafka, pytest.mark.parity]


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    with open_brokers() as opened:
        yield opened


def _cases() -> Iterator[object]:
    for pair in PAIRS.values():
        for scenario in scenarios():
            if pair.plays(scenario):
                marks = [pytest.mark.slow] if scenario.slow else []
                yield pytest.param(pair, scenario, id=f"{pair.name}, {scenario.name}", marks=marks)


@pytest.mark.parametrize(("pair", "scenario"), list(_cases()))
def test_the_embedded_broker_answers_a_script_of_requests_as_apache_kafka_does(
    pair: Pair, scenario: Scenario, brokers: Brokers
) -> None:
    """Rule: seed 000 §5.1 and §5.5 (the server's checks and their order), seed 001 (updated epoch logic), seed 003
    (coordinator, EndTxnRequest, expiry), seed 004 (isolation.level): error codes, epochs, states, offsets, aborted lists."""
    embedded, real = brokers.transcripts(scenario, pair)
    assert real, "the scenario asked nothing"
    found = compare.differences(embedded, real)
    assert compare.problems(pair.name, scenario.name, found, KNOWN) == []
