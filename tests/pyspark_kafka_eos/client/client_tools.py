"""What the client's tests share: batches made by another library, an independent reader, and a proxy that cuts."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ReadPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_core.errors import UnknownTopic
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.ends import EndAnswer, EndRequest
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.wire.conversation import Conversation, Unanswered
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.model import ClientSettings, Seal

PRODUCE, METADATA, FIND_COORDINATOR, END_TXN = 0, 3, 10, 26
WAIT_S = 30.0


def wait_until(said: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Ask until it is so; an AssertionError naming it when it never is."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not said():
        assert time.monotonic() < deadline, f"never happened: {what}"
        pause.wait(0.02)


def record_batch(values: Sequence[bytes], identity: ProducerIdentity, base_sequence: int, transactional: bool) -> bytes:
    """A batch v2 by kafka-python's writer, so that these tests do not depend on our own."""
    builder = DefaultRecordBatchBuilder(
        2, 0, transactional, identity.producer_id, identity.epoch, base_sequence, 1 << 24
    )
    for index, value in enumerate(values):
        builder.append(index, timestamp=int(time.time() * 1000), key=None, value=value, headers=[])
    return bytes(builder.build())


def send(producer: Producer, where: TopicPartition, values: Sequence[bytes]) -> None:
    """One batch."""
    identity, transactional = producer.identity, producer.transactional_id is not None
    producer.send(where, len(values), lambda base: record_batch(values, identity, base, transactional))


