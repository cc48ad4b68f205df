"""Lost answers, cut connections and re-sent batches against a real leader, judged by an independent reader."""

from __future__ import annotations

import threading
from collections.abc import Callable

import confluent_kafka as ck
import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import AbortableError, IllegalMove, RecordTooLarge
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.delivery import MAX_REQUEST_BYTES
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.session import SessionState
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.client.client_tools import Broker, CuttingProxy, end, send, settings_for, state

pytestmark = pytest.mark.kafka

Opened = Callable[..., Producer]


def numbered(count: int) -> list[bytes]:
    return [b"%04d" % number for number in range(count)]


def let_the_loop_run(producer: Producer) -> None:
    """Requests to the coordinator have a connection of their own; when they are answered, the loop has run."""
    assert producer.transactional_id is not None
    for _ in range(10):
        producer.transactions.describe([producer.transactional_id])


def test_a_batch_whose_answer_was_lost_is_sent_again_and_is_in_the_log_once(
    broker: Broker, proxy: CuttingProxy, through_proxy: Cluster, opened: Opened
) -> None:
    """Rule: seed 000 §4 and §5.5 (duplicate answered as written), seed 003 (the acknowledgement is lost), seed 004 (the
    classic case): the leader wrote the batch, the client never heard of it."""
    topic = broker.topic()
    producer = opened(cluster=through_proxy)
    proxy.arm(requests=1, written=1)
    send(producer, TopicPartition(topic, 0), numbered(3))
    seal = producer.seal(0, records=3, size_bytes=12, digest=0)
    assert (proxy.cuts, proxy.answers_withheld, producer.retries) == (1, 1, 1)
    assert proxy.produce_requests == 2
    assert (seal.partitions[0].first_offset, seal.partitions[0].records) == (0, 3)
    assert broker.read(topic, isolation="read_uncommitted") == numbered(3)
    assert end(broker, seal).definite
    assert broker.read(topic) == numbered(3)


@pytest.mark.parametrize("written", [0, 2, 5])
def test_five_in_flight_with_the_connection_cut_keep_order_and_count(
    broker: Broker, proxy: CuttingProxy, through_proxy: Cluster, opened: Opened, written: int
) -> None:
    """Rule: seed 000 §6 (order with up to five in flight; the last five batches) and seed 004 (order is kept through
    all failures): of five requests on their way none, two or all were written when the connection went."""
    topic = broker.topic()
    where = TopicPartition(topic, 0)
    producer = opened(cluster=through_proxy)
    records = numbered(41)
    # Before the first batch is acknowledged no other is sent.
    send(producer, where, records[:1])
    producer.flush()
    proxy.arm(requests=5, written=written)
    for start in range(1, 41, 4):
        send(producer, where, records[start : start + 4])
    producer.flush()
    assert (proxy.cuts, proxy.answers_withheld) == (1, written)
    assert producer.retries >= 5
    (partition,) = producer.written_partitions()
    assert (partition.first_offset, partition.last_sequence, partition.records) == (0, 40, 41)
    producer.commit()
    assert broker.read(topic) == records


