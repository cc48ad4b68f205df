"""The script of requests, played to the embedded broker and to Apache Kafka 4.4.0: the answers are equal, or listed in
`known`.
"""

from __future__ import annotations

import pytest

from tests.differential.brokers import Brokers, Pair
from tests.differential.cases import JUDGED, cases, check
from tests.differential.script import Scenario

pytestmark = JUDGED


@pytest.mark.parametrize(("pair", "scenario"), cases("4.4.0", "4.4.0, older client"))
def test_the_embedded_broker_answers_a_script_of_requests_as_apache_kafka_does(
    pair: Pair, scenario: Scenario, brokers: Brokers
) -> None:
    """Rule: seed 000 §5.1 and §5.5 (the server's checks and their order), seed 001 (updated epoch logic), seed 003
    (coordinator, EndTxnRequest, expiry), seed 004 (isolation.level): error codes, epochs, states, offsets, aborted
    lists.
    """
    check(pair, scenario, brokers)
