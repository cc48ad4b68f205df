"""Commands that change nothing believe no single broker about what is not there: no decision, no topic. In memory.

The first broker that is asked was cut off from the controller, or has just started.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_core.errors import UnknownPipeline
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import NEW_TOPIC_MS
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.commit.ledger.notes import Ended
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.start.hanging import hanging
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.operations.audit import History, prove
from pyspark_kafka_eos.operations.known import require_known
from pyspark_kafka_eos.operations.standing import lost_ledger, newest_decided
from tests.pyspark_kafka_eos.commit.fakes import (
    LEDGER,
    OUTPUT,
    PIPELINE,
    NodeCluster,
    World,
    decision_of,
    skip,
    skipping_clock,
)
from tests.pyspark_kafka_eos.commit.node_kafka import CUT_OFF, NODE, NodeKafka
from tests.pyspark_kafka_eos.commit.test_last_commits import options
from tests.pyspark_kafka_eos.operations.test_standing import batch, command, shown

FURTHER = 7
"""One more broker, which knows what NODE knows: two of three have the topics."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with skipping_clock(), NodeKafka(2) as kafka:
        world = World(kafka)
        monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_: world.cluster))
        yield world


def asked_first(world: World) -> None:
    """A new process, which asks the broker that cannot know first."""
    world.kafka.brokers = [CUT_OFF, NODE, FURTHER]
    world.cluster = NodeCluster(world.kafka)


def behind(world: World) -> Decision:
    """Batch 1 is decided after the leader of the ledger was cut off."""
    batch(world, 0)
    world.kafka.cut_off(world.where)
    decision, _ = batch(world, 1)
    return decision


def test_every_command_shows_the_decision_that_the_ledgers_former_leader_does_not_have(world: World) -> None:
    decision = behind(world)

    asked_first(world)
    assert newest_decided(world.cluster, Ledger(world.cluster, LEDGER, PIPELINE)) == decision
    asked_first(world)
    assert shown(world) == [("decided", 1), ("decided", 0)]
    asked_first(world)
    assert lost_ledger(world.cluster, options(), PIPELINE) is None
    asked_first(world)
    _, document = command("verify", PIPELINE)
    assert [each["batch_id"] for each in document["batches"]] == [1]
    asked_first(world)
    _, document = command("ledger", PIPELINE)
    assert [each["batch_id"] for each in document["pipelines"][0]["decisions"]] == [1, 0]
    for words in (("transactions", "explain", PIPELINE), ("transactions", "list", PIPELINE)):
        asked_first(world)
        _, document = command(*words)
        assert document["problems"] == [], document


def test_a_pipeline_that_only_newer_leaders_of_the_ledger_know_is_known(world: World) -> None:
    world.kafka.cut_off(world.where)
    batch(world, 0)
    for name in ("pipe:0", "pipe:driver"):
        world.kafka.expire(name)
    asked_first(world)

    require_known(world.cluster, LEDGER, PIPELINE)

    asked_first(world)
    with pytest.raises(UnknownPipeline):
        require_known(world.cluster, LEDGER, "another")


def test_a_ledger_that_one_broker_lacks_has_its_decisions_for_every_command(world: World) -> None:
    decision, _ = batch(world, 0)
    world.kafka.lacking.add(LEDGER)

    asked_first(world)
    assert newest_decided(world.cluster, Ledger(world.cluster, LEDGER, PIPELINE)) == decision
    asked_first(world)
    assert shown(world) == [("decided", 0)]


def test_a_ledger_that_no_broker_has_is_empty(world: World) -> None:
    world.kafka.delete(LEDGER)
    asked_first(world)

    assert newest_decided(world.cluster, Ledger(world.cluster, LEDGER, PIPELINE)) is None


def test_what_hangs_in_an_earlier_topic_that_one_broker_lacks_is_found(world: World) -> None:
    world.kafka.forget_marker(OUTPUT[0])
    seal = world.slot(0)
    decision = decision_of([seal])
    world.decide(decision)
    world.end(seal, commit=True)
    world.kafka.create("other")
    world.kafka.lacking.add("out")
    asked_first(world)
    assert seal.identity is not None

    found = hanging(world.cluster, "other", decision, {seal.transactional_id: seal.identity.producer_id})

    assert found == {seal.transactional_id: [OUTPUT[0]]}


def test_nothing_hangs_in_an_earlier_topic_that_no_broker_has(world: World) -> None:
    decision, seal = batch(world, 0)
    world.kafka.create("other")
    world.kafka.delete("out")
    asked_first(world)
    assert seal.identity is not None

    assert hanging(world.cluster, "other", decision, {seal.transactional_id: seal.identity.producer_id}) == {}


def test_a_commit_that_nobody_decided_is_found_in_a_topic_that_one_broker_lacks_or_led(world: World) -> None:
    seal = world.slot(0)
    decision = decision_of([seal])
    world.decide(decision)
    world.end(seal, commit=True)
    world.ledger.note(Ended.of_decision(decision))
    for where in OUTPUT:
        world.kafka.cut_off(where)
    world.end(world.slot(0, {0: 3}), commit=True)
    asked_first(world)

    proof = prove(world.cluster, [History([decision], [decision])])

    assert [each.commit.records for each in proof.undecided] == [3]


def test_a_topic_that_is_not_there_is_waited_for_once_by_a_command_that_asks_in_several_places(
    world: World,
) -> None:
    batch(world, 0)
    asked_first(world)
    assert absence.topics_there(world.cluster, ["nowhere", LEDGER]) == {LEDGER}
    world.kafka.asked.clear()

    assert absence.topics_there(world.cluster, ["nowhere"]) == set()
    assert world.kafka.asked["Metadata"] == 0
    # It may be made by then.
    skip(NEW_TOPIC_MS + 1)
    assert absence.topics_there(world.cluster, ["nowhere"]) == set()
    assert world.kafka.asked["Metadata"] > 0
