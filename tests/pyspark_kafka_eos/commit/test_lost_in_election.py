"""Records of a decided batch that an election loses before its end, and leaders that cannot know: played whole, on the
embedded broker.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from embedded_kafka import EmbeddedKafka, FaultHandle
from kafka_core import runtime
from kafka_core.errors import RepairPending
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from tests.changes.processes import many_processes
from tests.pyspark_kafka_eos.commit.batch_child import driver_of, run_batch
from tests.pyspark_kafka_eos.commit.child import arrow_batches, run
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, ROWS, read_all, read_in_order, settings_for
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


def driver_for_scope(settings: dict[str, Any], scope: str) -> PerTask | WholeBatch:
    if scope == "batch":
        return driver_of(settings)
    options = SinkOptions.parse(settings["options"])
    return PerTask(Run(Cluster.shared(options.client), options, settings["query"]))


def write_slot_0(plan: WritePlan | SharedPlan) -> Seal:
    rows = arrow_batches(ROWS[0])
    return write_shared(plan, 0, rows) if isinstance(plan, SharedPlan) else write_slot(plan, 0, rows)


class _InTurn:
    """Workers of which each does its work at once, in the order in which it is given."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*arguments))
        return done


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_leader_that_was_replaced_while_the_tasks_wrote_is_not_believed_before_the_decision(
    broker: EmbeddedKafka, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen in each rolling restart of real brokers: the one that hands over goes on to answer for some tenths of a
    second, and the driver's metadata are older than those of the tasks, whose records the next leader has.
    """
    settings = settings_for(broker)
    topic = settings["options"]["topic"]
    where = TopicPartition(topic, 0)
    with many_processes() as many:
        with many.within("driver"):
            driver = driver_for_scope(settings, scope)
            assert driver.start(0, lambda slots: []) is None
            cluster = Cluster.shared(SinkOptions.parse(settings["options"]).client)
            cluster.refresh_topics([topic])
            plan = driver.plan(0)
        epoch = broker.elect_leader(topic, 0)
        with many.within("executor"):
            seal = write_slot_0(plan)
        assert cluster.leader_epoch(where) < epoch
        # Of the question about producers; or of that about the leaders, until one names the newest.
        replaced = broker.fault_at_leader(topic, 0, "stale-leader", end=0, times=1)
        # One broker plays both leaders. Beside this question another one could read the newest leader, and this one
        # would be answered by the replaced one all the same, which two brokers cannot do.
        monkeypatch.setattr(runtime, "workers", lambda count: contextlib.nullcontext(_InTurn()))
        with many.within("driver"):
            report = driver.commit(0, [seal], ("[]",), {})
        assert cluster.leader_epoch(where) == epoch
    assert (replaced.fired, report.records) == (1, len(ROWS[0]))
    assert read_all(broker, topic) == Counter(ROWS[0])


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
