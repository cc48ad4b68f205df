"""Kafka's tool for consumer groups, on a group of librdkafka's that is alive and then empty."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.parity.brokers import Broker
from tests.parity.clients import JAVA
from tests.parity.java import java_tool, rows
from tests.parity.judge import WAIT_S, new_name, new_topic, write

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
PARTITIONS = 2
RECORDS = 10


def groups(broker: Broker, *arguments: str) -> str:
    """ConsumerGroupCommand's words."""
    command = ("--bootstrap-server", broker.bootstrap_servers, *arguments)
    return java_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *command)


def offsets(broker: Broker, group: str) -> dict[int, tuple[str, str, str]]:
    """Partition to committed offset, end and lag, as the tool describes them."""
    described = rows(groups(broker, "--describe", "--group", group, "--offsets"))
    return {int(row["PARTITION"]): (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in described}


def member(broker: Broker, group: str) -> Consumer:
    """A consumer of librdkafka that commits when it is told to."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "client.id": "the-member",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


@pytest.mark.shows(JAVA, "`ConsumerGroupCommand` list, describe: offsets and lag, members, state")
def test_the_tool_describes_a_living_group_with_its_lag_its_member_and_its_state(broker: Broker) -> None:
    topic, group = new_topic(broker, PARTITIONS), new_name("group")
    for partition in range(PARTITIONS):
        write(broker, topic, [b"value"] * RECORDS, partition)
    with closing(member(broker, group)) as consumer:
        consumer.subscribe([topic])
        for _ in range(PARTITIONS * RECORDS):
            assert consumer.poll(WAIT_S) is not None
        consumer.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 10)], asynchronous=False)

        assert group in groups(broker, "--list").split()
        assert offsets(broker, group) == {0: ("4", "10", "6"), 1: ("10", "10", "0")}
        [found] = rows(groups(broker, "--describe", "--group", group, "--members", "--verbose"))
        assert found["CONSUMER-ID"].startswith("the-member-")
        assert found["CLIENT-ID"] == "the-member"
        assert found["HOST"] == "/127.0.0.1"
        assert found["CURRENT-ASSIGNMENT"] == f"{topic}:0,1"
        state = groups(broker, "--describe", "--group", group, "--state").splitlines()[-1].split()
        # Its coordinator's address and number stand between the group and the assignor.
        assert state[0] == group
        assert state[1] == broker.bootstrap_servers
        assert state[-3:] == ["range", "Stable", "1"]


@pytest.mark.shows(JAVA, "`ConsumerGroupCommand` reset-offsets, delete-offsets, delete")
def test_the_tool_resets_and_deletes_the_offsets_of_an_empty_group_and_then_the_group(broker: Broker) -> None:
    topic, group = new_topic(broker, PARTITIONS), new_name("group")
    for partition in range(PARTITIONS):
        write(broker, topic, [b"value"] * RECORDS, partition)
    with closing(member(broker, group)) as consumer:
        committed = [TopicPartition(topic, number, RECORDS) for number in range(PARTITIONS)]
        consumer.commit(offsets=committed, asynchronous=False)

    reset = ("--reset-offsets", "--to-offset", "3", "--topic", topic, "--execute")
    assert {row["NEW-OFFSET"] for row in rows(groups(broker, "--group", group, *reset))} == {"3"}
    assert offsets(broker, group) == {0: ("3", "10", "7"), 1: ("3", "10", "7")}
    # librdkafka goes on from there.
    with closing(member(broker, group)) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert (message.error(), message.offset()) == (None, 3)

    groups(broker, "--group", group, "--delete-offsets", "--topic", f"{topic}:1")
    assert offsets(broker, group) == {0: ("3", "10", "7")}
    groups(broker, "--group", group, "--delete")
    assert group not in groups(broker, "--list").split()
