"""Producer ids and epochs, and the flow of a transaction, against a real coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ReadPartition

from kafka_core.errors import (
    AbortableError,
    IllegalMove,
    OptionsError,
    OutcomeUnknown,
    ProducerFenced,
    UnknownTopic,
)
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import CoordinatorKind
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.session import SessionState
from tests.pyspark_kafka_eos.client.client_tools import Broker, send, state, wait_until

pytestmark = pytest.mark.kafka

Opened = Callable[..., Producer]
TIMEOUT_MS = 60_000


def transactions(broker: Broker) -> Transactions:
    return Transactions(broker.cluster)


def test_the_cluster_says_which_class_of_transactions_it_finalised(
    broker: Broker, request: pytest.FixtureRequest
) -> None:
    """KIP-890: version 2 only where the finalised feature says so, not where the newest API version would allow it."""
    newest = request.node.callspec.params["broker"] == "kafka"
    assert broker.version == (2 if newest else 1)


def test_a_new_transactional_id_starts_at_epoch_zero(broker: Broker) -> None:
    """Rule: seed 000 §5.1.1 and seed 003 (obtaining the PID): the coordinator gives producer id and epoch."""
    name = broker.new_id()
    identity = transactions(broker).init_producer_id(name, TIMEOUT_MS)
    assert identity.epoch == 0
    assert identity.producer_id >= 0
    assert state(broker, name) == ("Empty", identity)


def test_an_idempotent_producer_gets_another_producer_id_every_time(broker: Broker) -> None:
    """Rule: seed 000 §5.1 (PID, no recovery across sessions) and seed 004 (Producer Restart): without a transactional
    id nothing ties two sessions together; any broker may answer."""
    first, second = (transactions(broker).init_producer_id(None, TIMEOUT_MS) for _ in range(2))
    assert first.producer_id != second.producer_id
    assert (first.epoch, second.epoch) == (0, 0)


def test_without_a_current_epoch_every_initialisation_bumps_it(broker: Broker) -> None:
    """Rule: seed 001 (updated epoch logic, 1) and seed 004 (initTransactions): a new instance fences the older."""
    name = broker.new_id()
    identities = [transactions(broker).init_producer_id(name, TIMEOUT_MS) for _ in range(3)]
    assert [identity.epoch for identity in identities] == [0, 1, 2]
    assert len({identity.producer_id for identity in identities}) == 1


def test_the_current_epoch_is_bumped_once_however_often_the_request_is_repeated(broker: Broker) -> None:
    """Rule: seed 001 (updated epoch logic, 2.1 and 2.2): the epoch that was current, given again, is the last epoch,
    and is answered with the current one; so a lost answer costs nothing."""
    name = broker.new_id()
    first = transactions(broker).init_producer_id(name, TIMEOUT_MS)
    bumped = transactions(broker).init_producer_id(name, TIMEOUT_MS, first)
    again = transactions(broker).init_producer_id(name, TIMEOUT_MS, first)
    assert bumped == ProducerIdentity(first.producer_id, first.epoch + 1)
    assert again == bumped


def test_an_epoch_that_somebody_else_bumped_cannot_be_bumped(broker: Broker) -> None:
    """Rule: seed 001 (updated epoch logic, 2.3; steps, 3): neither current nor last: fenced, and nothing changed."""
    name = broker.new_id()
    mine = transactions(broker).init_producer_id(name, TIMEOUT_MS)
    transactions(broker).init_producer_id(name, TIMEOUT_MS)
    theirs = transactions(broker).init_producer_id(name, TIMEOUT_MS)
    with pytest.raises(ProducerFenced) as refusal:
        transactions(broker).init_producer_id(name, TIMEOUT_MS, mine)
    assert refusal.value.facts["code"] in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    assert state(broker, name) == ("Empty", theirs)
    # Renamed, the second write of a batch would write its rows again.
    assert "two writes of one batch.id keep it, and one of them runs" in refusal.value.message


def test_a_newer_instance_is_not_overtaken_by_the_one_just_before_it(broker: Broker) -> None:
    """Rule: seed 001 (updated epoch logic, 1): a bump without an epoch clears the last epoch, so that the fenced
    instance is not mistaken for a repeated request."""
    name = broker.new_id()
    mine = transactions(broker).init_producer_id(name, TIMEOUT_MS)
    theirs = transactions(broker).init_producer_id(name, TIMEOUT_MS)
    with pytest.raises(ProducerFenced):
        transactions(broker).init_producer_id(name, TIMEOUT_MS, mine)
    assert state(broker, name) == ("Empty", theirs)


def test_an_id_that_the_coordinator_forgot_gets_a_new_producer_id(broker: Broker) -> None:
    """Rule: seed 001 (InvalidProducerIdMapping, 2): no mapping: a new producer id is made and given."""
    name = broker.new_id()
    old = ProducerIdentity(987_654_321, 4)
    renewed = transactions(broker).init_producer_id(name, TIMEOUT_MS, old)
    assert renewed.producer_id != old.producer_id
    assert state(broker, name) == ("Empty", renewed)


def test_another_producer_id_under_the_same_id_means_fenced(broker: Broker) -> None:
    """Rule: seed 001 (InvalidProducerIdMapping, 3): another producer id was assigned: there is a newer owner."""
    name = broker.new_id()
    owner = transactions(broker).init_producer_id(name, TIMEOUT_MS)
    with pytest.raises(ProducerFenced):
        transactions(broker).init_producer_id(name, TIMEOUT_MS, ProducerIdentity(owner.producer_id + 7_777, 0))
    assert state(broker, name) == ("Empty", owner)


def test_a_transaction_timeout_above_the_brokers_cap_is_an_options_error(broker: Broker) -> None:
    """Rule: seed 003 (broker configs, max transaction timeout of 15 minutes): refused before anything is written."""
    name = broker.new_id()
    with pytest.raises(OptionsError, match=r"transaction\.timeout\.ms"):
        transactions(broker).init_producer_id(name, 900_001)
    assert state(broker, name)[0] == "NotFound"
    assert transactions(broker).init_producer_id(name, 900_000).epoch == 0


def test_a_second_initialisation_fences_the_firsts_records_and_aborts_its_transaction(
    broker: Broker, opened: Opened
) -> None:
    """Rule: seed 003 (recovery: epoch, and the older instance's open transaction) and seed 004 (zombie fencing)."""
    topic, name = broker.topic(), broker.new_id()
    where = TopicPartition(topic, 0)
    zombie = opened(name)
    send(zombie, where, [b"before"])
    zombie.flush()
    owner = opened(name)
    send(zombie, where, [b"after"])
    with pytest.raises(ProducerFenced):
        zombie.flush()
    assert zombie.session.state is SessionState.FENCED
    send(owner, where, [b"owner"])
    owner.commit()
    assert broker.read(topic) == [b"owner"]
    assert broker.read(topic, isolation="read_uncommitted") == [b"before", b"owner"]


def test_a_fenced_session_can_neither_commit_nor_harm_by_aborting(broker: Broker, opened: Opened) -> None:
    """Rule: seed 004 (zombie fencing): send, commit and abort of the older epoch are refused."""
    topic, name = broker.topic(), broker.new_id()
    zombie = opened(name)
    send(zombie, TopicPartition(topic, 0), [b"zombie"])
    zombie.flush()
    owner = opened(name)
    send(owner, TopicPartition(topic, 0), [b"owner"])
    owner.flush()
    zombie.abort()
    assert state(broker, name) == ("Ongoing", owner.identity)
    with pytest.raises((IllegalMove, AbortableError)):
        zombie.commit()
    owner.commit()
    assert broker.read(topic) == [b"owner"]


def test_a_session_goes_on_after_an_abort_under_the_next_epoch_and_from_sequence_zero(
    broker: Broker, opened: Opened
) -> None:
    """Rule: seed 001 (safe epoch incrementing, steps 1, 2 and 4)."""
    topic = broker.topic()
    producer = opened()
    before = producer.identity
    send(producer, TopicPartition(topic, 0), [b"aborted", b"too"])
    producer.flush()
    producer.abort()
    if producer.session.state is SessionState.UNINITIALIZED:
        producer.initialize()
    assert producer.identity == ProducerIdentity(before.producer_id, before.epoch + 1)
    producer.begin()
    send(producer, TopicPartition(topic, 0), [b"kept"])
    producer.flush()
    (written,) = producer.written_partitions()
    assert (written.last_sequence, written.records) == (0, 1)
    producer.commit()
    assert broker.read(topic) == [b"kept"]


def test_a_second_transaction_of_a_session_is_dated_anew(broker: Broker, opened: Opened) -> None:
    """The seal's opening time tells how much of the transaction's time is left; it is not that of an earlier one."""
    topic = broker.topic()
    producer = opened()
    send(producer, TopicPartition(topic, 0), [b"1"])
    first = producer.opened_ms
    producer.commit()
    if producer.session.state is SessionState.UNINITIALIZED:
        producer.initialize()
    wait_until(lambda: clock_moved(first), "a millisecond passes")
    producer.begin()
    send(producer, TopicPartition(topic, 0), [b"2"])
    seal = producer.seal(0, records=1, size_bytes=1, digest=0)
    assert seal.opened_ms > first
    producer.abort()


def clock_moved(since_ms: int) -> bool:
    return int(time.time() * 1000) > since_ms + 1


def test_begin_is_unknown_to_the_coordinator_until_something_is_written(broker: Broker, opened: Opened) -> None:
    """Rule: seed 003 (beginning a transaction): a local act; the first partition opens it."""
    topic = broker.topic()
    producer = opened()
    assert producer.transactional_id is not None
    assert state(broker, producer.transactional_id)[0] == "Empty"
    send(producer, TopicPartition(topic, 0), [b"x"])
    producer.flush()
    assert state(broker, producer.transactional_id)[0] == "Ongoing"
    producer.abort()


def test_records_of_several_partitions_show_together_when_the_transaction_ends(broker: Broker, opened: Opened) -> None:
    """Rule: seed 003 (EndTxnRequest, markers) and seed 004 (atomic multi-partition writes)."""
    topics = [broker.topic() for _ in range(3)]
    producer = opened()
    for topic in topics:
        send(producer, TopicPartition(topic, 0), [topic.encode()])
    producer.flush()
    assert [broker.read(topic) for topic in topics] == [[], [], []]
    producer.commit()
    assert [broker.read(topic) for topic in topics] == [[topic.encode()] for topic in topics]


def committed_offset(broker: Broker, group: str, topic: str) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed",
        }
    )
    try:
        (found,) = consumer.committed([ReadPartition(topic, 0)], timeout=30)
        return int(found.offset)
    finally:
        consumer.close()


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_source_offsets_show_if_and_only_if_the_transaction_commits(
    broker: Broker, opened: Opened, commits: bool
) -> None:
    """Rule: seed 003 (AddOffsetsToTxn, TxnOffsetCommit: not seen before the commit) and seed 004 (offsets as part of
    the transaction)."""
    source, target, group = broker.topic(), broker.topic(), broker.new_id()
    none = -1001
    producer = opened()
    send(producer, TopicPartition(target, 0), [b"out"])
    producer.flush()
    producer.send_offsets(group, {TopicPartition(source, 0): 42})
    if commits:
        producer.commit()
        broker.wait_for_markers()
        assert committed_offset(broker, group, source) == 42
        assert broker.read(target) == [b"out"]
    else:
        producer.abort()
        assert committed_offset(broker, group, source) == none
        assert broker.read(target) == []