@pytest.mark.parametrize("partitions", [1, 12])
def test_no_more_than_five_produce_requests_are_on_their_way(
    broker: Broker, proxy: CuttingProxy, through_proxy: Cluster, opened: Opened, partitions: int
) -> None:
    """Rule: seed 000 §6 (max in flight <= 5): a sixth is not sent while five are unanswered, however many wait, and to
    however many partitions. Each batch is so large that it has a request of its own."""
    topic = broker.topic(partitions)
    producer = opened(cluster=through_proxy)
    for number in range(partitions):
        send(producer, TopicPartition(topic, number), [b"first"])
    producer.flush()
    before = proxy.produce_requests
    proxy.arm(requests=6, written=6)
    values = [b"%04d" % number * (MAX_REQUEST_BYTES // 6) for number in range(12)]
    # All twelve wait when the loop comes to them: one by one, a sixth is not even given to it.
    all_wait = threading.Event()
    through_proxy.network.on_loop(all_wait.wait)
    for number, value in enumerate(values):
        send(producer, TopicPartition(topic, number % partitions), [value])
    all_wait.set()
    proxy.wait_for_withheld(5)
    # Other requests of the same network loop, sent and answered: time enough for a sixth.
    let_the_loop_run(producer)
    assert (proxy.produce_requests - before, proxy.cuts) == (5, 0)
    proxy.cut()
    producer.flush()
    assert sum(each.records for each in producer.written_partitions()) == 12 + partitions
    producer.commit()
    assert broker.read(topic) == [b"first", *values[::partitions]]


def test_an_idempotent_producer_without_transactions_writes_once_through_a_cut(
    broker: Broker, proxy: CuttingProxy, through_proxy: Cluster
) -> None:
    """Rule: seed 000 §2 (within one session and partition) and seed 003 (idempotence without transactions)."""
    topic = broker.topic()
    producer = Producer(through_proxy, None)
    producer.initialize()
    producer.begin()
    first, *others = numbered(10)
    send(producer, TopicPartition(topic, 0), [first])
    producer.flush()
    proxy.arm(requests=3, written=3)
    for value in others:
        send(producer, TopicPartition(topic, 0), [value])
    producer.flush()
    assert (proxy.cuts, producer.retries >= 3) == (1, True)
    assert broker.read(topic) == numbered(10)


@pytest.mark.embedded
@pytest.mark.parametrize("transactional_id", [None, "first.0"], ids=["idempotent", "transactional"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_the_first_batch_of_a_producer_may_get_a_retriable_error_with_more_behind_it(
    version: str, transactional_id: str | None
) -> None:
    """A leader takes the second batch of a producer that it does not know as its first, and then refuses the first one
    for good.
    """
    with EmbeddedKafka(in_process=True, config={"transaction.version": version}) as kafka:
        cluster = Cluster(settings_for(kafka.bootstrap_servers))
        topic = TopicPartition(topics_of(kafka)(1), 0)
        producer = Producer(cluster, transactional_id)
        producer.initialize()
        producer.begin()
        fault = kafka.fault("Produce", "error", code="NOT_ENOUGH_REPLICAS", times=1)

        for value in numbered(5):
            send(producer, topic, [value])
        producer.flush()

        assert fault.fired == 1
        assert [(part.first_offset, part.records) for part in producer.written_partitions()] == [(0, 5)]
        cluster.close()


def test_an_idempotent_producer_does_not_recognise_the_applications_own_repetition(broker: Broker) -> None:
    """Rule: seed 004 (Limitations of the idempotent producer): the same record sent twice is two records."""
    topic = broker.topic()
    producer = Producer(broker.cluster, None)
    producer.initialize()
    producer.begin()
    for _ in range(2):
        send(producer, TopicPartition(topic, 0), [b"same"])
    producer.flush()
    assert broker.read(topic) == [b"same", b"same"]


def test_sequences_are_counted_per_partition(broker: Broker, opened: Opened) -> None:
    """Rule: seed 000 §5.1 (PID: a sequence of its own for each partition) and seed 003 (SequenceNumber)."""
    topic = broker.topic(3)
    producer = opened()
    for partition, count in ((0, 5), (2, 2), (0, 1)):
        send(producer, TopicPartition(topic, partition), [b"x"] * count)
    seal = producer.seal(0, records=8, size_bytes=8, digest=0)
    assert [(p.partition, p.last_sequence, p.records) for p in seal.partitions] == [(0, 5, 6), (2, 1, 2)]
    assert end(broker, seal, commit=False).definite


def test_a_batch_above_the_topics_limit_is_refused_and_nothing_of_the_transaction_shows(
    broker: Broker, opened: Opened
) -> None:
    """Rule: seed 001 (simplified error handling, 2): a fatal error of one batch fails what follows it."""
    topic = broker.topic()
    where = TopicPartition(topic, 0)
    producer = opened()
    send(producer, where, [b"small"])
    send(producer, where, [b"x" * 2_000_000])
    with pytest.raises(RecordTooLarge) as refusal:
        producer.flush()
    assert refusal.value.facts["size_bytes"] > 2_000_000  # type: ignore[operator]
    with pytest.raises((RecordTooLarge, IllegalMove)):
        send(producer, where, [b"after"])
    with pytest.raises((RecordTooLarge, IllegalMove)):
        producer.commit()
    producer.abort()
    assert broker.read(topic) == []
    assert broker.read(topic, isolation="read_uncommitted") in ([], [b"small"])


def test_a_transaction_of_which_records_were_removed_is_not_sealed(broker: Broker, opened: Opened) -> None:
    topic = broker.topic()
    where = TopicPartition(topic, 0)
    producer = opened()
    send(producer, where, [b"first"] * 3)
    producer.flush()
    (deleted,) = broker.admin.delete_records([ck.TopicPartition(topic, 0, 2)]).values()
    assert deleted.result().low_watermark == 2
    send(producer, where, [b"last"])

    with pytest.raises(
        AbortableError, match=f"{topic}-0 were removed .*had offset 0.*begins at 2.*retention"
    ) as refusal:
        producer.seal(0, records=4, size_bytes=4, digest=0)

    assert (refusal.value.facts["first_offset"], refusal.value.facts["log_start_offset"]) == (0, 2)
    producer.abort()
    assert broker.read(topic) == []


def test_an_abort_waits_for_what_is_on_its_way_and_sends_nothing_more(
    broker: Broker, proxy: CuttingProxy, through_proxy: Cluster, opened: Opened
) -> None:
    """Rule: seed 003 (EndTxnRequest, abort): unsent batches are dropped, sent ones are waited for; a record after the
    abort's marker would belong to no transaction."""
    topic = broker.topic()
    producer = opened(cluster=through_proxy)
    name = producer.transactional_id
    assert name is not None
    first, *others = numbered(12)
    send(producer, TopicPartition(topic, 0), [first])
    producer.flush()
    proxy.hold()
    for value in others:
        send(producer, TopicPartition(topic, 0), [value])
    proxy.wait_for_withheld(5)
    aborting = threading.Thread(target=producer.abort)
    aborting.start()
    let_the_loop_run(producer)
    proxy.release()
    aborting.join(30)
    assert proxy.answered_before_end == [6], "the abort went out while records were on their way"
    assert proxy.produce_requests == 6
    assert producer.session.state in (SessionState.UNINITIALIZED, SessionState.READY)
    assert state(broker, name)[0] in ("PrepareAbort", "CompleteAbort")
    with pytest.raises((AbortableError, IllegalMove)):
        send(producer, TopicPartition(topic, 0), [b"late"])
    assert broker.read(topic) == []
    assert broker.read(topic, isolation="read_uncommitted") == numbered(6)


@pytest.mark.real
def test_the_time_that_a_quota_costs_is_measured_with_the_requests(broker: Broker, opened: Opened) -> None:
    """KIP-13, KIP-219: a broker tells a client above its quota how long it is throttled."""
    topic, client_id = broker.topic(), f"throttled-{broker.new_id()}"
    quotas = AlterClientQuotasRequest
    entity = quotas.EntryData.EntityData(entity_type="client-id", entity_name=client_id)
    rate = quotas.EntryData.OpData(key="producer_byte_rate", value=20_000.0, remove=False)
    entry = quotas.EntryData(entity=[entity], ops=[rate])
    network = broker.cluster.network
    (answer,) = network.call_many([(network.any_node(), quotas(version=0, entries=[entry]))])
    assert answer.entries[0].error_code == 0
    cluster = Cluster(settings_for(broker.bootstrap_servers, client_id=client_id))
    try:
        producer = opened(cluster=cluster)
        values = [b"x" * 1_000] * 80
        for _ in range(4):
            send(producer, TopicPartition(topic, 0), values)
        producer.flush()
    finally:
        cluster.close()

    sent = producer.traffic
    assert sent is not None
    assert (sent.record_batches, sent.sent_bytes > 320_000) == (4, True)
    assert sent.throttled_ms > 0