@dataclass
class Broker:
    """A real broker, our client's view of it, and an independent one."""

    bootstrap_servers: str
    cluster: Cluster
    admin: AdminClient
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _ids: list[str] = field(default_factory=list)
    doomed: Seal | None = None

    @property
    def version(self) -> int:
        """The transaction version that this broker offers."""
        return self.cluster.transaction_version

    def topic(self, partitions: int = 1) -> str:
        """A new, empty topic."""
        name = f"topic-{uuid.uuid4().hex[:12]}"
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)
        wait_until(lambda: self._sees(name), "the broker's metadata has the new topic")
        return name

    def _sees(self, name: str) -> bool:
        try:
            return bool(self.cluster.topic(name, refresh=True).leaders)
        except UnknownTopic:
            return False

    def new_id(self) -> str:
        """A transactional id that nobody used before."""
        self._ids.append(f"pipe-{uuid.uuid4().hex[:12]}.{next(self._numbers)}")
        return self._ids[-1]

    def wait_for_markers(self) -> None:
        """EndTxn is answered before the markers are written; what it ended shows a moment later."""

        def settled() -> bool:
            views = Transactions(self.cluster).describe(self._ids).values()
            return not any(view.state.startswith("Prepare") for view in views)

        wait_until(settled, "the markers are written")

    def read(self, topic: str, *, isolation: str = "read_committed") -> list[bytes]:
        """Every value of partition 0 as librdkafka sees it, in the order of the log."""
        self.wait_for_markers()
        settings = {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        values: list[bytes] = []
        try:
            consumer.assign([ReadPartition(topic, 0, 0)])
            while True:
                message = consumer.poll(WAIT_S)
                assert message is not None, "the judge got no answer"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return values
                value = message.value()
                assert value is not None
                values.append(value)
        finally:
            consumer.close()


def settings_for(bootstrap_servers: str, **changes: int | str) -> ClientSettings:
    """Our client's settings."""
    return ClientSettings(tuple(bootstrap_servers.split(",")), **changes)  # type: ignore[arg-type]


def sealed(broker: Broker, topic: str, transactional_id: str | None = None, timeout_ms: int = 60_000) -> Seal:
    """An open transaction with the records a and b."""
    producer = Producer(broker.cluster, transactional_id or broker.new_id(), transaction_timeout_ms=timeout_ms)
    producer.initialize()
    producer.begin()
    send(producer, TopicPartition(topic, 0), [b"a", b"b"])
    return producer.seal(0, records=2, size_bytes=2, digest=0)


def end(broker: Broker, seal: Seal, *, commit: bool = True) -> EndAnswer:
    """EndTxn under the sealed identity."""
    assert seal.identity is not None
    request = EndRequest(seal.transactional_id, seal.identity, commit, seal.transaction_version)
    return Transactions(broker.cluster).end(request, deadline_ms=20_000)


def state(broker: Broker, transactional_id: str) -> tuple[str, ProducerIdentity]:
    """What the coordinator says: state and identity."""
    view = Transactions(broker.cluster).describe([transactional_id])[transactional_id]
    return view.state, view.identity


def next_epoch(seal: Seal) -> ProducerIdentity:
    """The identity after the sealed one."""
    assert seal.identity is not None
    return ProducerIdentity(seal.identity.producer_id, seal.identity.epoch + 1)


class CuttingProxy:
    """Stands between a client and one broker. Armed, it withholds the answers of the next `requests` Produce requests,
    passes only the first `written` of them on, and when the broker has answered those it cuts the connection. Holding,
    it keeps the answers to Produce requests, and what follows them on the same connection, until they are released.

    Addresses in the broker's answers are rewritten to this proxy's, so the client cannot go round it.
    """

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.RLock()
        self._threads: list[threading.Thread] = []
        self._open: list[_Link] = []
        self._requests = self._written = 0
        self.cuts = 0
        self.produce_requests = 0
        self.answers_withheld = 0
        self.clients: list[tuple[str, int]] = []
        self.answered_before_end: list[int] = []
        self._answered = 0
        self._holding = False
        self._held_back: list[tuple[_Link, bytes]] = []
        self._start(self._accept)

    def arm(self, *, requests: int, written: int) -> None:
        """Cut once, as described above."""
        with self._lock:
            self._requests, self._written = requests, written

    def hold(self) -> None:
        """Keep the answers to Produce requests from now on."""
        with self._lock:
            self._holding = True

    def release(self) -> None:
        """Hand over what was kept, and keep nothing more."""
        with self._lock:
            self._holding = False
            self._answered += self.answers_withheld
            for link, frame in self._held_back:
                link.waits = False
                _write_frame(link.client, frame)
            self._held_back.clear()

    def wait_for_withheld(self, answers: int) -> None:
        """Until the broker has answered that many Produce requests in vain."""
        wait_until(lambda: self.answers_withheld >= answers, f"{answers} answers withheld")

    def cut(self) -> None:
        """Cut every connection now; what is withheld is lost."""
        with self._lock:
            self._requests = 0
            self.cuts += 1
            for link in self._open:
                link.cut()

    def close(self) -> None:
        """End every connection and thread."""
        # close() alone would leave the accepting thread asleep.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            links, self._open = self._open, []
        for link in links:
            link.cut()
        for thread in self._threads:
            thread.join(WAIT_S)
        for link in links:
            link.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, address = self._listener.accept()
            except OSError:
                return
            link = _Link(client, socket.create_connection(self._target))
            with self._lock:
                self.clients.append(address)
                self._open.append(link)
            self._start(lambda link=link: self._requests_of(link))  # type: ignore[misc]
            self._start(lambda link=link: self._answers_of(link))  # type: ignore[misc]

    def _requests_of(self, link: _Link) -> None:
        while (frame := _read_frame(link.client)) is not None:
            api, _, correlation = struct.unpack_from(">hhi", frame)
            with self._lock:
                link.apis[correlation] = api
                passes = True
                if api == END_TXN:
                    self.answered_before_end.append(self._answered)
                if api == PRODUCE:
                    self.produce_requests += 1
                    if self._requests:
                        link.held += 1
                        passes = link.held <= self._written
                        if passes:
                            link.withheld.add(correlation)
                if passes:
                    _write_frame(link.broker, frame)
                self._maybe_cut(link)
        link.cut()

    def _answers_of(self, link: _Link) -> None:
        there = b"127.0.0.1" + struct.pack(">i", self._target[1])
        here = b"127.0.0.1" + struct.pack(">i", int(self.address.split(":")[1]))
        while (frame := _read_frame(link.broker)) is not None:
            (correlation,) = struct.unpack_from(">i", frame)
            with self._lock:
                api = link.apis.pop(correlation, -1)
                if correlation in link.withheld:
                    link.withheld.discard(correlation)
                    self.answers_withheld += 1
                    link.silent = True
                    self._maybe_cut(link)
                elif api == PRODUCE and self._holding:
                    self.answers_withheld += 1
                    link.waits = True
                if link.silent:
                    continue
                if link.waits:
                    self._held_back.append((link, frame))
                    continue
                self._answered += api == PRODUCE
            if api in (METADATA, FIND_COORDINATOR):
                frame = frame.replace(there, here)
            _write_frame(link.client, frame)
        link.cut()

    def _maybe_cut(self, link: _Link) -> None:
        if self._requests and link.held >= self._requests and not link.withheld:
            self._requests = 0
            self.cuts += 1
            link.cut()


class _Link:
    """One client's connection and its counterpart to the broker."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client, self.broker = client, broker
        self.apis: dict[int, int] = {}
        self.held = 0
        # Answers come in the order of the requests: behind one that is kept, all others of the connection are kept too.
        self.silent = self.waits = False
        self.withheld: set[int] = set()

    def cut(self) -> None:
        for end in (self.client, self.broker):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self.client.close()
        self.broker.close()


def _read_exactly(source: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        try:
            part = source.recv(count - len(data))
        except OSError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)


def _read_frame(source: socket.socket) -> bytes | None:
    head = _read_exactly(source, 4)
    return None if head is None else _read_exactly(source, struct.unpack(">i", head)[0])


def _write_frame(target: socket.socket, frame: bytes) -> None:
    try:
        target.sendall(struct.pack(">i", len(frame)) + frame)
    except OSError:
        return


def fed(talk: Conversation, data: bytes, sizes: Iterable[int] = ()) -> list[tuple[Unanswered, Any]]:
    """The answers that a conversation has received with these bytes, which come in pieces of `sizes`, then as many as
    it has room for.
    """
    answers, at, sizes = [], 0, iter(sizes)
    while at < len(data):
        room = talk.room()
        count = min(next(sizes, len(room)), len(room), len(data) - at)
        room[:count] = data[at : at + count]
        answers += talk.took(count)
        at += count
    return answers
