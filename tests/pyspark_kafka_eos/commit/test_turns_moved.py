"""The turns topic gets more partitions between the beginning of a batch and its end: both keep to the partition that
the tasks have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as Client
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import AttemptRefused
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.handover import begin, finish
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.turn_log import prepare_turns
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.pyspark_kafka_eos.commit.judge import read_all

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

LINES = ("offsets",)


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True) as kafka:
        yield kafka
    crash_points.arm("")


def more_partitions(broker: EmbeddedKafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 17)])[topic].result(30)


@pytest.mark.parametrize("others", [0, 50])
def test_a_first_start_of_a_task_without_rows_is_refused_where_the_turns_topic_has_more_partitions_by_then(
    broker: EmbeddedKafka, others: int
) -> None:
    topic = topics_of(broker)()
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "pipeline": "orders",  # of 17 partitions it has another one than of 16
            "topic": topic,
            "transaction.scope": "batch",
        }
    )
    begins, ends = Cluster(options.client), Cluster(options.client)
    plan, handover = begin(begins, options, "query", 0, LINES)
    assert isinstance(plan, SharedPlan)
    seals = [write_shared(plan, 0, arrow_batches(["of task 0"])), write_shared(plan, 1, ())]
    more_partitions(broker, plan.turns.where.topic)
    moved = prepare_turns(ends, plan.turns.where.topic, options.pipeline)
    assert moved != plan.turns.where, "the pipeline's partition is the same one as before"
    # Turns of other pipelines, so that the offset of the one partition is one of the other too.
    client = Client({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(others):
        client.produce(moved.topic, b"{}", key=b"another pipeline's", partition=moved.partition)
    assert client.flush(30) == 0
    refused: list[AttemptRefused] = []

    def first_start() -> None:
        with pytest.raises(AttemptRefused) as no:
            write_shared(plan, 1, arrow_batches(["of a late start"]))
        refused.append(no.value)

    crash_points.arm("decision-written", 1, first_start)
    report = finish(ends, options, handover, seals, LINES, {}, tasks=2)

    assert report.records == 1
    assert len(refused) == 1
    assert "its batch is being committed" in refused[0].message
    assert read_all(broker, topic) == read_all(broker, topic, "read_uncommitted") == Counter(["of task 0"])
    begins.close()
    ends.close()
