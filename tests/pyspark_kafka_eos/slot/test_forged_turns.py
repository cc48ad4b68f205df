"""Somebody with Write on the topic of the turns gives nobody a turn, takes none away and stops no batch.

With transaction version 1 a broker takes the first records of a producer id from any sequence on. Two tasks with one
sequence lost the rows of the second: the broker acknowledges them as those of the first. On both versions, on whatever
broker the tests are given. Source of the attack: an adversary's play of the shared ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.commit.handover import begin, finish
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import MAX_OWN_BYTES, decode, scan
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.turn_log import signed, to_json
from pyspark_kafka_eos.slot.turns import Event, Passed, Stopped, TaskStarted, Wanted
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit import stranger
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.pyspark_kafka_eos.commit.judge import read_all
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

LINES = ("offsets",)
ROWS = Counter(f"{row} of task {task}" for task in range(3) for row in range(50))


@dataclass
class World:
    """One batch of three tasks, and the stranger's view of its turns."""

    broker: AnyKafka
    cluster: Cluster
    options: SinkOptions
    plan: SharedPlan
    numbers: int = -1

    @property
    def where(self) -> TopicPartition:
        return self.plan.turns.where

    @property
    def places(self) -> list[TopicPartition]:
        topic = self.options.topic or ""
        return [TopicPartition(topic, number) for number in range(len(self.cluster.topic(topic).leaders))]

    @property
    def number(self) -> int:
        """Of his next record: whoever takes his word passes over a number that was there."""
        self.numbers += 1
        return self.numbers

    def put(self, value: bytes | None, key: bytes | None = None) -> None:
        stranger.put(self.cluster, self.where, self.plan.key.encode() if key is None else key, value)

    def said(self) -> list[tuple[bytes, bytes]]:
        """Everything that is in the log of turns."""
        found: list[tuple[bytes, bytes]] = []
        offset = self.plan.turns.offset
        while batches := list(scan(bytes(read_raw(self.cluster, self.where, offset).records))):
            for info, data in batches:
                rows = decode((info, data))
                found += zip(rows.key.to_pylist(), rows.value.to_pylist(), strict=True)
                offset = info.last_offset + 1
        return found


def three_turns(world: World) -> list[Event]:
    """A task that nobody started has written one record to each partition, again and again."""
    passed = [(Wanted(99, "x", where), Passed(99, "x", where, 1)) for where in world.places]
    return [TaskStarted(99, "x"), *(event for pair in passed for event in pair)]


# ---- what he says


def in_clear(world: World) -> None:
    world.put(to_json(world.number, three_turns(world)))


def under_a_secret_of_his_own(world: World) -> None:
    world.put(signed(to_json(world.number, three_turns(world)), world.plan.key.encode(), b"his"))


def with_the_tag_of_another_record(world: World) -> None:
    for _, value in world.said():
        world.put(value[:32] + to_json(world.number, three_turns(world)))


def what_was_said_once_more(world: World) -> None:
    for key, value in world.said():
        world.put(value, key)


def that_a_task_failed(world: World) -> None:
    world.put(to_json(1, [TaskStarted(0, "y"), Stopped(0, "y", "it failed")]))


def nothing_that_can_be_read(world: World) -> None:
    for value in (None, b"", b"x", b"\xff" * 32, b"{" * 10_000, bytes(100_000)):
        world.put(value)


def a_batch_that_fills_a_worker(world: World) -> None:
    bomb = bytes(MAX_OWN_BYTES + 1)
    stranger.put(world.cluster, world.where, world.plan.key.encode(), bomb, compression="zstd")


SAYS = [
    in_clear,
    under_a_secret_of_his_own,
    with_the_tag_of_another_record,
    what_was_said_once_more,
    that_a_task_failed,
    nothing_that_can_be_read,
    a_batch_that_fills_a_worker,
]


@pytest.fixture
def world(broker: AnyKafka) -> Iterator[World]:
    topic = topics_of(broker)(2)
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "pipeline": f"of-{topic}",
            "topic": topic,
            "transaction.scope": "batch",
        }
    )
    cluster = Cluster(options.client)
    yield World(broker, cluster, options, None)  # type: ignore[arg-type]
    cluster.close()


@pytest.mark.parametrize("says", SAYS, ids=lambda says: says.__name__)
def test_whatever_a_stranger_says_every_row_is_there_once(
    world: World, says: Callable[[World], None], caplog: pytest.LogCaptureFixture
) -> None:
    plan, handover = begin(world.cluster, world.options, "query", 0, LINES)
    assert isinstance(plan, SharedPlan)
    world.plan = plan
    seals = []
    for task in range(3):
        says(world)
        rows = [f"{row} of task {task}" for row in range(50)]
        seals.append(write_shared(plan, task, arrow_batches(rows)))
    says(world)

    report = finish(world.cluster, world.options, handover, seals, LINES, {}, tasks=3)

    assert (report.records, report.redone) == (150, 0)
    assert read_all(world.broker, world.options.topic or "") == ROWS
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert all("Write on the topic" in each for each in told)
    assert bool(told) == (says is not what_was_said_once_more)


def test_the_secret_is_in_no_log_and_no_text(world: World) -> None:
    plan, _ = begin(world.cluster, world.options, "query", 0, LINES)
    assert isinstance(plan, SharedPlan)

    assert len(plan.turns.secret) == 16
    assert repr(plan.turns.secret)[2:-1] not in repr(plan) and plan.turns.secret.hex() not in repr(plan)


def test_each_try_has_a_secret_of_its_own(world: World) -> None:
    first, _ = begin(world.cluster, world.options, "query", 0, LINES)
    second, _ = begin(world.cluster, world.options, "query", 0, LINES)
    assert isinstance(first, SharedPlan) and isinstance(second, SharedPlan)

    assert first.turns.secret != second.turns.secret
