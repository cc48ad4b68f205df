"""librdkafka's admin client: topics, settings, groups and offsets, and what it is told of mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.parity.brokers import Broker
from tests.parity.clients import LIBRDKAFKA
from tests.parity.judge import WAIT_S, admin_of, new_name, new_topic, read, wait_until, write

pytestmark = [pytest.mark.kafka, pytest.mark.parity]


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    """librdkafka's admin client."""
    return admin_of(broker)


def only(answers: Mapping[Any, Future[Any]]) -> Any:
    """The one answer."""
    [answer] = answers.values()
    return answer.result(WAIT_S)


def refusal(answers: Mapping[Any, Future[Any]]) -> int:
    """The code of the one refusal."""
    with pytest.raises(KafkaException) as refused:
        only(answers)
    return int(refused.value.args[0].code())


@pytest.mark.shows(LIBRDKAFKA, "admin: topics and partitions, with the refusals")
def test_topics_are_created_widened_described_and_deleted_and_mistakes_are_named(admin: AdminClient) -> None:
    topic = new_name("made")
    only(admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "1234567"})]))
    again = NewTopic(topic, 2, 1)
    assert refusal(admin.create_topics([again])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal(admin.create_topics([NewTopic("no/name", 1, 1)])) == KafkaError.TOPIC_EXCEPTION
    wrong = NewTopic(new_name("wrong"), 1, 1, config={"retention.ms": "soon"})
    assert refusal(admin.create_topics([wrong])) == KafkaError.INVALID_CONFIG
    assert refusal(admin.create_topics([NewTopic(new_name("none"), 0, 1)])) == KafkaError.INVALID_PARTITIONS

    only(admin.create_partitions([NewPartitions(topic, 4)]))
    assert refusal(admin.create_partitions([NewPartitions(topic, 3)])) == KafkaError.INVALID_PARTITIONS

    def partitions() -> list[int]:
        return [each.id for each in only(admin.describe_topics(TopicCollection([topic]))).partitions]

    wait_until(lambda: partitions() == [0, 1, 2, 3], "the metadata has four partitions")
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert described.name == topic
    assert {each.leader.id for each in described.partitions} == {0}
    assert not described.is_internal

    only(admin.delete_topics([topic]))
    wait_until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, "the topic is gone")
    assert refusal(admin.delete_topics([topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    unknown = NewPartitions(new_name("none"), 8)
    assert refusal(admin.create_partitions([unknown])) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.shows(LIBRDKAFKA, "admin: settings of topics and brokers")
def test_a_topics_settings_are_changed_one_by_one_and_wrong_ones_are_refused(
    broker: Broker, admin: AdminClient
) -> None:
    topic = new_topic(broker, configs={"retention.ms": "1234567"})

    def change(name: str, value: str | None, what: AlterConfigOpType) -> Mapping[ConfigResource, Future[Any]]:
        entry = ConfigEntry(name, value, incremental_operation=what)
        return admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])

    def shown() -> dict[str, tuple[str, bool]]:
        entries = only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: (entry.value, entry.is_default) for name, entry in entries.items()}

    assert shown()["retention.ms"] == ("1234567", False)
    assert shown()["cleanup.policy"] == ("delete", True)
    only(change("max.message.bytes", "2000", AlterConfigOpType.SET))
    only(change("retention.ms", None, AlterConfigOpType.DELETE))
    wait_until(lambda: shown()["max.message.bytes"] == ("2000", False), "the setting is there")
    wait_until(lambda: shown()["retention.ms"] == ("604800000", True), "the other one is the default again")
    assert refusal(change("max.message.bytes", "much", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG
    assert refusal(change("no.such.setting", "1", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG
    of_broker = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, "0")]))
    assert of_broker["message.max.bytes"].value == "1048588"


@pytest.mark.shows(LIBRDKAFKA, "admin: groups listed, described, offsets altered, deleted")
def test_a_groups_offsets_are_altered_when_it_is_empty_and_then_it_is_deleted(
    broker: Broker, admin: AdminClient
) -> None:
    topic, group = new_topic(broker), new_name("group")
    write(broker, topic, [b"%d" % number for number in range(10)])
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "client.id": "the-member",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    altered = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(WAIT_S) is not None
        consumer.commit(asynchronous=False)
        described = only(admin.describe_consumer_groups([group]))
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        assert described.coordinator.id == 0
        [member] = described.members
        assert member.client_id == "the-member"
        assert [(each.topic, each.partition) for each in member.assignment.topic_partitions] == [(topic, 0)]
        [refused] = only(admin.alter_consumer_group_offsets([altered])).topic_partitions
        assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID
        assert refusal(admin.delete_consumer_groups([group])) == KafkaError.NON_EMPTY_GROUP

    states = {each.group_id: each.state for each in admin.list_consumer_groups().result(WAIT_S).valid}
    assert states[group] == ConsumerGroupState.EMPTY
    only(admin.alter_consumer_group_offsets([altered]))
    [found] = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])).topic_partitions
    assert (found.topic, found.partition, found.offset) == (topic, 0, 3)
    only(admin.delete_consumer_groups([group]))
    assert refusal(admin.delete_consumer_groups([group])) == KafkaError.GROUP_ID_NOT_FOUND


@pytest.mark.shows(LIBRDKAFKA, "admin: records deleted, offsets listed, cluster described")
def test_records_are_deleted_from_the_front_and_offsets_listed(broker: Broker, admin: AdminClient) -> None:
    topic = new_topic(broker)
    write(broker, topic, [b"%d" % number for number in range(10)])
    where = TopicPartition(topic, 0)

    def offset(of: OffsetSpec) -> int:
        return int(only(admin.list_offsets({where: of})).offset)

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (0, 10)
    assert only(admin.delete_records([TopicPartition(topic, 0, 6)])).low_watermark == 6
    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (6, 10)
    assert refusal(admin.delete_records([TopicPartition(topic, 0, 11)])) == KafkaError.OFFSET_OUT_OF_RANGE
    assert [each.offset for each in read(broker, topic)] == [6, 7, 8, 9]

    cluster = admin.describe_cluster().result(WAIT_S)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap_servers]
    assert cluster.cluster_id
