"""What the client does while a peer is hostile: each operation with true answers has one right result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.group_offsets import commit_group_offsets
from pyspark_kafka_eos.client.reading.leader_epochs import KnownPart, ask_epochs
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.requests import admin, rights, topics
from pyspark_kafka_eos.client.requests.producer_states import describe_producers
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.records import decode
from tests.pyspark_kafka_eos.client.client_tools import record_batch
from tests.pyspark_kafka_eos.client.hostile.recording import Conversation, Recorder

TOPIC, LOG, ID, GROUP = "written", "read", "pipe:0", "readers"
WHERE, READ = TopicPartition(TOPIC, 0), TopicPartition(LOG, 0)
LIMIT_MS = 300
"""The longest time that an operation gives a broker here; the product's own are 30 s and more."""

REQUEST_MS = 150
"""A request's timeout: a peer that stops in the middle of an answer costs this much."""

PAUSE_S = 0.001
_LONGEST_PAUSE_MS = 60_000


class PauseTooLong(Exception):
    """A broker has made the client wait for longer than any limit of it."""


class Impatient(Cluster):
    """The client's cluster with limits and pauses that are a test's. A pause that no limit bounds is an error."""

    @staticmethod
    def pause(delay_ms: float = 0.0) -> None:
        if delay_ms > _LONGEST_PAUSE_MS:
            raise PauseTooLong(f"{delay_ms} ms")
        time.sleep(min(delay_ms / 1000, PAUSE_S))

    def call_any(self, request: Any, timeout_ms: float | None = None, but: Any = ()) -> Any:
        return super().call_any(request, min(timeout_ms or LIMIT_MS, LIMIT_MS), but)

    def refresh_topics(self, names: Any, timeout_ms: float | None = None, new_topic_ms: int = 50) -> None:
        super().refresh_topics(names, min(timeout_ms or LIMIT_MS, LIMIT_MS), min(new_topic_ms, 50))

    def coordinators(self, kind: Any, keys: Any, *, connections: int = 1, timeout_ms: float | None = None) -> Any:
        return super().coordinators(
            kind, keys, connections=connections, timeout_ms=min(timeout_ms or LIMIT_MS, LIMIT_MS)
        )


def settings(address: str, **security: Any) -> ClientSettings:
    """The client's settings here."""
    return ClientSettings(
        (address,), client_id="victim", request_timeout_ms=REQUEST_MS, delivery_timeout_ms=LIMIT_MS,
        security=tuple(sorted(security.items())),
    )  # fmt: skip


def _forget(cluster: Cluster) -> None:
    cluster._topics.clear()
    cluster._coordinators.clear()


def _write(cluster: Cluster) -> object:
    _forget(cluster)
    identity = Transactions(cluster).init_producer_id(ID, 60_000, deadline_ms=LIMIT_MS)
    producer = Producer(cluster, ID, delivery_timeout_ms=LIMIT_MS)
    producer.join(identity)
    producer.begin()
    try:
        for _ in range(2):
            producer.send(WHERE, 2, lambda base: record_batch([b"a" * 300, b"b"], identity, base, transactional=True))
        producer.flush()
        return [(each.partition, each.last_sequence) for each in producer.written_partitions()]
    finally:
        producer.stop()


def _fetch(cluster: Cluster) -> object:
    _forget(cluster)
    reader = Fetcher(cluster, include_headers=True, stall_timeout_ms=LIMIT_MS)
    found: list[object] = []
    for batch in reader.read_ranges([OffsetRange(READ, 0, 7)]):
        found += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), batch["headers"].to_pylist(), strict=True)
    return found


def _raw(cluster: Cluster) -> object:
    _forget(cluster)
    cluster.topic(LOG)
    read = read_raw(cluster, READ, 0, isolation=1, timeout_ms=LIMIT_MS)
    return (len(decode(bytes(read.records))), read.high_watermark)


def _committed(cluster: Cluster) -> object:
    _forget(cluster)
    return Offsets(cluster).committed(GROUP, [READ], LIMIT_MS)


def _end(cluster: Cluster) -> object:
    _forget(cluster)
    producer = Producer(cluster, ID, delivery_timeout_ms=LIMIT_MS)
    transactions = Transactions(cluster)
    identity = transactions.init_producer_id(ID, 60_000, deadline_ms=LIMIT_MS)
    producer.join(identity)
    producer.begin()
    producer.send(WHERE, 1, lambda base: record_batch([b"c"], identity, base, transactional=True))
    try:
        producer.commit(LIMIT_MS)
    finally:
        producer.stop()
        # Every state but these says what is known.
        assert producer.session.state.name not in ("ENDING", "COMMITTING_SENT"), producer.session.state
    return "committed"


def _add_partitions(cluster: Cluster) -> object:
    _forget(cluster)
    transactions = Transactions(cluster)
    identity = transactions.init_producer_id("pipe:1", 60_000, deadline_ms=LIMIT_MS)
    transactions.add_partitions("pipe:1", identity, [WHERE], LIMIT_MS)
    transactions.commit_offsets("pipe:1", identity, GROUP, {READ: 3}, 1, LIMIT_MS)
    return "added"


