"""Produce without a guarantee: each batch is sent once, without sequence numbers and retries; an error is only counted.

Owns: the bytes in flight, the bounds on them and on every wait, how many batches got no good answer.
Does not know: transactions, idempotence, rows.
Invariants:
- A batch is handed to a connection at most once.
- A failure never reaches the caller, unless its partition's leader is unknown before anything is sent.

The leader's answer (acks=1) is requested nevertheless: without it nothing would bound the bytes that wait in
the process, and they would be lost when the process ends.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code, name_of
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.net.network import Answer
from pyspark_kafka_eos.client.wire.produce import ACKS_LEADER, produce_request
from pyspark_kafka_eos.client.wire.versions import NO_TRANSACTION, Versions
from pyspark_kafka_eos.client.writing.delivery import BUFFER_BYTES, Stamper

log = logging.getLogger(__name__)

_MOST_TIMEOUTS = 4
"""Request timeouts after which no answer arrives: connecting and authenticating take two, a request one."""


class Unconfirmed:
    """Sends batches once. One caller's thread; `send` waits while too much is in flight."""

    identity = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)
    """Kafka's identity of a producer that is not idempotent."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._changed = runtime.condition()
        self._on_way: dict[int, int] = {}
        self._tokens = itertools.count()
        self.lost = 0
        self.last_reason = ""

    def send(self, where: TopicPartition, count: int, stamp: Stamper, *, machine_time: bool = False) -> None:
        """Send one batch of `count` records. BrokerUnavailable where its partition has no leader. Whose time they have
        is asked by a refusal, and this one hears none.
        """
        leader = self._leader(where)
        data = stamp(NO_SEQUENCE)
        with self._changed:
            self._await(lambda: sum(self._on_way.values()) < BUFFER_BYTES)
            token = next(self._tokens)
            self._on_way[token] = len(data)
        timeout_ms = self.cluster.settings.request_timeout_ms
        batches = [(where.topic, where.partition, data)]

        def build(versions: Versions) -> m.Message:
            version = versions.of(m.ProduceRequest, NO_TRANSACTION)
            return produce_request(version, None, timeout_ms, batches, acks=ACKS_LEADER)

        def take(answer: Answer) -> None:
            reason = _reason(answer, where)
            with self._changed:
                if self._on_way.pop(token, None) is not None and reason is not None:
                    self._lose(1, f"{where}: {reason}")
                self._changed.notify_all()

        self.cluster.network.on_loop(lambda: self.cluster.network.send_on_loop(leader, build, take))

    def flush(self) -> None:
        """Wait until nothing is in flight; lost batches are logged, never raised."""
        with self._changed:
            self._await(lambda: not self._on_way)
        if self.lost:
            log.warning("%d batches were not acknowledged and are lost (last: %s)", self.lost, self.last_reason)

    def _await(self, done: Callable[[], bool]) -> None:
        """Under the lock: wait for answers. A batch without one long after its own timeout is lost."""
        deadline = runtime.monotonic() + _MOST_TIMEOUTS * self.cluster.settings.request_timeout_ms / 1000
        while not done():
            left = deadline - runtime.monotonic()
            if left <= 0:
                self._lose(len(self._on_way), "neither answered nor timed out in time")
                self._on_way.clear()
                return
            self._changed.wait(left)

    def _lose(self, batches: int, reason: str) -> None:
        self.lost += batches
        self.last_reason = reason

    def _leader(self, where: TopicPartition) -> int:
        leader = self.cluster.leader(where)
        if leader < 0:
            # Waits until every partition has one, for as long as a question may take.
            self.cluster.topic(where.topic, refresh=True)
            leader = self.cluster.leader(where)
        if leader < 0:
            raise BrokerUnavailable(f"{where} has no leader", {"partition": str(where)})
        return leader


def _reason(answer: Answer, where: TopicPartition) -> str | None:
    if isinstance(answer, ExactlyOnceError):
        return str(answer)
    codes = {
        TopicPartition(topic.name, part.index): part.error_code
        for topic in answer.responses
        for part in topic.partition_responses
    }
    if where not in codes:
        return "the answer leaves the partition out"
    return None if codes[where] == Code.NONE else name_of(codes[where])
