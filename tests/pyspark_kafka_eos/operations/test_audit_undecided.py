"""The proof finds what a pipeline's ids committed and no decision names. Both transaction versions. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import READ_COMMITTED, READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.operations.audit import Audit, History, Verdict, prove
from pyspark_kafka_eos.operations.history import newest_first
from pyspark_kafka_eos.operations.proving import prove_newest
from pyspark_kafka_eos.options import SinkOptions
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.cli.cli_tools import call, shown
from tests.pyspark_kafka_eos.client.client_tools import wait_until
from tests.pyspark_kafka_eos.commit.requests import counting
from tests.pyspark_kafka_eos.operations.test_audit import options_for, write
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

LONG_AGO_MS = 1_000_000_000_000


@pytest.fixture(params=["newest", "zookeeper"])
def broker(request: pytest.FixtureRequest) -> AnyKafka:
    """Transaction version 2, then 1."""
    return request.getfixturevalue({"newest": "kafka", "zookeeper": "kafka_zk"}[request.param])  # type: ignore[no-any-return]


def pipeline_of(broker: AnyKafka, partitions: int = 4, **more: str) -> SinkOptions:
    """A pipeline whose batch 0 has rows of slot 0 in partition 0, and of slot 1 in partitions 0 and 1."""
    topic = topics_of(broker)(partitions)
    options = options_for(broker, f"more-{topic}", topic=topic, **more)
    one_batch(options, 0)
    return options


def one_batch(options: SinkOptions, batch: int) -> None:
    slots = ([0, 0, 0], [0, 1, 1])
    write(options, *({"value": ["x", "y", "z"], "partition": each} for each in slots), batch=batch)


def rogue(
    broker: AnyKafka,
    options: SinkOptions,
    *partitions: int,
    commit: bool = True,
    timestamp: int = 0,
    slot: str = "1",
) -> None:
    """Somebody else writes under a slot's id."""
    name = f"{options.pipeline}:{slot}"
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(options.topic, value=b"rogue", partition=partition, timestamp=timestamp)
    # An abort drops what is not sent yet.
    assert producer.flush(30) == 0
    (producer.commit_transaction if commit else producer.abort_transaction)(30)
    # A coordinator answers once the end is certain; on a busy real broker the markers come later.
    offsets = Offsets(Cluster.shared(options.client))
    places = [TopicPartition(str(options.topic), each) for each in partitions]
    wait_until(
        lambda: offsets.latest(places, READ_COMMITTED) == offsets.latest(places, READ_UNCOMMITTED),
        "the markers",
    )


def proven(options: SinkOptions, last: int = 1) -> Audit:
    cluster = Cluster.shared(options.client)
    proof, _ = prove_newest(cluster, options.ledger_topic, options.pipeline, last, (), lambda done, of: None)
    return proof


def decisions(options: SinkOptions) -> list[Decision]:
    """All that the ledger has, oldest first."""
    pages = newest_first(Cluster.shared(options.client), options.ledger_topic, options.pipeline)
    return [each.decision for page in pages for each in page if each.decision is not None][::-1]


def verdicts(proof: Audit) -> list[Verdict]:
    return [each.verdict for _, findings in proof.batches for each in findings]


def places(proof: Audit) -> list[tuple[int, int]]:
    """(partition, records) of what was not decided."""
    return [(each.commit.where.partition, each.commit.records) for each in proof.undecided]


def test_a_transaction_that_no_decision_names_is_found_in_every_partition_of_the_topic(
    broker: AnyKafka,
) -> None:
    options = pipeline_of(broker)
    rogue(broker, options, 0, 3, 3)

    proof = proven(options)

    assert verdicts(proof) == [Verdict.MATCHES] * 2
    assert places(proof) == [(0, 1), (3, 2)]
    reason = proof.undecided[1].reason
    assert reason.startswith(
        f"{options.topic}-3: 2 records from offset 0 on are committed under {options.pipeline}:1 ("
    )
    assert reason.endswith("and no decision names this transaction")


def test_the_command_ends_with_1_and_says_what_was_found_and_else_where_it_looked(kafka: AnyKafka) -> None:
    options = pipeline_of(kafka)

    code, said = shown(kafka, "verify", options.pipeline)
    assert code == 0
    assert f"no other commit of their ids in 4 partitions of {options.topic}, from these batches on" in said
    assert "rows that name a topic of their own may have gone to others" in said

    rogue(kafka, options, 2)
    code, said = shown(kafka, "verify", options.pipeline)
    answer = call(kafka, "verify", options.pipeline)
    assert (code, answer.code) == (1, 1)
    assert f"{options.topic}-2: 1 records from offset 0 on are committed under {options.pipeline}:1" in said
    assert "1 of 1 batches match the ledger" in said
    assert "1 other commit of their ids that no decision names" in said
    (found,) = answer.document["undecided"]
    assert (found["topic"], found["partition"], found["records"]) == (options.topic, 2, 1)
    assert answer.document["searched"] == {"topics": [options.topic], "partitions": 4}


