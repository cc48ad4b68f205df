"""A damaged ledger and mistaken identities: the run stops before it writes, says what to do, and goes on once it is
done.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_core.errors import LedgerUnreadable
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.ledger.notes import NOTE_VERSION
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.options import SinkOptions
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit import batch_child
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.held import held_at
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, ROWS, committed_offsets, read_all, settings_for
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

LEDGER = "exactly-once-ledger"
WITHIN_S = 30
SLOTS = [[f"slot-{slot} row-{row}" for row in range(40)] for slot in range(5)]


def following(settings: dict[str, Any], batch: int = 1) -> dict[str, Any]:
    """A later batch of the same query, with rows of its own."""
    rows = [[f"batch-{batch} {value}" for value in values] for values in settings["rows"]]
    return {**settings, "batch": batch, "rows": rows}


def with_options(settings: dict[str, Any], **options: str) -> dict[str, Any]:
    """The same run with options added; names with an underscore for the dot."""
    added = {name.replace("_", "."): value for name, value in options.items()}
    return {**settings, "options": {**settings["options"], **added}}


def rows_of(*runs: dict[str, Any]) -> Counter[str]:
    """What these runs write, each once."""
    return Counter(value for run in runs for values in run["rows"] for value in values)


def put(broker: AnyKafka, settings: dict[str, Any], value: bytes | None) -> None:
    """Write under the pipeline's key into the ledger, under one of the pipeline's own ids: a record that counts."""
    pipeline = settings["options"]["pipeline"]
    producer = its_own(broker, pipeline)
    producer.produce(LEDGER, key=pipeline, value=value)
    producer.commit_transaction(WITHIN_S)


def its_own(broker: AnyKafka, pipeline: str) -> Producer:
    """Another version of the connector, as far as brokers and readers of the ledger see."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            # The partition that Java's clients, and so the connector, choose for a key.
            "partitioner": "murmur2_random",
            "transactional.id": f"{pipeline}:notes",
        }
    )
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    return producer


def put_everywhere(broker: AnyKafka, pipeline: str, key: str, value: bytes | None) -> None:
    """The same into every partition of the ledger: a note is in that of its pipeline, whose name its key only begins
    with.
    """
    producer = its_own(broker, pipeline)
    for number in producer.list_topics(LEDGER, timeout=WITHIN_S).topics[LEDGER].partitions:
        producer.produce(LEDGER, key=key, value=value, partition=number)
    producer.commit_transaction(WITHIN_S)


def put_as_a_stranger(broker: AnyKafka, settings: dict[str, Any], value: bytes | None) -> None:
    """Write under the pipeline's key into the ledger, as any client can: without a transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random", "acks": "all"})
    failures: list[object] = []
    producer.produce(
        LEDGER,
        key=settings["options"]["pipeline"],
        value=value,
        on_delivery=lambda error, _: failures.append(error) if error else None,
    )
    assert producer.flush(WITHIN_S) == 0
    assert not failures


def newest_value(broker: AnyKafka, settings: dict[str, Any]) -> bytes:
    """The ledger's last value under the key of a pipeline that has committed, as librdkafka finds it.

    Read without isolation: a driver that another test killed in its decision may hold back what follows in the
    partition.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "auditor",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        numbers = consumer.list_topics(LEDGER, timeout=WITHIN_S).topics[LEDGER].partitions
        consumer.assign([TopicPartition(LEDGER, number, 0) for number in numbers])
        found: list[bytes] = []
        ended: set[int] = set()
        while len(ended) < len(numbers):
            for message in consumer.consume(500, timeout=0.2):
                if message.error():
                    ended.add(message.partition())
                elif message.key() == settings["options"]["pipeline"].encode():
                    found.append(message.value())
        return found[-1]
    finally:
        consumer.close()


# ---- the ledger's records


def _newer_version(good: bytes) -> bytes:
    body = json.loads(good)
    return json.dumps({**body, "version": body["version"] + 1}).encode()


def _without_seals(good: bytes) -> bytes:
    return json.dumps({name: part for name, part in json.loads(good).items() if name != "seals"}).encode()


