"""Groups with members of both protocols, and those that become of the other one, under each policy but the default:
the embedded broker and Apache Kafka 4.4.0 answer alike, or as `known` has it.
"""

from __future__ import annotations

import pytest

from tests.differential.brokers import Brokers, Pair
from tests.differential.cases import JUDGED, cases, check
from tests.differential.script import Scenario

pytestmark = JUDGED


@pytest.mark.parametrize(("pair", "scenario"), cases("4.4.0, upgrade", "4.4.0, downgrade", "4.4.0, disabled"))
def test_groups_migrate_as_in_apache_kafka(pair: Pair, scenario: Scenario, brokers: Brokers) -> None:
    check(pair, scenario, brokers)
