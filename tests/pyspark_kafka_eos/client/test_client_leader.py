"""What a real leader does with sequences and epochs: the documents' server rules, asked with bare Produce requests."""

from __future__ import annotations

import time

import pytest

from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.requests.transactions import Transactions
from tests.pyspark_kafka_eos.client.client_tools import Broker, record_batch

pytestmark = pytest.mark.kafka


class Leader:
    """Partition 0 of a new topic, written to by an idempotent producer without any state of ours."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topic = broker.topic()
        self.identity = Transactions(broker.cluster).init_producer_id(None, 60_000)

    def produce(self, base_sequence: int, values: list[bytes], epoch: int = 0) -> tuple[Code, int]:
        """(code, offset) of one batch."""
        identity = ProducerIdentity(self.identity.producer_id, epoch)
        topic_class = m.ProduceRequest.TopicProduceData
        data = topic_class.PartitionProduceData(
            index=0, records=record_batch(values, identity, base_sequence, transactional=False)
        )
        cluster = self.broker.cluster
        request = cluster.build(
            m.ProduceRequest,
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[topic_class(name=self.topic, partition_data=[data])],
        )
        deadline = time.monotonic() + 30
        while True:
            answer = cluster.call(cluster.topic(self.topic).leaders[0], request)
            (partition,) = answer.responses[0].partition_responses
            # Kafka's metadata name a new topic's leader before that broker has become it. Nothing is written then.
            moving = partition.error_code == Code.NOT_LEADER_OR_FOLLOWER and time.monotonic() < deadline
            if not moving:
                return Code(partition.error_code), partition.base_offset
            time.sleep(0.05)

    def log(self) -> list[bytes]:
        return self.broker.read(self.topic)


@pytest.fixture
def leader(broker: Broker) -> Leader:
    return Leader(broker)


def test_the_last_five_batches_are_answered_with_their_old_offsets_and_an_older_one_is_out_of_order(
    leader: Leader,
) -> None:
    """Rule: seed 000 §5.5 (server, step 5) and §6 (why five): five are remembered, not six."""
    for sequence in range(6):
        assert leader.produce(sequence, [b"%d" % sequence]) == (Code.NONE, sequence)
    for sequence in range(1, 6):
        assert leader.produce(sequence, [b"%d" % sequence]) == (Code.NONE, sequence)
    assert leader.produce(0, [b"0"])[0] is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert leader.log() == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_gap_is_out_of_order_and_is_not_written(leader: Leader) -> None:
    """Rule: seed 000 §5.5 (server, step 6.6) and seed 003 (idempotence: a jump means that records are missing)."""
    assert leader.produce(0, [b"a", b"b"]) == (Code.NONE, 0)
    assert leader.produce(3, [b"d"])[0] is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert leader.produce(2, [b"c"]) == (Code.NONE, 2)
    assert leader.log() == [b"a", b"b", b"c"]


def test_a_new_epoch_starts_at_sequence_zero(leader: Leader) -> None:
    """Rule: seed 000 §5.5 (server, steps 6.3 to 6.5)."""
    assert leader.produce(0, [b"a"])[0] is Code.NONE
    assert leader.produce(1, [b"x"], epoch=1)[0] is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert leader.produce(0, [b"b"], epoch=1) == (Code.NONE, 1)
    assert leader.log() == [b"a", b"b"]


def test_an_older_epoch_is_refused(leader: Leader) -> None:
    """Rule: seed 003 (recovery, epoch) and seed 004 (zombie fencing): the leader knows the newer epoch."""
    assert leader.produce(0, [b"a"], epoch=1)[0] is Code.NONE
    assert leader.produce(0, [b"zombie"], epoch=0)[0] is Code.INVALID_PRODUCER_EPOCH
    assert leader.log() == [b"a"]


def test_a_producer_that_the_leader_does_not_know_may_start_above_zero_today(leader: Leader) -> None:
    """Rule: seed 000 §5.5 (server, step 6.2), changed by KIP-360: UNKNOWN_PRODUCER_ID is not answered any more; the
    client must not count on this check."""
    assert leader.produce(5, [b"a"]) == (Code.NONE, 0)
    assert leader.produce(6, [b"b"]) == (Code.NONE, 1)
    assert leader.log() == [b"a", b"b"]
