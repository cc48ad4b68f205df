"""A run killed at any named point, and run again, leaves each record once. Real Kafka, both transaction versions."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from connector.crash_points import POINTS
from connector.local import LocalKafka
from tests.commit.child import run_child
from tests.conftest import topics_of

pytestmark = pytest.mark.kafka

ROWS = [[f"slot-{slot} row-{row} " + "x" * 200 for row in range(400)] for slot in range(3)]
EXPECTED = Counter(value for values in ROWS for value in values)


@pytest.fixture(params=["newest", "zookeeper"])
def broker(request: pytest.FixtureRequest) -> LocalKafka:
    """Transaction version 2, then 1."""
    name = {"newest": "kafka", "zookeeper": "kafka_zk"}[request.param]
    return request.getfixturevalue(name)  # type: ignore[no-any-return]


def settings_for(broker: LocalKafka, batch: int = 0) -> dict[str, Any]:
    topic = topics_of(broker)()
    source = topics_of(broker)()
    return {
        "options": {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "pipeline": f"pipe-{topic}",
            "topic": topic,
            "kafka.batch.size": "8192",
        },
        "query": "query-1",
        "batch": batch,
        "rows": ROWS,
        "offsets": [[source, 0, 17], [source, 3, 4]],
    }


def read_all(broker: LocalKafka, topic: str, isolation: str = "read_committed") -> Counter[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
        found: Counter[str] = Counter()
        ended: set[int] = set()
        while len(ended) < 4:
            for message in consumer.consume(5000, timeout=10):
                if message.error():
                    ended.add(message.partition())
                else:
                    found[message.value().decode()] += 1
        return found
    finally:
        consumer.close()


def committed_offsets(broker: LocalKafka, settings: dict[str, Any]) -> list[list[Any]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": settings["options"]["pipeline"]}
    )
    try:
        wanted = [TopicPartition(topic, number) for topic, number, _ in settings["offsets"]]
        return [[each.topic, each.partition, each.offset] for each in consumer.committed(wanted, timeout=30)]
    finally:
        consumer.close()


@pytest.mark.parametrize("point", [*POINTS, "mid-produce:9", "after-seal:3", "after-end:2", "after-end:3"])
def test_killed_at_any_point_and_run_again_each_record_is_there_once(broker: LocalKafka, point: str) -> None:
    settings = settings_for(broker)

    killed = run_child(settings, point)
    assert killed.exitcode == -signal.SIGKILL, f"the crash point did not fire: {killed.report}"

    again = run_child(settings)
    assert again.report.get("records") == sum(EXPECTED.values()), again.report
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


def test_a_run_that_is_not_killed_writes_each_record_once(broker: LocalKafka) -> None:
    settings = settings_for(broker)

    done = run_child(settings)

    assert done.report == {"batch": 0, "records": 1200, "resumed": False}
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


def test_killed_before_the_decision_nothing_of_the_batch_is_visible_meanwhile(broker: LocalKafka) -> None:
    settings = settings_for(broker)

    assert run_child(settings, "decision-written").exitcode == -signal.SIGKILL

    assert read_all(broker, settings["options"]["topic"]) == Counter()
    assert [offset for _, _, offset in committed_offsets(broker, settings)] == [-1001, -1001]


def test_a_batch_that_was_decided_is_resumed_and_not_written_again(broker: LocalKafka) -> None:
    settings = settings_for(broker)
    assert run_child(settings, "after-end:1").exitcode == -signal.SIGKILL
    written = read_all(broker, settings["options"]["topic"], "read_uncommitted")

    again = run_child(settings)

    assert again.report["resumed"] is True
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == written == EXPECTED