def test_records_that_say_they_are_older_than_the_batch_are_found(broker: AnyKafka) -> None:
    options = pipeline_of(broker)
    rogue(broker, options, 3, timestamp=LONG_AGO_MS)

    assert places(proven(options)) == [(3, 1)]


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_partition_of_its_own_transaction_that_no_seal_names_makes_a_batch_differ(
    broker: AnyKafka, scope: str
) -> None:
    options = pipeline_of(broker, transaction__scope=scope)
    (decision,) = decisions(options)
    seals = [
        replace(seal, partitions=tuple(each for each in seal.partitions if each.partition != 1))
        for seal in decision.seals
    ]
    less = replace(decision, seals=tuple(seals))
    assert less != decision

    proof = prove(Cluster.shared(options.client), [History([less], [less])])

    found = [each for _, findings in proof.batches for each in findings]
    assert [each.reason for each in found if each.verdict is Verdict.DIFFERS] == [f"{options.topic}-1: 2 records of 0"]
    assert proof.undecided == []


def test_what_was_aborted_and_what_others_commit_is_nothing_more(broker: AnyKafka) -> None:
    options = pipeline_of(broker)
    rogue(broker, options, 0, 3, commit=False)
    stranger = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"not-{options.pipeline}"})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(options.topic, value=b"mine", partition=3)
    stranger.commit_transaction(30)

    proof = proven(options)

    assert (places(proof), verdicts(proof)) == ([], [Verdict.MATCHES] * 2)


def test_older_batches_are_no_surprise_also_where_the_ledger_has_the_newest_decision_alone(
    broker: AnyKafka,
) -> None:
    options = pipeline_of(broker)
    one_batch(options, 1)
    rogue(broker, options, 2)
    # The run itself finds that somebody committed under its id.
    adopting = options_for(broker, options.pipeline, topic=str(options.topic), adopt__checkpoint="true")
    one_batch(adopting, 2)
    known = decisions(options)
    assert [each.batch_id for each in known] == [0, 1, 2]
    cluster = Cluster.shared(options.client)

    def found(history: Sequence[Decision], verified: Sequence[Decision]) -> list[tuple[int, int]]:
        return places(prove(cluster, [History(history, verified)]))

    # What came before the oldest known decision may have been decided: compaction removed the rest.
    assert found(known[2:], known[2:]) == []
    # Between two decisions of the ledger there is none.
    assert found(known[1:], known[2:]) == found(known, known) == [(2, 1)]


# On a busy real broker a marker may be behind the end that was asked for, and is then not read at all.
@pytest.mark.embedded
def test_what_is_decided_while_the_output_is_read_is_no_surprise(broker: AnyKafka) -> None:
    options = pipeline_of(broker)
    before = decisions(options)
    one_batch(options, 1)
    cluster = Cluster.shared(options.client)

    assert places(prove(cluster, [History(before, before)])) == [(0, 1), (0, 3), (1, 2)]
    assert places(prove(cluster, [History(before, before)], newer=lambda _: decisions(options))) == []


def test_an_id_that_had_no_part_in_the_newest_batch_is_watched_too(broker: AnyKafka) -> None:
    options = pipeline_of(broker)
    write(options, {"value": ["alone"], "partition": [0]}, batch=1)
    newest = decisions(options)[-1:]
    assert [len(each.seals) for each in newest] == [1]
    cluster = Cluster.shared(options.client)

    assert places(prove(cluster, [History(newest, newest)])) == []
    rogue(broker, options, 3)
    assert places(prove(cluster, [History(newest, newest)])) == [(3, 1)]


@pytest.mark.embedded
def test_each_partition_is_read_once_whatever_the_number_of_batches_and_one_without_news_is_not_read(
    kafka: EmbeddedKafka,
) -> None:
    options = pipeline_of(kafka, 200)
    for batch in range(1, 4):
        one_batch(options, batch)
    cluster = Cluster.shared(options.client)
    known = decisions(options)

    with counting(kafka) as counter:
        proof = prove(cluster, [History(known, known)])
        all_four = counter.taken()
        prove(cluster, [History(known, known[-1:])])
        one = counter.taken()

    assert len(proof.partitions) == 200
    assert verdicts(proof) == [Verdict.MATCHES] * 8
    # One answer has all batches of a partition. Metadata: whether the topic is there, and its leaders by every broker.
    assert all_four == one == {"Fetch": 2, "ListOffsets": 3, "Metadata": 2}
