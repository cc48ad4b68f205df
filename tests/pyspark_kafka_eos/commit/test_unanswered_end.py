"""An EndTxn whose answer is lost, and every later asking refused: a refusal then says nothing about the first
sending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedded_kafka import EmbeddedKafka, FaultHandle
from kafka_core.errors import AuthorizationFailed, ExactlyOnceError, OutcomeUnknown, TransactionTooOld
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.markers import Mender
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import run
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

NO_RIGHT = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
MANY = 500

Run = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(params=["2", "1"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": request.param}) as kafka:
        yield kafka


@pytest.fixture
def at_point() -> Iterator[Callable[[str, Callable[[], None]], None]]:
    """Has something happen when the commit reaches a point."""
    yield lambda point, action: crash_points.arm(point, 1, action)
    crash_points.arm("")


def cluster_of(settings: dict[str, Any]) -> Cluster:
    return Cluster.shared(SinkOptions.parse(settings["options"]).client)


def states_of(settings: dict[str, Any]) -> list[str]:
    """What the coordinator says of the slots."""
    pipeline, slots = settings["options"]["pipeline"], range(len(settings["rows"]))
    ids = [f"{pipeline}:{slot}" for slot in slots]
    views = Transactions(cluster_of(settings)).describe(ids)
    return [views[each].state for each in ids]


@pytest.mark.parametrize("run_one", [run, run_batch], ids=["scope=task", "scope=batch"])
def test_a_decision_without_an_answer_whose_second_asking_is_refused_stands(
    broker: EmbeddedKafka, at_point: Any, run_one: Run
) -> None:
    settings = settings_for(broker)
    faults: list[FaultHandle] = []

    def lose_the_answer_then_the_right() -> None:
        faults.append(broker.fault("EndTxn", "drop-answer"))
        # The connection is gone, so the coordinator is looked for again: refused.
        faults.append(broker.fault("FindCoordinator", "error", code=NO_RIGHT, times=MANY))

    at_point("decision-written", lose_the_answer_then_the_right)
    report = run_one(settings)

    lost, refused = faults
    assert lost.fired == 1
    assert refused.fired >= 1
    assert report["records"] == 1200
    broker.clear_faults()
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]
    assert run_one(settings)["resumed"] is True
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED


@pytest.mark.parametrize("run_one", [run, run_batch], ids=["scope=task", "scope=batch"])
@pytest.mark.parametrize("asking", ["FindCoordinator", "EndTxn"])
def test_a_decision_that_nobody_may_ask_about_is_unknown_and_nothing_is_aborted(
    broker: EmbeddedKafka, at_point: Any, asking: str, run_one: Run
) -> None:
    settings = settings_for(broker)
    faults: list[FaultHandle] = []

    def lose_the_answer_then_every_right() -> None:
        faults.append(broker.fault("EndTxn", "drop-answer"))
        faults.append(broker.fault(asking, "error", code=NO_RIGHT, times=MANY))
        faults.append(broker.fault("Fetch", "error", code="TOPIC_AUTHORIZATION_FAILED", times=MANY))

    at_point("decision-written", lose_the_answer_then_every_right)
    with pytest.raises(
        OutcomeUnknown, match=r"(the outcome of the batch|whether the batch is decided) is unknown: "
    ) as unknown:
        run_one(settings)

    assert [faults[0].fired, *(fault.fired > 0 for fault in faults[1:])] == [1, True, True]
    # Both causes and what to do about each.
    assert NO_RIGHT in unknown.value.message
    assert "WRITE on the transactional id prefix" in unknown.value.message
    assert "grant READ on topic" in unknown.value.message
    broker.clear_faults()
    if run_one is run:
        assert states_of(settings) == ["Ongoing"] * 3
    assert run_one(settings) | {"redone": 0} == {
        "batch": 0, "records": 1200, "resumed": True, "repaired": 0, "redone": 0,
    }  # fmt: skip
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


def test_a_decision_that_is_refused_before_it_is_sent_is_aborted(broker: EmbeddedKafka, at_point: Any) -> None:
    settings = settings_for(broker)
    faults: list[FaultHandle] = []

    def lose_the_right() -> None:
        cluster = cluster_of(settings)
        for key in list(cluster._coordinators):
            cluster.forget_coordinator(*key)
        faults.append(broker.fault("FindCoordinator", "error", code=NO_RIGHT))

    at_point("decision-written", lose_the_right)
    with pytest.raises(AuthorizationFailed, match="no right to use transaction"):
        run(settings)

    assert faults[0].fired == 1
    assert states_of(settings) == ["CompleteAbort"] * 3
    assert read_all(broker, settings["options"]["topic"]) == Counter()
    assert run(settings)["resumed"] is False
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


@pytest.mark.parametrize("asking", ["FindCoordinator", "EndTxn"])
def test_an_end_of_a_decided_slot_without_an_answer_and_then_refused_says_that_the_batch_is_decided(
    broker: EmbeddedKafka, at_point: Any, asking: str
) -> None:
    settings = settings_for(broker)
    faults: list[FaultHandle] = []

    def lose_the_answers_then_the_right() -> None:
        faults.append(broker.fault("EndTxn", "drop-answer", times=3))
        faults.append(broker.fault(asking, "error", code=NO_RIGHT, times=MANY))

    at_point("before-end", lose_the_answers_then_the_right)
    with pytest.raises(ExactlyOnceError) as stopped:
        run(settings)

    assert faults[0].fired >= 1
    assert faults[1].fired >= 1
    assert isinstance(stopped.value, AuthorizationFailed | OutcomeUnknown)
    assert stopped.value.message.startswith("the batch is decided")
    assert "WRITE on the transactional id prefix" in stopped.value.message
    assert "nothing is skipped" in stopped.value.message
    assert "CompleteAbort" not in states_of_after_clearing(broker, settings)
    report = run(settings)
    assert (report["resumed"], report["repaired"]) == (True, 0)
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED


def states_of_after_clearing(broker: EmbeddedKafka, settings: dict[str, Any]) -> list[str]:
    broker.clear_faults()
    return states_of(settings)


def test_decided_slots_that_nobody_may_ask_about_are_unknown(broker: EmbeddedKafka, at_point: Any) -> None:
    settings = settings_for(broker)
    faults: list[FaultHandle] = []

    def lose_everything() -> None:
        faults.append(broker.fault("EndTxn", "error", code="PRODUCER_FENCED", times=3))
        faults.append(broker.fault("DescribeTransactions", "error", code=NO_RIGHT, times=MANY))

    at_point("before-end", lose_everything)
    with pytest.raises(OutcomeUnknown, match="the batch is decided, but") as unknown:
        run(settings)

    assert [fault.fired > 0 for fault in faults] == [True, True]
    assert NO_RIGHT in unknown.value.message
    broker.clear_faults()
    assert states_of(settings) == ["Ongoing"] * 3
    assert run(settings)["resumed"] is True
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED


def test_a_mending_whose_end_is_refused_after_its_answer_was_lost_is_unknown(broker: EmbeddedKafka) -> None:
    settings = settings_for(broker)
    cluster, name = cluster_of(settings), "mended:0"
    mender = Mender(cluster, Ledger(cluster, "exactly-once-ledger", settings["options"]["pipeline"]), 60_000)
    Ledger(cluster, "exactly-once-ledger", "mended").prepare()
    # Found before the fault: the first search is not to be refused.
    for each in (name, f"{settings['options']['pipeline']}:notes"):
        Transactions(cluster).init_producer_id(each, 60_000)
    # The first one is that of the note.
    lost = broker.fault("EndTxn", "drop-answer", skip=1)
    refused = broker.fault("FindCoordinator", "error", code=NO_RIGHT, times=MANY)

    with pytest.raises(OutcomeUnknown, match="got no definite answer"):
        mender.write_markers(name, [TopicPartition(settings["options"]["topic"], 0)], commit=True)

    assert lost.fired == 1
    assert refused.fired >= 1
    broker.clear_faults()
    assert Transactions(cluster).describe([name])[name].state in ("CompleteCommit", "PrepareCommit")


def test_an_abort_that_is_refused_does_not_hide_what_led_to_it(broker: EmbeddedKafka, at_point: Any) -> None:
    settings = settings_for(broker)
    # The tasks take longer than what this leaves.
    settings["options"] |= {"kafka.transaction.timeout.ms": "30000", "transaction.margin.ms": "29999"}
    faults: list[FaultHandle] = []
    at_point(
        "before-check",
        lambda: faults.append(broker.fault("EndTxn", "error", code=NO_RIGHT, times=MANY)),
    )

    with pytest.raises(TransactionTooOld, match="too close to their timeout"):
        run(settings)

    assert faults[0].fired >= 1
    broker.clear_faults()
    assert read_all(broker, settings["options"]["topic"]) == Counter()
    # What could not be aborted by its own end was fenced.
    assert "Ongoing" not in states_of(settings)
