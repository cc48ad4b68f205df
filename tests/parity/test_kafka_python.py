"""kafka-python's own clients: producer, transactions, consumers in a group, admin."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec, TransactionState
from kafka.errors import (
    InvalidConfigurationError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.parity.brokers import Broker
from tests.parity.clients import KAFKA_PYTHON
from tests.parity.judge import WAIT_S, new_name, new_topic, read, values_of, wait_until, write

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
PARTITIONS = 2


def consumer_of(broker: Broker, group: str, **settings: str | int) -> KafkaConsumer:
    """A consumer that commits when it is told to."""
    return KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=100,
        heartbeat_interval_ms=200,
        session_timeout_ms=6_000,
        **settings,
    )


def subscribe(consumer: KafkaConsumer, topic: str) -> None:
    """To a topic whose partitions it knows before it joins.

    kafka-python 3.0.12 joins again when it learns of them afterwards, and forgets the answer to that join, on any
    broker, if `poll` ends before it comes.
    """
    consumer.subscribe([topic])
    consumer.topics()


def poll(consumer: KafkaConsumer) -> list[bytes]:
    """The values that a look brought."""
    return [record.value for records in consumer.poll(100).values() for record in records]


class Member:
    """A member of a group in a thread of its own: it has to go on polling while another one joins."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        self.values: list[bytes] = []
        self.partitions = 0
        self._everything_read = threading.Event()
        self._leaves = threading.Event()
        self._committed: Future[None] = Future()
        self._pool = ThreadPoolExecutor(1)
        self._ended = self._pool.submit(self._run, broker, group, topic)

    def commit(self) -> None:
        """Commit, and stay a member; raises what the thread has met."""
        self._everything_read.set()
        wait([self._committed, self._ended], WAIT_S, FIRST_COMPLETED)
        if self._ended.done():
            self._ended.result()
        assert self._committed.done()

    def leave(self) -> None:
        """Leave the group, without a commit if the test has failed before one; raises what the thread has met."""
        self._leaves.set()
        self._everything_read.set()
        self._pool.shutdown()
        self._ended.result()

    def _run(self, broker: Broker, group: str, topic: str) -> None:
        with closing(consumer_of(broker, group)) as consumer:
            subscribe(consumer, topic)
            while not self._everything_read.is_set():
                self.values += poll(consumer)
                self.partitions = len(consumer.assignment())
            if not self._leaves.is_set():
                consumer.commit()
                self._committed.set_result(None)
            assert self._leaves.wait(WAIT_S)


@pytest.mark.shows(KAFKA_PYTHON, "producer, idempotent, with every codec")
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"], ids=str)
def test_what_the_producer_was_told_is_acknowledged_is_where_it_was_told(broker: Broker, codec: str | None) -> None:
    topic = new_topic(broker, PARTITIONS)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "compression_type": codec, "linger_ms": 5}
    with closing(KafkaProducer(**settings)) as producer:
        sent = [producer.send(topic, b"%d" % number, partition=number % PARTITIONS) for number in range(1_000)]
        answers = [future.get(WAIT_S) for future in sent]
    told = {(answer.partition, answer.offset, b"%d" % number) for number, answer in enumerate(answers)}
    assert {(each.partition, each.offset, each.value) for each in read(broker, topic)} == told
    assert len(told) == 1_000


@pytest.mark.shows(KAFKA_PYTHON, "consume-transform-produce in transactions, with aborts")
def test_transactions_move_records_and_offsets_together_or_not_at_all(broker: Broker) -> None:
    source, target, group = new_topic(broker), new_topic(broker), new_name("transform")
    write(broker, source, [b"%d" % number for number in range(100)])
    settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": new_name("python")}
    where, taken, aborted = TopicPartition(source, 0), 0, 0
    with closing(KafkaProducer(**settings)) as producer, closing(consumer_of(broker, group)) as consumer:
        producer.init_transactions()
        consumer.assign([where])

        def moved() -> bool:
            nonlocal taken, aborted
            values = poll(consumer)
            if not values:
                return taken >= 100
            producer.begin_transaction()
            for value in values:
                producer.send(target, b"moved " + value)
            producer.flush()
            position = {where: OffsetAndMetadata(consumer.position(where), "", -1)}
            producer.send_offsets_to_transaction(position, consumer.group_metadata())
            if aborted:
                producer.commit_transaction()
                taken += len(values)
            else:
                producer.abort_transaction()
                aborted = len(values)
                assert consumer.committed(where) is None
                consumer.seek(where, 0)
            return False

        wait_until(moved, "everything was moved")
        assert consumer.committed(where) == 100
    assert values_of(broker, target) == [b"moved %d" % number for number in range(100)]
    assert len(values_of(broker, target, isolation="read_uncommitted")) == 100 + aborted