def test_an_unknown_topic_is_refused_before_a_record_is_sent(broker: Broker) -> None:
    """Rule: seed 000 §5.5 (server, unknown topic): asked for its leaders, the product never creates it."""
    name = broker.new_id()
    with pytest.raises(UnknownTopic) as refusal:
        broker.cluster.topic(name)
    assert refusal.value.facts == {"topic": name}
    assert name not in broker.admin.list_topics(timeout=30).topics


def test_a_partition_that_does_not_exist_cannot_be_added(broker: Broker) -> None:
    """Rule: seed 003 (AddPartitionsToTxnRequest): the coordinator takes known partitions only. It may be that its
    metadata lags behind, so this is asked again until the time is over, and nothing is open then."""
    name = broker.new_id()
    identity = transactions(broker).init_producer_id(name, TIMEOUT_MS)
    nowhere, somewhere = TopicPartition(broker.new_id(), 0), TopicPartition(broker.topic(), 0)
    with pytest.raises(OutcomeUnknown, match="UNKNOWN_TOPIC_OR_PARTITION"):
        transactions(broker).add_partitions(name, identity, [nowhere, somewhere], deadline_ms=200)
    assert state(broker, name) == ("Empty", identity)


def test_the_coordinator_of_an_id_is_found_by_asking_any_broker(broker: Broker) -> None:
    """Rule: seed 003 (finding the coordinator): FindCoordinator to any broker names it; several ids at once."""
    names = [broker.new_id() for _ in range(5)]
    found = broker.cluster.coordinators(CoordinatorKind.TRANSACTION, names, connections=2)
    assert set(found) == set(names)
    assert len(set(found.values())) == 2
