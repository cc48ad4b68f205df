"""What a batch leaves in memory: nothing that only Python's collector can free.

A driver has hundreds of thousands of objects, so a full collection comes once in thousands of batches. Requests and
answers that a circle holds stay until then, a whole Fetch of the ledger among them.
"""

from __future__ import annotations

import collections
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions, SourceOptions
from pyspark_kafka_eos.slot.writer import write_slot
from pyspark_kafka_eos.spark.source.batch_source import KafkaBatchReader
from tests.pyspark_kafka_eos.commit import batch_child
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, settings_for
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def left_by() -> Iterator[Callable[[Callable[[], object]], dict[str, int]]]:
    """Of a call: how many objects of each type only the collector could free."""

    def measured(call: Callable[[], object]) -> dict[str, int]:
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        call()
        gc.collect()
        found = collections.Counter(type(each).__qualname__ for each in gc.garbage)
        return dict(found.most_common(12))

    try:
        yield measured
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_batch_leaves_no_circle(
    broker: AnyKafka, scope: str, left_by: Callable[[Callable[[], object]], dict[str, int]]
) -> None:
    settings = settings_for(broker)
    pipeline: Any
    if scope == "batch":
        pipeline = batch_child.driver_of(settings)
    else:
        options = SinkOptions.parse(settings["options"])
        pipeline = PerTask(Run(Cluster.shared(options.client), options, settings["query"]))

    def process(batch: int) -> None:
        def slots(only: frozenset[int] | None = None) -> list[Seal]:
            plan = pipeline.plan(batch, only)
            if scope == "batch":
                return batch_child.write_all(plan, settings)
            return [write_slot(plan, slot, arrow_batches(rows)) for slot, rows in enumerate(settings["rows"])]

        pipeline.process(batch, slots, (str(batch),), {})

    pipeline.start(0)
    process(0)  # opens connections and loads code

    assert left_by(lambda: [process(batch) for batch in (1, 2)]) == {}


def test_a_query_of_the_source_leaves_no_circle(
    broker: AnyKafka, left_by: Callable[[Callable[[], object]], dict[str, int]]
) -> None:
    settings = settings_for(broker)
    batch_child.run_batch(settings)
    reader = KafkaBatchReader(
        SourceOptions.parse(
            {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "subscribe": settings["options"]["topic"],
                "startingOffsets": "earliest",
            }
        )
    )

    def query() -> int:
        return sum(rows.num_rows for part in reader.partitions() for rows in reader.read(part))

    assert query() == sum(EXPECTED.values())

    assert left_by(query) == {}
