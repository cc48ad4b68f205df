"""A decision that is larger than the ledger's records may be: the error names what is too many, and nothing of the batch shows."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.brokers import AnyKafka
from tests.commit.child import run_child
from tests.commit.judge import EXPECTED, read_all, settings_for
from tests.commit.test_damage import with_options
from tests.conftest import MakeTopic

pytestmark = pytest.mark.kafka


def test_a_decision_that_is_too_large_for_the_ledger_names_its_tasks_and_places(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    ledger = topic(partitions=1, **{"cleanup.policy": "compact", "max.message.bytes": "200"})
    settings = with_options(settings_for(kafka), ledger_topic=ledger)

    error = run_child(settings).report["error"]

    assert error.startswith("OptionsError")
    assert "it names 3 tasks and" in error
    assert "raise max.message.bytes of that topic" in error
    assert "kafka.batch.size" not in error
    assert read_all(kafka, settings["options"]["topic"]) == Counter()
    # Nothing of it is in the way of the next run.
    with_room = with_options(settings, ledger_topic="exactly-once-ledger")
    assert run_child(with_room).report["records"] == EXPECTED.total()