def _cut_off(good: bytes) -> bytes:
    return good[: len(good) // 2]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"garbage",
        b"\xff\xfe\x00",
        b"null",
        b"17",
        b'"text"',
        b"[1, 2]",
        b"{}",
        b'{"order": 17}',
        b'{"version": 1}',
    ],
    ids=repr,
)
def test_bytes_that_are_no_decision_are_never_taken_for_one(value: bytes) -> None:
    with pytest.raises(LedgerUnreadable, match="is not a decision of this connector"):
        Decision.from_bytes(value)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(_cut_off, "is not a decision", id="cut off in the middle"),
        pytest.param(_without_seals, "is not a decision", id="a decision without its seals"),
        pytest.param(_newer_version, "newer version of this connector", id="a newer version"),
    ],
)
def test_a_record_that_is_no_decision_stops_the_query_until_it_is_put_right(
    kafka: AnyKafka, damage: Callable[[bytes], bytes], said: str
) -> None:
    settings = settings_for(kafka)
    settings["rows"] = SLOTS[:2]
    topic = settings["options"]["topic"]
    assert run_child(settings).report["batch"] == 0
    good = newest_value(kafka, settings)
    put(kafka, settings, damage(good))

    error = run_child(following(settings)).report["error"]

    assert error.startswith("LedgerUnreadable")
    assert said in error
    assert "nothing was changed" in error
    # Not even what a later abort would hide was written.
    assert read_all(kafka, topic, "read_uncommitted") == rows_of(settings)
    put(kafka, settings, good)
    assert run_child(following(settings)).report["records"] == 80
    assert read_all(kafka, topic) == rows_of(settings, following(settings))


@pytest.mark.parametrize("kind", ["ended", "mending/any:0", "settled"])
def test_a_note_of_a_newer_version_is_refused_and_nothing_changes(broker: AnyKafka, kind: str) -> None:
    settings = settings_for(broker)
    assert run_child(settings, "before-end").exitcode == -signal.SIGKILL
    note = {"version": NOTE_VERSION + 1, "note": kind.partition("/")[0], "of": "tomorrow"}
    key = f"{settings['options']['pipeline']}/{kind}"
    put_everywhere(broker, settings["options"]["pipeline"], key, json.dumps(note).encode())
    options = SinkOptions.parse(settings["options"])
    names = [f"{options.pipeline}:{slot}" for slot in range(len(settings["rows"]))]
    cluster = Cluster(options.client)
    before = Transactions(cluster).describe(names)

    error = run_child(settings).report["error"]
    with pytest.raises(LedgerUnreadable, match="newer version"):
        batch_child.run_batch(following(settings))

    assert error.startswith("LedgerUnreadable") and "newer version" in error
    assert Transactions(cluster).describe(names) == before
    cluster.close()
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED
    assert read_all(broker, settings["options"]["topic"]) == Counter()


def test_garbage_in_a_transaction_that_was_aborted_is_no_record(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    assert run_child(settings).report["batch"] == 0
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "partitioner": "murmur2_random",
            "transactional.id": f"stranger-{settings['options']['pipeline']}",
        }
    )
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(LEDGER, key=settings["options"]["pipeline"], value=b"garbage")
    assert producer.flush(WITHIN_S) == 0
    producer.abort_transaction(WITHIN_S)

    again = run_child(settings)

    assert again.report["resumed"] is True
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED


# ---- the ledger's topic


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_ledger_that_deletes_is_refused_before_anything_is_written(
    kafka: AnyKafka, topic: MakeTopic, policy: str
) -> None:
    ledger = topic(**{"cleanup.policy": policy})
    settings = with_options(settings_for(kafka), ledger_topic=ledger)

    error = run_child(settings).report["error"]

    assert error.startswith("LedgerUnreadable")
    assert f"the ledger topic '{ledger}' has cleanup.policy=" in error
    assert "set cleanup.policy=compact or name another topic with ledger.topic" in error
    assert read_all(kafka, settings["options"]["topic"], "read_uncommitted") == Counter()
    assert read_all(kafka, ledger, "read_uncommitted") == Counter()


# ---- who the pipeline belongs to


