"""SIGKILL of the broker wherever it has just written something: what was decided holds, each marker is there once.

Every kill is made by a fault at a step of the coordinator, so the exit code proves that it happened.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from embedded_kafka import EmbeddedKafka
from embedded_kafka.log import decode_batch, parse_header
from kafka_core.errors import StorageInUse

pytestmark = [pytest.mark.kafka, pytest.mark.embedded, pytest.mark.judged]

TIMEOUT_S = 30
TOPICS = ("one", "two")


@pytest.fixture(params=["1", "2"], ids=["version-1", "version-2"])
def kafka(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(config={"transaction.version": request.param}) as broker:
        yield broker


def producer(kafka: EmbeddedKafka, transactional_id: str) -> Producer:
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": 60_000,
        "log_level": 0,
    }
    made = Producer(settings)
    made.init_transactions(TIMEOUT_S)
    return made


def write(writer: Producer, value: bytes) -> None:
    writer.begin_transaction()
    for topic in TOPICS:
        writer.produce(topic, value, partition=0)
    assert writer.flush(TIMEOUT_S) == 0


def read(kafka: EmbeddedKafka, topic: str) -> list[bytes]:
    """Everything committed, by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "the reader waits for a transaction that nobody ends"
            if message.error():
                return values
            values.append(message.value())
    finally:
        consumer.close()


def markers(kafka: EmbeddedKafka, topic: str) -> Counter[tuple[int, int]]:
    """(producer id, epoch) of each marker, from the file itself."""
    found: Counter[tuple[int, int]] = Counter()
    for segment in sorted((kafka.data_dir / f"{topic}-0").glob("*.log")):
        data = memoryview(segment.read_bytes())
        while len(data):
            header = parse_header(data)
            assert header is not None
            if header.control:
                assert len(decode_batch(data[: header.size])) == 1
                found[header.producer_id, header.producer_epoch] += 1
            data = data[header.size :]
    return found


def wait_until_ended(kafka: EmbeddedKafka, transactional_id: str) -> None:
    """Initialising again answers when everything of the id is complete."""
    producer(kafka, transactional_id)


@pytest.mark.parametrize("commit", [True, pytest.param(False, marks=pytest.mark.long)], ids=["commit", "abort"])
@pytest.mark.parametrize("step", ["end-prepared", "marker-written:1", "marker-written:2", "end-completed"])
def test_killed_at_any_step_of_an_end_the_transaction_ends_as_decided_and_each_marker_is_there_once(
    kafka: EmbeddedKafka, step: str, commit: bool
) -> None:
    writer = producer(kafka, "x")
    write(writer, b"first")
    writer.commit_transaction(TIMEOUT_S)
    write(writer, b"second")
    kafka.fault_at_step(step, "kill")
    # The answer may come before the kill, or never: what is decided is in the log either way.
    with contextlib.suppress(KafkaException):
        (writer.commit_transaction if commit else writer.abort_transaction)(1)

    assert kafka.exit_code(timeout_ms=30_000) == -signal.SIGKILL
    kafka.restart()
    wait_until_ended(kafka, "x")

    for topic in TOPICS:
        assert read(kafka, topic) == ([b"first", b"second"] if commit else [b"first"])
        # Version 1 ends both transactions under one epoch, version 2 each under its own.
        assert sorted(markers(kafka, topic).values()) in ([1, 1], [2])


@pytest.mark.parametrize("step", ["init-logged", "add-logged"])
def test_killed_before_a_decision_nothing_of_it_shows_and_the_next_owner_goes_on(
    kafka: EmbeddedKafka, step: str
) -> None:
    writer = producer(kafka, "x")
    write(writer, b"first")
    writer.commit_transaction(TIMEOUT_S)
    kafka.fault_at_step(step, "kill")
    if step == "init-logged":
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "x", "log_level": 0}
        next_owner = Producer(settings)
        with pytest.raises(KafkaException):
            next_owner.init_transactions(1)
        # librdkafka goes on asking behind the call's timeout: it would fence the successor of below.
        del next_owner
    else:
        writer.begin_transaction()
        writer.produce("one", b"second", partition=0)
        writer.poll(0)

    assert kafka.exit_code(timeout_ms=30_000) == -signal.SIGKILL
    kafka.restart()
    successor = producer(kafka, "x")
    write(successor, b"third")
    successor.commit_transaction(TIMEOUT_S)

    assert [read(kafka, topic) for topic in TOPICS] == [[b"first", b"third"]] * 2


def test_killed_while_it_aborts_what_timed_out_the_abort_is_finished(kafka: EmbeddedKafka) -> None:
    writer = producer(kafka, "x")
    write(writer, b"first")
    writer.commit_transaction(TIMEOUT_S)
    write(writer, b"second")
    kafka.fault_at_step("abort-prepared", "kill")
    # The kill may come before the answer to the command that brings it about.
    with contextlib.suppress(OSError, ValueError):
        kafka.advance(60_001)

    assert kafka.exit_code(timeout_ms=30_000) == -signal.SIGKILL
    kafka.restart()
    wait_until_ended(kafka, "x")

    for topic in TOPICS:
        assert read(kafka, topic) == [b"first"]
        # The abort is under an epoch of its own in both versions.
        assert sorted(markers(kafka, topic).values()) == [1, 1]


def test_what_was_acknowledged_survives_sigkill(kafka: EmbeddedKafka) -> None:
    acknowledged: list[bytes] = []
    writer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 0,
            "linger.ms": 1,
        }
    )
    for number in range(5_000):
        writer.produce(
            "one",
            b"%d" % number,
            partition=0,
            on_delivery=lambda error, message: error or acknowledged.append(message.value()),
        )
        writer.poll(0)
        if len(acknowledged) > 1_000:
            break
    kafka.kill()
    kafka.restart()
    # What had no answer is sent again; the broker knows what it has.
    assert writer.flush(TIMEOUT_S) == 0

    values = read(kafka, "one")
    assert len(acknowledged) > 1_000
    assert values == sorted(set(values), key=int)
    assert set(acknowledged) <= set(values)


def test_a_directory_of_a_broker_that_runs_is_refused_to_another(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with pytest.raises(StorageInUse, match="another broker uses this data directory"):
        EmbeddedKafka(data_dir=kafka.data_dir).start()
    with pytest.raises(StorageInUse, match="another process listens on this port"):
        EmbeddedKafka(data_dir=tmp_path, port=int(kafka.bootstrap_servers.rpartition(":")[2])).start()
    # The first one was not disturbed.
    writer = producer(kafka, "y")
    write(writer, b"value")
    writer.commit_transaction(TIMEOUT_S)
    assert read(kafka, "one") == [b"value"]
