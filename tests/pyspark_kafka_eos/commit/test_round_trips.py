"""How many requests a batch costs, by API: one more fails here. What is sent at the start of a run is not counted.

A request that a batch waits for is paid by every batch of every query. So a new question goes into a request that is
sent already, as one more field, or to the start of a run, or to the way that refuses.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.drivers import pipeline_driver
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit.requests import Requests, counting

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

TASKS = 4

PLANNED: dict[tuple[str, int], Requests] = {
    ("task", 2): {},
    ("task", 1): {},
    ("batch", 2): {"ListOffsets": 1},
    ("batch", 1): {"DescribeTransactions": 1, "InitProducerId": 1, "ListOffsets": 1},
}
"""(scope, transaction version) -> what the plan takes, before any task begins."""

WRITTEN: dict[tuple[str, int], Requests] = {
    ("task", 2): {"InitProducerId": 4, "Produce": 4},
    ("task", 1): {"AddPartitionsToTxn": 4, "InitProducerId": 4, "Produce": 4},
    # A task sends its records, and to the log of turns that it wants one and that it is done.
    ("batch", 2): {"Produce": 12},
    ("batch", 1): {"AddPartitionsToTxn": 4, "Produce": 12},
}
"""What the tasks take, each with one batch of records for one partition, one after the other."""

_CHECKED_AND_DECIDED = {
    # Before the decision, whether it is there once it is acknowledged, and for the markers.
    "DescribeProducers": 3,
    "DescribeTransactions": 1,
    # Where the logs begin: no answer that a batch waits for anyway has it. On its way beside the two questions before
    # the decision.
    "ListOffsets": 1,
    "Produce": 2,
    "TxnOffsetCommit": 1,
}
_ADDED = {"AddOffsetsToTxn": 1, "AddPartitionsToTxn": 2}

COMMITTED: dict[tuple[str, int], Requests] = {
    ("task", 2): {**_CHECKED_AND_DECIDED, "EndTxn": 6},
    ("task", 1): {**_CHECKED_AND_DECIDED, **_ADDED, "EndTxn": 6, "InitProducerId": 2},
    ("batch", 2): {**_CHECKED_AND_DECIDED, "EndTxn": 2},
    ("batch", 1): {**_CHECKED_AND_DECIDED, **_ADDED, "EndTxn": 2, "InitProducerId": 1},
}
"""What the driver takes from the last seal on until the batch is done. Of the two Produce one has the decision, one the
note that it is ended, in a transaction of its own.
"""

NOT_COUNTED = "Fetch"
"""Tasks of scope=batch read the log of turns with it, and the broker holds an answer until there is a turn: how many
there are depends on time."""

OF_A_CONNECTION = "ApiVersions"
"""The first request on a connection. A busy one has another opened beside it, and no batch waits for that."""


@pytest.fixture(params=[2, 1], ids=["version2", "version1"])
def versioned(request: pytest.FixtureRequest) -> tuple[EmbeddedKafka, int]:
    """A broker, and the transaction version that it has."""
    return request.getfixturevalue({2: "kafka", 1: "kafka_zk"}[request.param]), request.param


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_batch_of_four_tasks_takes_these_requests_and_no_other(
    versioned: tuple[EmbeddedKafka, int], scope: str
) -> None:
    kafka, version = versioned
    topic, source = topics_of(kafka)(), TopicPartition(topics_of(kafka)(), 0)
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "pipeline": f"costs-{topic}",
            "topic": topic,
            "transaction.scope": scope,
        }
    )
    driver = pipeline_driver(Cluster.shared(options.client), options, "query")
    driver.start(0)
    found: list[Requests] = []

    def tasks(only: frozenset[int] | None) -> list[Seal]:
        counter.taken()
        plan = driver.plan(batch, only)
        found.append(counter.taken())
        seals = []
        for slot in range(TASKS):
            rows = pa.RecordBatch.from_pydict({"value": [f"{slot} {row}" for row in range(5)]})
            seals.append(
                write_shared(plan, slot, [rows]) if isinstance(plan, SharedPlan) else write_slot(plan, slot, [rows])
            )
        found.append(counter.taken())
        return seals

    with counting(kafka) as counter:
        # The first batch of a run finds coordinators and connects.
        for batch in range(3):
            driver.process(batch, tasks, (f"line {batch}",), {source: 10 * batch})
        found.append(counter.taken())

    for each in found:
        each.pop(OF_A_CONNECTION, None)
    if scope == "batch":
        assert found[-2].pop(NOT_COUNTED) > 0
    assert found[-3:] == [PLANNED[scope, version], WRITTEN[scope, version], COMMITTED[scope, version]]