def _describe(cluster: Cluster) -> object:
    _forget(cluster)
    views = Transactions(cluster).describe([ID, "pipe.unknown"], LIMIT_MS)
    return {name: view.state for name, view in views.items()}


def _producers(cluster: Cluster) -> object:
    _forget(cluster)
    found = describe_producers(cluster, [READ], LIMIT_MS)
    return None if found is None else {where: sorted(each) for where, each in found.items()}


def _positions(cluster: Cluster) -> object:
    _forget(cluster)
    offsets = Offsets(cluster)
    return (offsets.earliest([READ], LIMIT_MS), offsets.latest([READ], deadline_ms=LIMIT_MS))


def _epochs(cluster: Cluster) -> object:
    _forget(cluster)
    cluster.topic(LOG)
    return ask_epochs(cluster, {READ: KnownPart(0, 1, read=True)}).cut


def _topic_admin(cluster: Cluster) -> object:
    _forget(cluster)
    made = admin.create_topic(cluster, TOPIC, partitions=1, settings={}, timeout_ms=LIMIT_MS)
    return (made, topics.shapes(cluster, [LOG]), Offsets(cluster).topic_names())


def _settings_of(cluster: Cluster) -> object:
    _forget(cluster)
    return (
        admin.max_message_bytes(cluster, LOG),
        admin.broker_settings(cluster, ["num.partitions"], LIMIT_MS),
    )


def _listed(cluster: Cluster) -> object:
    _forget(cluster)
    return sorted(admin.list_transactions(cluster, timeout_ms=LIMIT_MS))


def _rights(cluster: Cluster) -> object:
    _forget(cluster)
    return (
        rights.topics(cluster, [LOG], patience_ms=50), len(rights.brokers(cluster)),
        rights.cluster_rights(cluster), rights.may_create(cluster, "new", partitions=1, settings={}),
    )  # fmt: skip


def _group(cluster: Cluster) -> object:
    _forget(cluster)
    cluster.coordinator(CoordinatorKind.GROUP, GROUP)
    commit_group_offsets(cluster, GROUP, {READ: 2}, LIMIT_MS)
    return "committed"


def _cluster_id(cluster: Cluster) -> object:
    cluster._cluster_id = None
    return cluster.cluster_id()


OPERATIONS: dict[str, Callable[[Cluster], object]] = {
    "write": _write, "fetch": _fetch, "raw": _raw, "committed": _committed, "end": _end,
    "add partitions": _add_partitions, "describe": _describe, "producers": _producers, "positions": _positions,
    "epochs": _epochs, "topics": _topic_admin, "settings": _settings_of, "transactions": _listed, "rights": _rights,
    "group": _group, "cluster id": _cluster_id,
}  # fmt: skip
"""By name. "open" is not among them: it makes the cluster."""


def record() -> Conversation:
    """Play every operation to the embedded broker."""
    with EmbeddedKafka(in_process=True, config={"transaction.version": "2"}) as kafka:
        client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for future in client.create_topics([NewTopic(TOPIC, 1), NewTopic(LOG, 2)]).values():
            future.result(30)
        direct = Cluster(settings(kafka.bootstrap_servers))
        try:
            _fill(direct)
        finally:
            direct.close()
        recorder = Recorder(kafka.bootstrap_servers)
        made: list[Cluster] = []
        recorder.during("open", lambda: made.append(Impatient(settings(recorder.address), 10_000)))
        try:
            for name, operation in OPERATIONS.items():
                recorder.during(name, lambda operation=operation: operation(made[0]))  # type: ignore[misc]
        finally:
            made[0].close()
            recorder.close()
    return Conversation({name: said for name, said in recorder.said.items() if name})


def _fill(cluster: Cluster) -> None:
    """Committed, aborted and plain batches, with headers, in several codecs."""
    from confluent_kafka import Producer as Foreign

    address = cluster.settings.bootstrap_servers[0]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        plain = Foreign({"bootstrap.servers": address, "compression.type": codec})
        plain.produce(LOG, codec.encode() * 20, b"key", 0, headers=[("h", b"v"), ("empty", None)])
        assert plain.flush(30) == 0
    for commit in (True, False):
        producer = Producer(cluster, f"filler.{commit}")
        producer.initialize()
        producer.begin()
        identity: ProducerIdentity = producer.identity
        producer.send(READ, 1, _batch(identity))
        if commit:
            producer.commit(10_000)
        else:
            producer.abort()
    commit_group_offsets(cluster, GROUP, {READ: 1}, 10_000)


def _batch(identity: ProducerIdentity) -> Callable[[int], bytes]:
    return lambda base: record_batch([b"x" * 50], identity, base, transactional=True)


def each_operation() -> Iterator[str]:
    """All names, the opening first."""
    yield "open"
    yield from OPERATIONS