@pytest.mark.shows(KAFKA_PYTHON, "consumer group: two members, rebalance, commit, resume")
def test_two_members_share_a_topic_and_a_third_goes_on_where_they_had_committed(broker: Broker) -> None:
    topic, group = new_topic(broker, PARTITIONS), new_name("group")

    def fill(run: int) -> list[bytes]:
        values = [[b"%d.%d.%d" % (run, partition, each) for each in range(50)] for partition in range(PARTITIONS)]
        for partition in range(PARTITIONS):
            write(broker, topic, values[partition], partition)
        return [*itertools.chain(*values)]

    members = [Member(broker, group, topic) for _ in range(2)]
    try:
        wait_until(lambda: [member.partitions for member in members] == [1, 1], "each has one partition")
        first_run = fill(1)
        wait_until(
            lambda: sum(len(member.values) for member in members) >= len(first_run),
            "everything of the first run was read",
        )
        for member in members:  # before any leaves: that begins a rebalance, and nobody commits in the middle of one
            member.commit()
    finally:
        for member in members:
            member.leave()
    assert sorted(members[0].values + members[1].values) == sorted(first_run)

    second_run = fill(2)
    got: list[bytes] = []
    with closing(consumer_of(broker, group)) as three:
        subscribe(three, topic)

        def read_on() -> bool:
            got.extend(poll(three))
            return len(got) >= len(second_run)

        wait_until(read_on, "everything of the second run was read")
    assert sorted(got) == sorted(second_run)


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    """kafka-python's admin client."""
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as found:
        yield found


@pytest.mark.shows(KAFKA_PYTHON, "admin: topics, partitions, settings, records deleted, offsets listed")
def test_the_admin_client_changes_topics_settings_and_records(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = new_name("made")
    made = {topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "-1"}}}
    admin.create_topics(made, wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(made)
    admin.create_partitions({topic: 3})
    admin.wait_for_topics([topic])

    def partitions() -> int:
        return len(admin.describe_topics([topic])[0]["partitions"])

    wait_until(lambda: partitions() == 3, "the metadata has three partitions")

    def resource(configs: dict[str, str] | None) -> list[ConfigResource]:
        return [ConfigResource(ConfigResourceType.TOPIC, topic, configs)]

    def setting(name: str) -> str | None:
        found = admin.describe_configs(resource(None))["topic"][topic].get(name)
        return None if found is None else str(found["value"])

    assert setting("retention.ms") == "-1"
    admin.alter_configs(resource({"max.message.bytes": "2000"}))
    wait_until(lambda: setting("max.message.bytes") == "2000", "the setting is there")
    assert setting("retention.ms") == "-1"
    [refused] = admin.alter_configs(resource({"max.message.bytes": "much"}))["topic"].values()
    assert InvalidConfigurationError.__name__ in str(refused)

    where = TopicPartition(topic, 2)
    write(broker, topic, [b"%d" % number for number in range(10)], partition=2)
    admin.delete_records({where: 4})
    assert [each.offset for each in read(broker, topic)] == list(range(4, 10))
    earliest = admin.list_partition_offsets({where: OffsetSpec.EARLIEST})[where].offset
    latest = admin.list_partition_offsets({where: OffsetSpec.LATEST})[where].offset
    assert (earliest, latest) == (4, 10)

    admin.delete_topics([topic])
    wait_until(lambda: topic not in admin.list_topics(), "the topic is gone")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


@pytest.mark.shows(KAFKA_PYTHON, "admin: groups and their offsets")
def test_the_admin_client_describes_a_group_and_changes_its_offsets(broker: Broker, admin: KafkaAdminClient) -> None:
    topic, group = new_topic(broker), new_name("group")
    where = TopicPartition(topic, 0)
    write(broker, topic, [b"%d" % number for number in range(10)])
    with closing(consumer_of(broker, group, client_id="the-member")) as consumer:
        subscribe(consumer, topic)
        wait_until(lambda: bool(poll(consumer)), "the member has joined")
        consumer.commit()
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert [member["client_id"] for member in described["members"]] == ["the-member"]
        assert admin.list_group_offsets({group: None})[group][where].offset == 10
    assert {each["group_id"]: each["group_state"] for each in admin.list_groups()}[group] == "Empty"
    assert admin.alter_group_offsets(group, {where: OffsetAndMetadata(3, "note", -1)}) == {where: NoError}
    found = admin.list_group_offsets({group: [where]})[group][where]
    assert (found.offset, found.metadata) == (3, "note")
    assert admin.delete_group_offsets(group, [where]) == {where: NoError}
    assert where not in admin.list_group_offsets({group: None})[group]
    admin.delete_groups([group])
    assert group not in [each["group_id"] for each in admin.list_groups()]


@pytest.mark.shows(KAFKA_PYTHON, "admin: transactions and producers described")
def test_the_admin_client_sees_an_open_transaction_and_its_producer(broker: Broker, admin: KafkaAdminClient) -> None:
    topic, transactional_id = new_topic(broker), new_name("open")
    where = TopicPartition(topic, 0)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": transactional_id}
    with closing(KafkaProducer(**settings)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"value").get(WAIT_S)
        listed = [each for found in admin.list_transactions().values() for each in found]
        [mine] = [each for each in listed if each.transactional_id == transactional_id]
        assert mine.state is TransactionState.ONGOING
        described = admin.describe_transactions([transactional_id])[transactional_id]
        assert described.state is TransactionState.ONGOING
        assert described.producer_id == mine.producer_id
        assert described.topic_partitions == {where}
        [active] = admin.describe_producers([where])[where].active_producers
        assert (active.producer_id, active.producer_epoch) == (
            described.producer_id,
            described.producer_epoch,
        )
        assert (active.last_sequence, active.current_transaction_start_offset) == (0, 0)
        assert admin.find_hanging_transactions() == []
        producer.commit_transaction()
    assert values_of(broker, topic) == [b"value"]
