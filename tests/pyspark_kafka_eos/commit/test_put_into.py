"""Somebody with Write on the ledger, and a transactional id of his own, puts records into the transaction in which the
pipeline decides: the pipeline's own commit commits them.

A broker asks the coordinator about a transaction's first batch in a partition alone (KIP-890), whoever sends the next
one. On whatever broker the tests are given. Source: a play of the data path by an adversary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.producer_states import describe_producers
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.ledger.notary import Notary
from pyspark_kafka_eos.commit.ledger.notes import Settled, note_key, to_bytes
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.options import SinkOptions
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit import stranger
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import run
from tests.pyspark_kafka_eos.commit.judge import read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import with_options
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

SCOPES: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "task": (":driver", run),
    "batch": (":batch", run_batch),
}


class His:
    """What he sees and does, with a client of his own."""

    def __init__(self, settings: dict[str, Any]) -> None:
        options = SinkOptions.parse({**settings["options"], "kafka.client.id": "his"})
        self.pipeline = str(options.pipeline)
        self.where = TopicPartition(options.ledger_topic, 0)
        self.cluster = Cluster(options.client)
        self.id = f"his-{options.ledger_topic}"
        stranger.begun(self.cluster, self.id).abort()

    def identity(self, transactional_id: str) -> ProducerIdentity:
        return Transactions(self.cluster).describe([transactional_id])[transactional_id].identity

    def put(self, key: bytes, value: bytes, into: str) -> None:
        """The next record in the open transaction of this id."""
        mine = self.identity(into)
        states = describe_producers(self.cluster, [self.where]) or {}
        following = states[self.where][mine.producer_id].last_sequence + 1
        stranger.put_into(self.cluster, self.id, self.where, key, value, mine, following)


@pytest.fixture(params=SCOPES)
def scope(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[1_048_588, 400], ids=["one record", "in parts"])
def settings(broker: AnyKafka, request: pytest.FixtureRequest, scope: str) -> dict[str, Any]:
    ledger = topics_of(broker)(1, **{"cleanup.policy": "compact", "max.message.bytes": str(request.param)})
    return with_options(settings_for(broker), ledger_topic=ledger, transaction_scope=scope)


@pytest.fixture
def his(settings: dict[str, Any]) -> Iterator[His]:
    made = His(settings)
    yield made
    crash_points.arm("")
    made.cluster.close()


def test_a_decision_put_into_the_pipelines_own_makes_no_run_skip_a_batch(
    broker: AnyKafka, settings: dict[str, Any], his: His, scope: str
) -> None:
    suffix, play = SCOPES[scope]
    play(settings)
    second = {**settings, "batch": 1, "rows": [["of batch 1"]]}
    third = {**settings, "batch": 2, "rows": [["of batch 2"]]}

    def forge() -> None:
        forged = Decision(his.pipeline, settings["query"], 2, (), source_offsets=("[]",), number=3)
        his.put(his.pipeline.encode(), forged.to_bytes(), his.pipeline + suffix)

    crash_points.arm("decision-written", 1, forge)
    assert play(second)["records"] == 1
    crash_points.arm("")

    report = play(third)

    assert (report["records"], report["resumed"]) == (1, False)
    seen = read_all(broker, settings["options"]["topic"])
    assert (seen["of batch 1"], seen["of batch 2"]) == (1, 1)


def test_a_note_put_into_the_pipelines_own_is_none(
    broker: AnyKafka, settings: dict[str, Any], his: His, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that a decision is committed which nobody has made."""
    _, play = SCOPES[scope]
    forged = Decision(his.pipeline, settings["query"], 1, (), source_offsets=("[]",), number=2)
    note = Settled(1_000, ProducerIdentity(1, 1), forged)
    wrote: list[str] = []
    put = Notary._put

    def put_two(producer: Any, where: TopicPartition, batch: Any, *, needed: bool) -> Any:
        commit = producer.commit

        def forge_and_commit(**more: Any) -> None:
            his.put(note_key(his.pipeline.encode(), note), to_bytes(note), f"{his.pipeline}:notes")
            wrote.append("his")
            commit(**more)

        with monkeypatch.context() as patched:
            patched.setattr(producer, "commit", forge_and_commit)
            return put(producer, where, batch, needed=needed)

    with monkeypatch.context() as patched:
        patched.setattr(Notary, "_put", staticmethod(put_two))
        play(settings)
    assert wrote

    report = play({**settings, "batch": 1, "rows": [["of batch 1"]]})

    assert (report["records"], report["resumed"]) == (1, False)
    assert read_all(broker, settings["options"]["topic"])["of batch 1"] == 1
