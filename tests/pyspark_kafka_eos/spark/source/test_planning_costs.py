"""How many requests the planning of a batch costs, by API: one more fails here. Without Spark.

What the first batch of a run asks (where the topics begin, which cluster it is) is not counted.
"""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit.requests import counting
from tests.pyspark_kafka_eos.spark.source.test_view import options_of, write

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

PLANNED = {"ListOffsets": 1, "Metadata": 1}
"""Which partitions there are, and where each ends. A trigger that finds nothing new takes the same."""


@pytest.mark.parametrize(
    "more",
    [{}, {"maxOffsetsPerTrigger": "5"}, {"failOnDataLoss": "false"}],
    ids=["all", "limited", "lenient"],
)
def test_a_batch_is_planned_with_these_requests_and_no_other(
    kafka: EmbeddedKafka, topic: MakeTopic, more: dict[str, Any]
) -> None:
    name = topic(2)
    write(kafka, name, 3, 3)
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name, startingOffsets="earliest", **more))
    first = reader.initialOffset()
    second = reader.latestOffset(first)
    assert reader.partitions(first, second)
    write(kafka, name, 3, 3)

    with counting(kafka) as counter:
        third = reader.latestOffset(second)
        assert reader.partitions(second, third)
        found = counter.taken()
        last = reader.latestOffset(third)
        reader.partitions(third, last)
        counter.taken()
        assert reader.latestOffset(last) == last
        idle = counter.taken()

    assert (found, idle) == (PLANNED, PLANNED)
