"""Records of a decided batch that an election loses before its end, and leaders that cannot know: played whole, on the
embedded broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedded_kafka.embedded import EmbeddedKafka, FaultHandle
from kafka_core.errors import RepairPending
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import run
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, read_in_order, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import following, rows_of, with_options

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

TIMEOUT_MS = 60_000
"""Of the tasks' transactions."""


@pytest.fixture(params=["1", "2"], scope="module", ids=["version1", "version2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    config = {"transaction.version": request.param}
    with EmbeddedKafka(in_process=True, config=config) as kafka:
        yield kafka


@pytest.fixture(autouse=True)
def nothing_armed(broker: EmbeddedKafka) -> Iterator[None]:
    yield
    crash_points.arm("")
    broker.clear_faults()


class Died(BaseException):
    """In place of a kill, where the test needs the process."""


def die() -> None:
    raise Died


def lose(broker: EmbeddedKafka, topic: str, offset: int = 0) -> FaultHandle:
    """An election from which the records from an offset on are gone. A client meets the new leader at its next question
    about producers, as it would where that is another broker.
    """
    broker.elect_leader(topic, 0, lost_from=offset)
    return broker.fault("DescribeProducers", "error", code="NOT_LEADER_OR_FOLLOWER", topic=topic)


def stopped_at(point: str, settings: dict[str, Any]) -> None:
    crash_points.arm(point, action=die)
    with pytest.raises(Died):
        run(settings)


def test_what_was_lost_before_the_next_run_ends_it_is_written_again(broker: EmbeddedKafka) -> None:
    settings = settings_for(broker)
    topic = settings["options"]["topic"]
    stopped_at("before-end", settings)
    broker.elect_leader(topic, 0, lost_from=0)

    assert run(settings) == {"batch": 0, "records": 1200, "resumed": True, "repaired": 1}
    assert read_all(broker, topic) == EXPECTED


def test_what_is_lost_while_a_run_ends_its_batch_is_written_again_by_it(broker: EmbeddedKafka) -> None:
    settings = settings_for(broker)
    topic = settings["options"]["topic"]
    met: list[FaultHandle] = []
    crash_points.arm("before-end", action=lambda: met.append(lose(broker, topic)))

    assert run(settings) == {"batch": 0, "records": 1200, "resumed": False, "repaired": 1}
    assert met[0].fired == 1
    assert read_all(broker, topic) == EXPECTED


def test_what_is_lost_while_a_batch_of_one_transaction_is_decided_is_written_by_the_next_run(
    broker: EmbeddedKafka,
) -> None:
    settings = settings_for(broker)
    topic = settings["options"]["topic"]
    met: list[FaultHandle] = []
    crash_points.arm("decision-written", action=lambda: met.append(lose(broker, topic)))

    with pytest.raises(RepairPending, match=r"election lost records.*next run writes them again"):
        run_batch(settings)

    assert met[0].fired == 1
    # The other partitions show theirs.
    assert read_in_order(broker, topic)[0] == []
    again = run_batch(settings)
    assert (again["resumed"], again["repaired"]) == (True, 1)
    assert read_all(broker, topic) == EXPECTED


Answers = Callable[[EmbeddedKafka, str, int], FaultHandle]


def stale(broker: EmbeddedKafka, topic: str, end: int) -> FaultHandle:
    return broker.fault_at_leader(topic, 0, "stale-leader", end=end, times=4)


def lagging(broker: EmbeddedKafka, topic: str, end: int) -> FaultHandle:
    return broker.fault_at_leader(topic, 0, "lagging-high-watermark", end=end, times=4)


def test_a_producer_that_a_leader_without_an_epoch_does_not_list_is_not_taken_for_lost(
    broker: EmbeddedKafka,
) -> None:
    """DescribeProducers carries no epoch, so nobody refuses it who is not the leader that was meant."""
    settings = settings_for(broker)
    topic = settings["options"]["topic"]
    stopped_at("before-end", settings)
    fault = broker.fault_at_leader(topic, 0, "stale-leader", end=0, times=1, api="DescribeProducers")

    assert run(settings) == {"batch": 0, "records": 1200, "resumed": True, "repaired": 0}
    assert fault.fired == 1
    assert read_all(broker, topic) == EXPECTED


@pytest.mark.parametrize("answers", [stale, lagging])
def test_an_aborted_batch_is_not_taken_for_gone_by_the_word_of_a_leader_that_cannot_know(
    broker: EmbeddedKafka, answers: Answers
) -> None:
    first = with_options(settings_for(broker), kafka_transaction_timeout_ms=str(TIMEOUT_MS))
    topic = first["options"]["topic"]
    run(first)
    broker.elect_leader(topic, 0)
    second = following(first)
    before = Offsets(Cluster.shared(SinkOptions.parse(first["options"]).client)).latest([TopicPartition(topic, 0)])
    stopped_at("before-end", second)
    broker.advance(2 * TIMEOUT_MS)
    fault = answers(broker, topic, before[TopicPartition(topic, 0)])

    report = run(second)

    assert (report["resumed"], report["repaired"]) == (True, 1)
    assert fault.fired > 0
    assert read_all(broker, topic) == Counter(EXPECTED) + rows_of(second)
