"""Somebody with WRITE on an output topic writes under the producer id of a slot: what the slot sends then is
acknowledged as written already.

He knows the ids from records that he reads. Source: KIP-98 (a broker takes any producer id; five batches are
remembered).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from embedded_kafka import EmbeddedKafka
from embedded_kafka.real import LocalKafka
from kafka_core.errors import AbortableError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.producer_states import describe_producers
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.decision import passed_part
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.operations.audit import Verdict, verify
from pyspark_kafka_eos.options import SinkOptions
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit import stranger
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import run
from tests.pyspark_kafka_eos.commit.fakes import OUTPUT, World
from tests.pyspark_kafka_eos.commit.judge import read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_rights import guarded, without
from tests.support.brokers import AnyKafka

__all__ = ["guarded"]

pytestmark = [pytest.mark.kafka]

MINE, HIS = "mine", "somebody else's"

RunBatch = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(params=["1", "2"], scope="module", ids=["version1", "version2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": request.param}) as kafka:
        yield kafka


@pytest.fixture(autouse=True)
def nothing_armed() -> Iterator[None]:
    yield
    crash_points.arm("")


@pytest.fixture(params=["task", "batch"])
def scope(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def one_record(broker: AnyKafka) -> dict[str, Any]:
    """A batch of one record, in a topic of one partition: a batch of his has the same sequences."""
    topic = topics_of(broker)(1)
    settings = settings_for(broker)
    return {
        **settings,
        "rows": [[MINE]],
        "options": {**settings["options"], "topic": topic, "pipeline": f"pipe-{topic}"},
    }


def attacked(settings: dict[str, Any], scope: str) -> str:
    """What the run says of its batch, before whose first record he has written; "" where it was tried again."""
    options = settings["options"]
    where = TopicPartition(options["topic"], 0)
    name = f"{options['pipeline']}:{'0' if scope == 'task' else 'batch'}"
    written = []

    def forge() -> None:
        cluster = Cluster.shared(SinkOptions.parse({**options, "kafka.client.id": "somebody-else"}).client)
        identity = Transactions(cluster).describe([name])[name].identity
        stranger.put(cluster, where, b"", HIS.encode(), identity)
        written.append(identity)

    crash_points.arm("after-init-producer-id", action=forge)
    run_batch_of: RunBatch = run if scope == "task" else run_batch
    try:
        run_batch_of(settings)
    except AbortableError as error:
        return error.message
    finally:
        assert len(written) == 1
    return ""


def mine(broker: AnyKafka, settings: dict[str, Any]) -> int:
    """How often readers find the record."""
    found = read_all(broker, settings["options"]["topic"])
    assert found[HIS] == 1
    return found[MINE]


@pytest.mark.embedded
@pytest.mark.parametrize("right", [True, False], ids=["read", "no read"])
def test_a_batch_that_somebody_else_has_written_is_not_taken_for_the_slots(
    broker: EmbeddedKafka, scope: str, right: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = one_record(broker)
    topic = settings["options"]["topic"]
    denial = "TOPIC_AUTHORIZATION_FAILED"
    fault = None if right else broker.fault("DescribeProducers", "error", code=denial, topic=topic, times=99)

    said = attacked(settings, scope) + caplog.text

    assert f"wrote to {topic}-0 from offset 0 on, but" in said
    assert "the batch is retried" in said
    # scope=batch tries again by itself.
    assert mine(broker, settings) == (scope == "batch")
    if scope == "task":
        run(settings)
    assert mine(broker, settings) == 1
    if fault is not None:
        assert fault.fired > 0
        broker.clear_faults()


@pytest.mark.real
def test_apache_kafka_too_shows_what_somebody_else_has_written_to_a_writer_without_read(
    guarded: LocalKafka, scope: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = one_record(guarded)
    topic = settings["options"]["topic"]

    with without(guarded, AclOperation.READ, ResourceType.TOPIC, topic):
        said = attacked(settings, scope) + caplog.text

    assert "nothing is open there before offset 1" in said
    if scope == "task":
        run(settings)
    assert mine(guarded, settings) == 1


# ---- what the last stable offset says


def test_what_is_open_as_it_was_sealed_has_not_passed(world: World) -> None:
    seal = world.slot(0, {0: 3})

    assert passed_part([seal], {OUTPUT[0]: 0}) is None
    assert passed_part([seal], {}) is None


def test_what_is_ended_has_passed(world: World) -> None:
    found = passed_part([world.slot(0, {0: 3})], {OUTPUT[0]: 1})

    assert found is not None and found[1] == {"slot": 0, "partition": str(OUTPUT[0])}


# ---- what Kafka lets happen: with a transactional id of his own he writes into a transaction that is open


@pytest.mark.embedded
def test_verify_finds_a_record_that_took_the_place_of_another(broker: EmbeddedKafka, scope: str) -> None:
    """Nothing else can tell: the next record is a duplicate of his, and the transaction is open as it was sealed."""
    settings = one_record(broker)
    options = {**settings["options"], "kafka.batch.size": "4096"}
    settings = {**settings, "options": options, "rows": [[MINE * 2000, MINE * 2001, MINE * 2002]]}
    where = TopicPartition(options["topic"], 0)
    written: list[int] = []

    def take_its_place() -> None:
        cluster = Cluster.shared(SinkOptions.parse({**options, "kafka.client.id": "somebody-else"}).client)
        name = f"{options['pipeline']}:{'0' if scope == 'task' else 'batch'}"
        identity = Transactions(cluster).describe([name])[name].identity
        found = None
        while found is None or identity.producer_id not in found[where]:
            found = describe_producers(cluster, [where])
        written.append(found[where][identity.producer_id].last_sequence + 1)
        his = f"his-{options['topic']}"
        stranger.begun(cluster, his).abort()
        stranger.put_into(cluster, his, where, b"", HIS.encode(), identity, written[0])

    crash_points.arm("mid-produce", action=take_its_place)
    run_of: RunBatch = run if scope == "task" else run_batch
    assert run_of(settings)["records"] == 3

    assert written == [1]
    assert sorted(read_all(broker, options["topic"]), key=len) == [HIS, MINE * 2000, MINE * 2002]
    parsed = SinkOptions.parse({**options, "transaction.scope": scope})
    newest = Run(Cluster.shared(parsed.client), parsed, settings["query"]).ledger.look().newest
    assert newest is not None
    (finding,) = verify(Cluster.shared(parsed.client), newest)
    assert finding.verdict is Verdict.DIFFERS
