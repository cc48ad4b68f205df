"""Kafka's tools for topics, settings and offsets: what one tool changes another client sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from embedded_kafka.real import NEWEST_ZOOKEEPER_KAFKA
from tests.parity.brokers import Broker
from tests.parity.clients import JAVA
from tests.parity.java import java_tool
from tests.parity.judge import WAIT_S, admin_of, new_name, new_topic, read, wait_until, write

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
RECORDS = 10


def tool(broker: Broker, main_class: str, *arguments: str) -> str:
    """What a tool said that was told of the broker."""
    return java_tool(main_class, "--bootstrap-server", broker.bootstrap_servers, *arguments)


def topics(broker: Broker, *arguments: str) -> str:
    """TopicCommand's words."""
    return tool(broker, "org.apache.kafka.tools.TopicCommand", *arguments)


def end_of_partitions(broker: Broker, topic: str, time: str) -> list[str]:
    """GetOffsetShell's lines, without the topic."""
    said = tool(broker, "org.apache.kafka.tools.GetOffsetShell", "--topic", topic, "--time", time)
    return [line.removeprefix(f"{topic}:") for line in said.splitlines()]


@pytest.mark.shows(JAVA, "`TopicCommand` create, describe, alter partitions, delete")
def test_the_tool_creates_widens_and_deletes_a_topic(broker: Broker) -> None:
    topic, admin = new_name("made"), admin_of(broker)
    sizes = ("--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=1234567")
    topics(broker, "--create", "--topic", topic, *sizes)
    assert len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 3
    described = topics(broker, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=1234567" in described
    assert described.count("Leader: 0\tReplicas: 0\tIsr: 0") == 3

    topics(broker, "--alter", "--topic", topic, "--partitions", "5")
    wait_until(lambda: len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 5, "five partitions")
    write(broker, topic, [b"in the new one"], partition=4)
    assert [(each.partition, each.value) for each in read(broker, topic)] == [(4, b"in the new one")]

    topics(broker, "--delete", "--topic", topic)
    wait_until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, "the topic is gone")


@pytest.mark.shows(JAVA, "`ConfigCommand` alter and describe a topic")
def test_the_tool_sets_shows_and_removes_a_topics_setting(broker: Broker) -> None:
    topic = new_topic(broker, configs={"retention.ms": "1234567"})
    where = ("--entity-type", "topics", "--entity-name", topic)

    def configs(*arguments: str) -> str:
        return tool(broker, "org.apache.kafka.tools.ConfigCommand", *where, *arguments)

    configs("--alter", "--add-config", "max.message.bytes=2000,cleanup.policy=compact")
    shown = configs("--describe")
    for setting in ("retention.ms=1234567", "max.message.bytes=2000", "cleanup.policy=compact"):
        assert f"  {setting} sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:{setting}" in shown
    configs("--alter", "--delete-config", "retention.ms,cleanup.policy")
    shown = configs("--describe")
    assert "max.message.bytes=2000" in shown
    assert "retention.ms" not in shown
    assert "cleanup.policy" not in shown


def test_the_tool_sets_shows_and_removes_a_groups_setting(broker: Broker) -> None:
    if broker.name.endswith(NEWEST_ZOOKEEPER_KAFKA):
        pytest.skip(f"{NEWEST_ZOOKEEPER_KAFKA} has no configurations of groups")
    where = ("--entity-type", "groups", "--entity-name", new_name("group"))

    def configs(*arguments: str) -> str:
        return tool(broker, "org.apache.kafka.tools.ConfigCommand", *where, *arguments)

    configs("--alter", "--add-config", "consumer.session.timeout.ms=50000")
    own = "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000"
    wait_until(
        lambda: f"  consumer.session.timeout.ms=50000 sensitive=false synonyms={{{own}" in configs("--describe"), "set"
    )
    configs("--alter", "--delete-config", "consumer.session.timeout.ms")
    wait_until(lambda: "DYNAMIC_GROUP_CONFIG" not in configs("--describe"), "removed")


@pytest.mark.shows(JAVA, "`GetOffsetShell`, `DeleteRecordsCommand`")
def test_the_tools_tell_offsets_and_delete_records_from_the_front(broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker, 2)
    write(broker, topic, [b"%d" % number for number in range(RECORDS)], partition=0)
    write(broker, topic, [b"other"], partition=1)
    assert end_of_partitions(broker, topic, "latest") == ["0:10", "1:1"]
    assert end_of_partitions(broker, topic, "earliest") == ["0:0", "1:0"]

    asked = tmp_path / "delete.json"
    asked.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
    said = tool(broker, "org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(asked))
    assert f"partition: {topic}-0\tlow_watermark: 4" in said
    assert end_of_partitions(broker, topic, "earliest") == ["0:4", "1:0"]
    # Any time long past: the first record that is left.
    assert end_of_partitions(broker, topic, "1000") == ["0:4", "1:0"]
    assert [each.offset for each in read(broker, topic) if each.partition == 0] == list(range(4, RECORDS))
