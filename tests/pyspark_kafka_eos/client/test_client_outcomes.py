"""What a real broker says about a transaction in each state: the ground on which the proof of outcome stands.

Design section 3 (proof of outcome): one test per row, on both transaction versions.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.requests.ends import EndRequest
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.model import Seal
from tests.pyspark_kafka_eos.client.client_tools import Broker, end, next_epoch, sealed, state, wait_until

pytestmark = pytest.mark.kafka

Opened = Callable[..., Producer]


def test_a_sealed_transaction_is_ongoing_under_its_identity_and_can_be_committed(broker: Broker) -> None:
    """Row: ongoing, same epoch."""
    topic = broker.topic()
    seal = sealed(broker, topic)
    view = Transactions(broker.cluster).describe([seal.transactional_id])[seal.transactional_id]
    assert (view.state, view.identity, view.timeout_ms) == ("Ongoing", seal.identity, 60_000)
    assert view.partitions == {TopicPartition(topic, 0)}
    assert abs(view.start_time_ms - time.time() * 1000) < 60_000
    assert broker.read(topic) == []
    assert end(broker, seal).definite
    assert broker.read(topic) == [b"a", b"b"]


def test_a_repeated_commit_succeeds_and_changes_nothing(broker: Broker) -> None:
    """Row: committed before; version 2 answers with the next epoch and stands at it (KIP-890)."""
    topic = broker.topic()
    seal = sealed(broker, topic)
    first, second = end(broker, seal), end(broker, seal)
    assert first == second
    assert first.definite
    now = next_epoch(seal) if broker.version >= 2 else seal.identity
    assert first.next_identity == (now if broker.version >= 2 else None)
    wait_until(lambda: state(broker, seal.transactional_id)[0] == "CompleteCommit", "the markers are written")
    assert state(broker, seal.transactional_id) == ("CompleteCommit", now)
    assert broker.read(topic) == [b"a", b"b"]


def test_an_abort_after_the_commit_is_refused_and_takes_nothing_back(broker: Broker) -> None:
    """Rule: seed 003 (compared with two-phase commit): a prepared commit fixes the end."""
    topic = broker.topic()
    seal = sealed(broker, topic)
    assert end(broker, seal).definite
    answer = end(broker, seal, commit=False)
    assert (answer.definite, answer.code) == (False, Code.INVALID_TXN_STATE)
    assert broker.read(topic) == [b"a", b"b"]


def test_a_commit_after_the_abort_is_refused_and_shows_nothing(broker: Broker) -> None:
    """Rule: seed 003 (EndTxnRequest): aborted records stay in the log and are never given to read_committed."""
    topic = broker.topic()
    seal = sealed(broker, topic)
    assert end(broker, seal, commit=False).definite
    answer = end(broker, seal)
    assert (answer.definite, answer.code) == (False, Code.INVALID_TXN_STATE)
    assert broker.read(topic) == []
    assert broker.read(topic, isolation="read_uncommitted") == [b"a", b"b"]


def test_a_replayed_commit_cannot_commit_a_later_transaction(broker: Broker) -> None:
    """Row: replay while a later transaction is open (FLINK-8132): one identity carries one transaction."""
    topic, later_topic = broker.topic(), broker.topic()
    seal = sealed(broker, topic)
    assert end(broker, seal).definite
    later = sealed(broker, later_topic, seal.transactional_id)
    answer = end(broker, seal)
    assert (answer.definite, answer.code) == (False, Code.PRODUCER_FENCED)
    assert state(broker, seal.transactional_id) == ("Ongoing", later.identity)
    assert broker.read(later_topic) == []
    assert end(broker, later).definite


def test_the_end_of_a_transaction_that_was_never_opened_proves_nothing(broker: Broker, opened: Opened) -> None:
    """Row: nothing was written."""
    producer = opened()
    assert producer.transactional_id is not None
    seal = Seal(producer.transactional_id, 0, producer.identity, broker.version)
    answer = end(broker, seal)
    assert (answer.definite, answer.code) == (False, Code.INVALID_TXN_STATE)
    assert state(broker, seal.transactional_id) == ("Empty", seal.identity)


def test_the_end_of_an_unknown_id_proves_nothing(broker: Broker) -> None:
    """Row: id expired. An id that never was looks the same to the coordinator."""
    name = broker.new_id()
    answer = end(broker, Seal(name, 0, ProducerIdentity(123_456, 0), broker.version))
    assert (answer.definite, answer.code) == (False, Code.INVALID_PRODUCER_ID_MAPPING)
    assert state(broker, name)[0] == "NotFound"


def test_an_empty_slot_seals_without_a_transaction(broker: Broker, opened: Opened) -> None:
    """Design section 3: an empty slot opens nothing, so there is nothing to end."""
    producer = opened()
    assert producer.transactional_id is not None
    seal = producer.seal(3, records=0, size_bytes=0, digest=0)
    assert (seal.empty, seal.partitions) == (True, ())
    assert state(broker, producer.transactional_id)[0] == "Empty"


def test_ends_of_many_slots_come_back_in_the_order_asked(broker: Broker) -> None:
    """`end_many` spreads over several connections; every answer belongs to its request."""
    topic = broker.topic()
    seals = [sealed(broker, topic) for _ in range(6)]
    unknown = Seal(broker.new_id(), 0, ProducerIdentity(123_456, 0), broker.version)
    requests = [
        EndRequest(seal.transactional_id, seal.identity, True, seal.transaction_version)
        for seal in (*seals[:3], unknown, *seals[3:])
        if seal.identity is not None
    ]
    answers = Transactions(broker.cluster).end_many(requests, deadline_ms=20_000)
    assert [answer.definite for answer in answers] == [True] * 3 + [False] + [True] * 3
    if broker.version >= 2:
        assert [answer.next_identity for answer in answers if answer.definite] == [next_epoch(seal) for seal in seals]
    assert len(broker.read(topic)) == 12
