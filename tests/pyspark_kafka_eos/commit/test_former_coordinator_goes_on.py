"""One broker of three was cut off, and the others have a moment of trouble: what it tells is not believed then either.

The present coordinator loses a connection or is loading; the third broker does not say in time who coordinates; a
question has to be asked again. A fresh adversary of issue 39 has played most of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_core.errors import BrokerUnavailable
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.writing.appending import append_record
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.session import SessionState
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.proof import prove
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations import ending
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.spark.source.committed_start import committed_start
from pyspark_kafka_eos.spark.source.source_view import SourceView
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, GROUP, LEDGER, OUTPUT, PIPELINE, SOURCE, World, decision_of
from tests.pyspark_kafka_eos.commit.former_coordinator import (
    ALL,
    SERVERS,
    FormerCoordinator,
    Hiccup,
    committed,
    former_leader_of_the_ledger,
    silent,
    started,
)
from tests.pyspark_kafka_eos.commit.node_kafka import CUT_OFF, NODE

SLOT = f"{PIPELINE}:0"
HOW = pytest.mark.parametrize("how", ["lost", "loading"])


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(admin, "broker_settings", lambda *_, **__: {})
    monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_, **__: world.cluster))


def of_slot(request: Any) -> bool:
    return SLOT in request.transactional_ids


def written(world: World, run: PerTask, before: Callable[[], None] = lambda: None) -> Callable[[Any], list[Seal]]:
    def write(_only: Any) -> list[Seal]:
        run.plan(1)
        seals = [world.slot(0, {0: 2})]
        before()
        return seals

    return write


def with_an_open_decision(world: World) -> FormerCoordinator:
    """Batch 0 is committed, as the former coordinator knows; batch 1 is written and its decision open."""
    driver = world.decide(decision_of([seal := world.slot(0)], batch_id=0))
    world.end(seal, commit=True)
    former = FormerCoordinator(world)
    seals = [world.slot(0)]
    if driver.session.state is not SessionState.READY:
        driver.initialize()
    world.decide(decision_of(seals, batch_id=1), driver, commit=False)
    world.fresh_process()
    return former


# ---- the present coordinator has to be asked again


@HOW
def test_an_open_decision_is_not_called_made(world: World, how: str) -> None:
    with_an_open_decision(world)
    trouble = Hiccup(world, how)

    world.mender.settle_decision(DRIVER, GROUP)

    assert trouble.fired
    newest = world.ledger.look().newest
    assert newest is not None and newest.batch_id == 0


@HOW
def test_a_start_finds_no_decision_lost(world: World, how: str) -> None:
    committed(world, 0)
    FormerCoordinator(world)
    committed(world, 1)
    world.fresh_process()
    trouble = Hiccup(world, how, matches=of_slot)

    started(world, 2)

    assert trouble.fired


@HOW
def test_a_run_goes_on_to_own_its_pipeline(world: World, how: str) -> None:
    committed(world, 0)
    former = FormerCoordinator(world)
    run = started(world, 1).run
    former.is_asked_by(world.cluster)
    trouble = Hiccup(world, how)

    run.require_ownership()

    assert former.told and trouble.fired


@HOW
@pytest.mark.parametrize("group", ["moved on", "new"])
def test_a_query_begins_where_its_group_is(world: World, how: str, group: str) -> None:
    world.kafka.commit_offsets("moved on", {SOURCE: 5})
    FormerCoordinator(world)
    world.kafka.commit_offsets(group, {SOURCE: 900})
    world.fresh_process()
    trouble = Hiccup(world, how, m.OffsetFetchRequest)
    own = {"startingOffsets": "group", "kafka.group.id": group, "kafka.auto.offset.reset": "latest"}

    found = committed_start(
        Offsets(world.cluster), SourceOptions.parse({**SERVERS, "subscribe": "source", **own}), [SOURCE]
    )

    assert trouble.fired
    assert found.offsets == {SOURCE: 900}


# ---- the third broker does not say who coordinates


def test_a_majority_that_cannot_be_had_at_once_is_waited_for(world: World) -> None:
    with_an_open_decision(world)
    silent(world, 3, times=2)

    world.mender.settle_decision(DRIVER, GROUP)

    newest = world.ledger.look().newest
    assert newest is not None and newest.batch_id == 0


def test_where_nobody_can_tell_nothing_is_concluded(world: World) -> None:
    with_an_open_decision(world)
    silent(world, 3, times=10**9)

    with pytest.raises(BrokerUnavailable, match=r"no majority of the brokers .* names the same one"):
        world.mender.settle_decision(DRIVER, GROUP)


def test_a_fence_by_the_former_coordinator_is_no_fence_while_nobody_can_tell(world: World) -> None:
    FormerCoordinator(world)
    producer = world.driver()
    world.fresh_process()
    world.cluster.take_coordinator(CoordinatorKind.TRANSACTION, DRIVER, (CUT_OFF, "memory", CUT_OFF))
    refuses(world, m.InitProducerIdRequest, Code.PRODUCER_FENCED)
    silent(world, 3, times=1)

    again = world.transactions.init_producer_id(DRIVER, 60_000, producer.identity)

    assert again.producer_id == producer.identity.producer_id


# ---- what it refuses


def refuses(world: World, api: Any, code: Code) -> None:
    """The broker that was cut off refuses this by what it knows of the id."""
    real = world.kafka.answer

    def answer(request: Any, node: object = NODE) -> Any:
        if request.API_KEY != api.API_KEY or node != CUT_OFF:
            return real(request, node)
        found: Any = real(request, NODE)
        if api is m.InitProducerIdRequest:
            found.error_code = int(code)
        for topic in found.topics if api is m.TxnOffsetCommitRequest else ():
            for part in topic.partitions:
                part.error_code = int(code)
        return found

    world.kafka.answer = answer  # type: ignore[method-assign]


@pytest.mark.parametrize("code", [Code.INVALID_PRODUCER_ID_MAPPING, Code.INVALID_TXN_STATE])
def test_offsets_that_the_groups_former_coordinator_refuses_are_asked_of_its_successor(
    world: World, code: Code
) -> None:
    committed(world, 0)
    run = started(world, 1)
    world.kafka.brokers = [NODE, CUT_OFF, 3]
    world.cluster.take_coordinator(CoordinatorKind.GROUP, GROUP, (CUT_OFF, "memory", CUT_OFF))
    refuses(world, m.TxnOffsetCommitRequest, code)

    assert run.process(1, written(world, run), (), {SOURCE: 7}).redone == 0

    assert world.kafka.committed[GROUP] == {SOURCE: 7}


# ---- what its logs lack


def test_a_decided_slot_is_proven_where_its_partitions_former_leader_lacks_the_marker(world: World) -> None:
    """Its coordinator shows a later attempt by then, so the log alone can tell."""
    committed(world, 0)
    seal = world.slot(0, {0: 2})
    world.decide(decision_of([seal], batch_id=1))
    world.kafka.cut_off(OUTPUT[0])
    world.end(seal, commit=True)
    Producer(world.cluster, SLOT).initialize()
    world.fresh_process()
    world.kafka.brokers = list(ALL)

    assert prove(world.cluster, [seal])[0].verdict is Outcome.COMMITTED


def test_a_decision_that_timed_out_is_repeated_where_the_ledgers_former_leader_lacks_its_marker(world: World) -> None:
    committed(world, 0)
    run = started(world, 1)
    world.kafka.brokers = list(ALL)

    def time_out() -> None:
        former_leader_of_the_ledger(world)
        world.kafka.advance(70_000)

    timed_out = world.kafka.fault("EndTxn", time_out, matches=lambda request: request.transactional_id == DRIVER)

    assert run.process(1, written(world, run), (), {SOURCE: 5}).redone == 1

    assert timed_out.fired == 1


# ---- what it does not know of


def lists_two_brokers(world: World) -> None:
    """It was cut off while broker 3 was down, and broker 3 coordinates everything now."""
    world.kafka.brokers = list(ALL)
    real = world.kafka.answer

    def answer(request: Any, node: object = NODE) -> Any:
        found: Any = real(request, node)
        if request.API_KEY == m.ListTransactionsRequest.API_KEY and node != 3:
            found.transaction_states = []
        elif request.API_KEY == m.MetadataRequest.API_KEY and node == CUT_OFF:
            found.brokers = [each for each in found.brokers if each.node_id != 3]
        return found

    world.kafka.answer = answer  # type: ignore[method-assign]
    world.fresh_process()


def test_what_an_earlier_run_left_open_is_found_at_a_broker_that_it_does_not_name(world: World) -> None:
    committed(world, 0)
    world.slot(1, {1: 2})
    lists_two_brokers(world)

    (done,) = ending.abort(world.cluster, world.ledger, GROUP, [f"{PIPELINE}:1"])

    assert done.outcome == "aborted"


def test_a_ledger_that_it_alone_lacks_is_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(*_: Any, **__: Any) -> None:
        raise AssertionError("the ledger is there, and nobody may create topics")

    monkeypatch.setattr(admin, "ensure_topic", create)
    monkeypatch.setattr(admin, "topic_settings", lambda *_, **__: None)
    world.kafka.brokers = list(ALL)
    world.kafka.lacking = {LEDGER}
    world.fresh_process()

    Ledger(world.cluster, LEDGER, PIPELINE).prepare()


# ---- a query without a position


def put(world: World, count: int, where: TopicPartition = SOURCE) -> None:
    for _ in range(count):
        append_record(world.cluster, where, b"k", b"v", what="a record", grant="")


def in_its_metadata(world: World, change: Callable[[Any], None]) -> None:
    """What the broker that was cut off does not know."""
    real = world.kafka.answer

    def answer(request: Any, node: object = NODE) -> Any:
        found: Any = real(request, node)
        if request.API_KEY == m.MetadataRequest.API_KEY and node == CUT_OFF:
            change(found)
        return found

    world.kafka.answer = answer  # type: ignore[method-assign]
    world.kafka.brokers = list(ALL)
    world.fresh_process()


def view(**options: str) -> SourceView:
    return SourceView(SourceOptions.parse({**SERVERS, "startingOffsets": "earliest", **options}))


def test_it_ends_where_the_topic_ends(world: World) -> None:
    put(world, 3)
    world.kafka.cut_off(SOURCE)
    put(world, 2)
    world.kafka.brokers = list(ALL)
    world.fresh_process()

    found = view(subscribe="source")

    assert found.ending(found.beginning()) == {SOURCE: 5}


def test_it_has_the_partitions_that_were_added(world: World) -> None:
    world.kafka.grow("source", 2)
    added = TopicPartition("source", 1)
    put(world, 3, added)

    def older(answer: Any) -> None:
        for topic in answer.topics:
            if topic.name == "source":
                topic.partitions = topic.partitions[:1]

    in_its_metadata(world, older)

    assert added in view(subscribe="source").beginning()


def test_it_has_the_topics_that_were_made(world: World) -> None:
    put(world, 3)

    def older(answer: Any) -> None:
        answer.topics = [topic for topic in answer.topics if topic.name != "source"]

    in_its_metadata(world, older)

    assert SOURCE in view(subscribePattern="source|out").beginning()


def test_it_has_no_topic_that_was_deleted_since(world: World) -> None:
    put(world, 3)
    world.kafka.create("source2")

    def older(answer: Any) -> None:
        if any(topic.name == "source" for topic in answer.topics):
            kept = next(topic for topic in answer.topics if topic.name == "source")
            answer.topics.append(type(kept)(**{**_fields(kept), "name": "gone"}))

    in_its_metadata(world, older)

    assert {where.topic for where in view(subscribePattern="source.*|gone").beginning()} == {"source", "source2"}


def _fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in ("error_code", "topic_id", "is_internal", "partitions")}
