"""Batches that a leader leaves unanswered go to the one that was elected, their sequences and bytes unchanged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_core.errors import AbortableError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.wire.versions import Build, Versions
from pyspark_kafka_eos.client.writing import delivery
from pyspark_kafka_eos.client.writing.delivery import Delivery
from pyspark_kafka_eos.model import ClientSettings

P0, P1 = TopicPartition("out", 0), TopicPartition("out", 1)
WAIT_S = 30.0


class FrozenLeader:
    """Broker 1 leads both partitions and answers when it is told to; broker 2 answers at once. A look elsewhere finds
    the leaders of `elected`.
    """

    def __init__(self) -> None:
        self.network = self
        self.settings = ClientSettings(("frozen:1",))
        self.connections = 1
        self.leaders = {P0: 1, P1: 1}
        self.elected: dict[TopicPartition, int] = {}
        self.frames: list[tuple[int, bytes]] = []
        self.held: list[Callable[[Code], None]] = []
        self.looks = 0
        self._lock = threading.RLock()

    def leader(self, where: TopicPartition) -> int:
        return self.leaders[where]

    def leader_epoch(self, where: TopicPartition) -> int:
        return self.leaders[where]

    def look_for_leaders(self, topics: Collection[str], hanging: Collection[int]) -> None:
        assert (set(topics), set(hanging)) == ({"out"}, {1})
        self.looks += 1
        self.leaders.update(self.elected)

    def on_loop(self, action: Callable[[], None]) -> None:
        with self._lock:
            action()

    def later(self, _delay_ms: float, action: Callable[[], None]) -> None:
        timer = threading.Timer(0.001, action)
        timer.daemon = True
        timer.start()

    def request_leaders_on_loop(self, _names: object, done: Callable[[], None]) -> None:
        done()

    def send_on_loop(self, node: int, build: Build, done: Callable[[Any], None]) -> None:
        request = build(Versions({m.ProduceRequest.API_KEY: (0, 8)}))
        where = [(topic.name, part) for topic in request.topic_data for part in topic.partition_data]
        self.frames += [(node, bytes(part.records)) for _, part in where]
        numbers = [part.index for _, part in where]

        def answer(code: Code) -> None:
            parts = [
                SimpleNamespace(
                    index=number, error_code=int(code), base_offset=0, log_start_offset=0, record_errors=[],
                    error_message=None,
                )
                for number in numbers
            ]  # fmt: skip
            done(SimpleNamespace(responses=[SimpleNamespace(name="out", partition_responses=parts)]))

        if node == 1:
            self.held.append(answer)
        else:
            answer(Code.NONE)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FrozenLeader:
    monkeypatch.setattr(delivery, "LOOK_AFTER_S", 0.01)
    return FrozenLeader()


def sending(cluster: FrozenLeader) -> Delivery:
    made = Delivery(cast(Cluster, cluster), ProducerIdentity(7, 0), transactional_id="pipe:0", transaction_version=2)
    for number, where in enumerate((P0, P1)):
        made.submit(where, 1, lambda base, number=number: f"batch {number} at {base}".encode())  # type: ignore[misc]
    return made


def test_batches_at_a_silent_leader_are_sent_to_the_new_one_as_they_are(cluster: FrozenLeader) -> None:
    made = sending(cluster)
    cluster.elected = {P0: 2, P1: 2}

    made.flush(int(WAIT_S * 1000))

    assert made.unacknowledged == 0
    at_old = {data for node, data in cluster.frames if node == 1}
    at_new = [data for node, data in cluster.frames if node == 2]
    assert set(at_new) == {b"batch 0 at 0", b"batch 1 at 0"} >= at_old
    assert len(at_new) == 2


@pytest.mark.parametrize("late", [Code.NONE, Code.NOT_LEADER_OR_FOLLOWER, Code.INVALID_PRODUCER_EPOCH])
def test_what_the_former_leader_says_later_changes_nothing(cluster: FrozenLeader, late: Code) -> None:
    made = sending(cluster)
    cluster.elected = {P0: 2, P1: 2}
    made.flush(int(WAIT_S * 1000))
    assert cluster.held

    for answer in cluster.held:
        answer(late)
    made.submit(P0, 1, lambda base: f"next at {base}".encode())
    made.flush(int(WAIT_S * 1000))

    assert cluster.frames[-1] == (2, b"next at 1")


def test_a_leader_that_is_slow_and_not_replaced_is_waited_for(cluster: FrozenLeader) -> None:
    made = sending(cluster)

    with pytest.raises(AbortableError, match="still unacknowledged"):
        made.flush(200)

    assert cluster.looks > 1
    assert {node for node, _ in cluster.frames} == {1}
    sent = len(cluster.frames)
    while cluster.held:
        cluster.held.pop(0)(Code.NONE)
    made.flush(int(WAIT_S * 1000))
    assert sent <= 2
    assert {node for node, _ in cluster.frames} == {1}


def test_a_partition_that_stays_with_the_silent_leader_waits_for_it(cluster: FrozenLeader) -> None:
    made = sending(cluster)
    cluster.elected = {P1: 2}

    with pytest.raises(AbortableError, match="still unacknowledged"):
        made.flush(300)
    while cluster.held:
        cluster.held.pop(0)(Code.NONE)
    made.flush(int(WAIT_S * 1000))

    assert [data for node, data in cluster.frames if node == 2] == [b"batch 1 at 0"]
    assert [data for node, data in cluster.frames if node == 1].count(b"batch 0 at 0") == 1
