"""Whether a topic was recreated before the decision: when the seals' ids are doubted, who is asked, and what is decided
without a question.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.client.requests.producer_states import ProducerState, States
from pyspark_kafka_eos.commit.gone import recreated as looked_at
from pyspark_kafka_eos.commit.gone.recreated import recreated
from pyspark_kafka_eos.model import Decision, RoutedTopic, Seal, SealedPartition
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.child import run
from tests.pyspark_kafka_eos.commit.gone.test_topic_gone import create
from tests.pyspark_kafka_eos.commit.judge import settings_for
from tests.pyspark_kafka_eos.commit.ledger.test_ledger_lost import delete
from tests.pyspark_kafka_eos.slot.test_routing import plan

P0 = TopicPartition("t", 0)
LEDGER = TopicPartition("ledger", 0)
MINE, OTHER = ProducerIdentity(7, 3), ProducerIdentity(8, 0)
BROKEN = ("what was found already", {"partition": "t-0"})


@dataclass
class Known:
    """What a client knows of topics, and what each broker says of them."""

    ids: dict[str, str]
    brokers: list[dict[str, str]] = field(default_factory=list)
    asked: list[set[str]] = field(default_factory=list)

    def topic_id(self, name: str) -> str:
        return self.ids.get(name, "")

    def take_metadata(self, answer: Any) -> None:
        self.ids.update({topic.name: topic.topic_id for topic in answer.topics})


def answers_of_all(cluster: Known, names: set[str]) -> list[Any]:
    """In place of the client's."""
    cluster.asked.append(set(names))
    return [SimpleNamespace(topics=[_said(name, said) for name in sorted(names)]) for said in cluster.brokers]


def _said(name: str, said: dict[str, str]) -> Any:
    code = Code.NONE if name in said else Code.UNKNOWN_TOPIC_OR_PARTITION
    return SimpleNamespace(name=name, topic_id=said.get(name, ""), error_code=code)


def sealed(
    topic_id: str = "old", first: int = 10, slot: int = 0, identity: ProducerIdentity = MINE, **more: Any
) -> Seal:
    part = SealedPartition("t", 0, first, 4, 5)
    return Seal(f"p:{slot}", slot, identity, 2, 5, partitions=(part,), topics=(RoutedTopic("t", topic_id, 1),), **more)  # fmt: skip


def states(*, marked: bool = True, told: bool = True) -> States:
    """Of the leaders: `marked`: the partition's log has an end of the producer's; `told`: the brokers say such things
    at all.
    """
    return {P0: {7: ProducerState(3, 10, 4, marked)}, LEDGER: {1: ProducerState(0, -1, 0, told)}}


def look(cluster: Known, *seals: Seal, **more: Any) -> Any:
    given: dict[str, Any] = {"states": states(), "before": None, "broken": None, **more}
    with patch.object(looked_at, "answers_of_all", answers_of_all):
        return recreated(cluster, seals, given["states"], given["before"], given["broken"])  # type: ignore[arg-type]


def before(first: int = 3, identity: ProducerIdentity = MINE) -> Decision:
    """The batch before, whose records ended where the sealed ones begin at the earliest."""
    return Decision("p", "query", 0, (sealed(first=first, identity=identity),))


def test_nobody_is_asked_where_the_ids_are_the_known_ones_and_the_logs_go_on() -> None:
    cluster = Known({"t": "old"})

    assert look(cluster, sealed(), before=before()) is None
    assert look(cluster, sealed(), before=before(), states=None) is None
    # A broker that tells of no producer's end has not forgotten one.
    assert look(cluster, sealed(), before=before(), states=states(marked=False, told=False)) is None
    assert cluster.asked == []


@pytest.mark.parametrize("apart", [False, True])
def test_two_ids_of_one_topic_are_not_decided_together_whoever_answers(apart: bool) -> None:
    other = RoutedTopic("t", "new", 1)
    seals = [sealed(apart=((2, (other,)),))] if apart else [sealed(), sealed("new", slot=2)]
    for brokers in ([], [{"t": "old"}], [{"t": "new"}], [{"t": "old"}, {"t": "new"}], [{}]):
        cluster = Known({"t": "old"}, brokers)

        found = look(cluster, *seals)

        assert found is not None and "was deleted and recreated" in found[0]
        assert cluster.asked == [{"t"}]