def test_a_new_checkpoint_is_refused_until_adopted_and_then_the_old_querys_batch_is_finished_first(
    kafka: AnyKafka,
) -> None:
    settings = settings_for(kafka)
    topic = settings["options"]["topic"]
    assert run_child(settings, "before-end").exitcode == -signal.SIGKILL
    new = {**following(settings), "query": "query-2", "batch": 0, "offsets": []}

    refused = run_child(new).report["error"]

    assert refused.startswith("PipelineConflict")
    assert "adopt.checkpoint=true" in refused
    assert "nothing was written" in refused
    # Refused without fencing the rightful query, whose slots are as open as before.
    assert read_all(kafka, topic, "read_uncommitted") == EXPECTED
    assert read_all(kafka, topic) == Counter()
    adopted = run_child(with_options(new, adopt_checkpoint="true")).report
    assert (adopted["batch"], adopted["resumed"]) == (0, False)
    assert read_all(kafka, topic) == EXPECTED + rows_of(new)
    assert committed_offsets(kafka, settings) == settings["offsets"]


def test_a_checkpoint_older_than_the_ledger_is_refused(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    topic = settings["options"]["topic"]
    second = following(settings)
    assert run_child(settings).report["batch"] == 0
    assert run_child(second).report["batch"] == 1

    error = run_child(settings).report["error"]

    assert error.startswith("PipelineConflict")
    assert "it begins batch 0, but batch 1 of this query is committed" in error
    assert "Restore the newer checkpoint" in error
    assert read_all(kafka, topic, "read_uncommitted") == rows_of(settings, second)
    # Adopting is for another query's checkpoint: it does not open this door.
    forced = run_child(with_options(settings, adopt_checkpoint="true")).report["error"]
    assert forced.startswith("PipelineConflict")
    assert read_all(kafka, topic, "read_uncommitted") == rows_of(settings, second)


@pytest.mark.parametrize("point", ["before-decision", "decision-written"])
def test_an_older_driver_that_goes_on_after_a_newer_one_is_fenced_and_nothing_of_it_shows(
    broker: AnyKafka, point: str
) -> None:
    settings = settings_for(broker)
    topic = settings["options"]["topic"]
    older = {**settings, "rows": [[f"older {value}" for value in values] for values in ROWS]}

    with held_at(point, older) as run:
        newer = run_child(settings).report
        fenced = run.release().report["error"]

    assert newer == {"batch": 0, "records": 1200, "resumed": False, "repaired": 0}
    assert read_all(broker, topic) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]
    # Past the last word before the decision it can only be told that its commit was not taken.
    assert fenced.startswith("ProducerFenced" if point == "before-decision" else "TransactionTooOld")
    assert run_child(settings).report["resumed"] is True


def test_an_older_driver_that_goes_on_before_its_check_finds_its_slots_taken_over(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    older = {**settings, "rows": [[f"older {value}" for value in values] for values in ROWS]}

    with held_at("before-check", older) as run:
        assert run_child(settings).report["batch"] == 0
        error = run.release().report["error"]

    assert error.startswith("TransactionTooOld")
    assert "another write or a newer attempt of its task took it over; no record of this try" in error
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED


# ---- slots that vanish and appear


@pytest.mark.parametrize(("before", "now"), [(5, 2), (2, 5)], ids=["fewer", "more"])
def test_slots_that_vanish_or_appear_leave_nothing_open(broker: AnyKafka, before: int, now: int) -> None:
    settings = {**settings_for(broker), "rows": SLOTS[:before]}
    topic = settings["options"]["topic"]
    assert run_child(settings, "before-decision").exitcode == -signal.SIGKILL
    assert last_stable_offsets(broker, topic) != high_watermarks(broker, topic)
    changed = {**settings, "rows": SLOTS[:now]}

    assert run_child(changed).report["records"] == 40 * now

    assert last_stable_offsets(broker, topic) == high_watermarks(broker, topic)
    assert read_all(broker, topic) == rows_of(changed)
    assert committed_offsets(broker, settings) == settings["offsets"]


def last_stable_offsets(broker: AnyKafka, topic: str) -> list[int]:
    """How far a read_committed reader can read each partition."""
    return _ends(broker, topic, "read_committed")


def high_watermarks(broker: AnyKafka, topic: str) -> list[int]:
    """Where each partition ends."""
    return _ends(broker, topic, "read_uncommitted")


def _ends(broker: AnyKafka, topic: str, isolation: str) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "judge", "isolation.level": isolation}
    )
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=WITHIN_S)[1] for number in range(4)
        ]
    finally:
        consumer.close()
