"""A micro-batch in one transaction: all of it at one instant, whatever happens. Both transaction versions."""

from __future__ import annotations

import pytest

from tests.brokers import AnyKafka
from tests.commit.batch_child import run_batch
from tests.commit.judge import EXPECTED, committed_offsets, read_all, settings_for

pytestmark = pytest.mark.kafka


def test_a_batch_is_there_once_with_its_offsets(broker: AnyKafka) -> None:
    settings = settings_for(broker)

    done = run_batch(settings)

    assert done == {"batch": 0, "records": 1200, "resumed": False, "repaired": 0, "redone": 0}
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]