def test_an_id_that_is_not_the_present_one_is_not_decided_and_the_present_one_is_known_then() -> None:
    cluster = Known({"t": "new"}, [{"t": "new"}, {"t": "old"}])

    found = look(cluster, sealed("old"))

    assert found is not None
    assert found[1] == {"slot": 0, "topic": "t", "topic_id": "old", "found": "new"}
    assert cluster.ids == {"t": "new"}


def test_a_client_that_is_behind_its_workers_learns_the_id_and_decides() -> None:
    cluster = Known({"t": "old"}, [{"t": "new"}])

    assert look(cluster, sealed("new")) is None
    assert cluster.ids == {"t": "new"}


def test_a_task_that_has_learned_of_another_id_while_it_wrote_is_not_decided() -> None:
    found = look(Known({"t": "new"}, [{"t": "new"}]), sealed(""))

    assert found is not None and "by id unknown, and its id is new now" in found[0]


def test_brokers_without_ids_have_none_to_compare() -> None:
    cluster = Known({"t": ""}, [{"t": ""}])

    assert look(cluster, sealed("")) is None
    assert look(cluster, sealed(""), broken=BROKEN) == BROKEN


@pytest.mark.parametrize(
    "seen",
    [
        {"before": before(first=6)},
        {"before": before(first=6), "states": None},
        {"before": before(), "states": states(marked=False)},
        {"before": before(identity=OTHER)},
    ],
    ids=["a record where one stood", "the same, without the right to look", "no end of the producer", "no such producer"],
)  # fmt: skip
def test_a_log_that_lacks_what_the_batch_before_has_there_is_asked_about(seen: dict[str, Any]) -> None:
    # Driver and workers all know the former topic: Produce names it by name, and nobody was refused.
    anew, cut = Known({"t": "old"}, [{"t": "new"}]), Known({"t": "old"}, [{"t": "old"}])

    found = look(anew, sealed(), **seen)

    assert found is not None and "wrote to it by id old, and its id is new now" in found[0]
    # An election may have cut the log of that very topic.
    assert look(cut, sealed(), **seen) is None
    assert (anew.asked, cut.asked) == ([{"t"}], [{"t"}])


def test_what_was_found_already_is_said_of_a_topic_that_is_the_same() -> None:
    same, anew = Known({"t": "old"}, [{"t": "old"}]), Known({"t": "old"}, [{"t": "new"}])

    assert look(same, sealed(), broken=BROKEN) == BROKEN
    found = look(anew, sealed(), broken=BROKEN)
    assert found is not None and "was deleted and recreated" in found[0]
    assert anew.ids == {"t": "new"}


def test_a_plan_doubts_what_a_worker_knows_of_a_topic_that_an_option_names() -> None:
    known = replace(plan("t"), topic_ids=(("t", "new"),))
    anew = replace(plan("t"), asks_anew=True)

    assert [known.doubts("t", "old"), known.doubts("t", "new"), known.doubts("by a row", "old")] == [True, False, False]  # fmt: skip
    assert anew.doubts("t", "new") and anew.doubts("by a row", "old")


@pytest.mark.kafka
@pytest.mark.embedded
def test_partitions_of_a_former_topic_are_told_from_those_of_the_one_that_has_its_name(
    kafka: EmbeddedKafka,
) -> None:
    # Batches before and after: each partition has the id of its time.
    settings = settings_for(kafka)
    topic = settings["options"]["topic"]
    run(settings)
    cluster = Cluster(SinkOptions.parse(settings["options"]).client)
    was = cluster.topic(topic).topic_id
    delete(kafka, topic)
    create(kafka, topic, 4)
    now = cluster.topic(topic, refresh=True).topic_id
    places = {TopicPartition(topic, 0): LogMark(was), TopicPartition(topic, 1): LogMark(now)}

    there = absence.existing(cluster, places)

    assert was != now
    assert there == {TopicPartition(topic, 1)}
    cluster.close()
