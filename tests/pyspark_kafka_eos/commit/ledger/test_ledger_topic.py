"""The ledger topic: what a start reads of it, what a write without a name leaves in it, how it is made and checked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as Client
from confluent_kafka.admin import AdminClient, ConfigResource

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import LedgerUnreadable
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.commit.ledger import reader as ledger_reader
from pyspark_kafka_eos.operations.checks import examine
from pyspark_kafka_eos.options import SinkOptions
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit.child import run
from tests.pyspark_kafka_eos.commit.judge import read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import with_options
from tests.pyspark_kafka_eos.commit.test_dataframe_write import write as write_frame

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True) as kafka:
        yield kafka


def newest_of_keys(broker: EmbeddedKafka, topic: str) -> dict[bytes, bytes | None]:
    """What compaction would leave, as librdkafka reads it."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "auditor", "enable.partition.eof": True}
    )
    try:
        numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found: dict[bytes, bytes | None] = {}
        ended = 0
        while ended < len(numbers):
            for message in consumer.consume(500, timeout=0.2):
                if message.error():
                    ended += 1
                else:
                    found[message.key()] = message.value()
        return found
    finally:
        consumer.close()


def own_ledger(broker: EmbeddedKafka, **settings: str) -> str:
    return topics_of(broker)(partitions=1, **{"cleanup.policy": "compact", **settings})


def test_writes_without_a_name_leave_nothing_behind(broker: EmbeddedKafka) -> None:
    ledger = own_ledger(broker)
    options = with_options(settings_for(broker), ledger_topic=ledger)["options"]
    del options["pipeline"]

    for number in range(3):
        assert write_frame(options, [[f"write {number}"]])["records"] == 1

    left = newest_of_keys(broker, ledger)
    assert len(left) == 3
    assert set(left.values()) == {None}


def test_a_start_reads_its_partition_of_the_ledger_once_whatever_else_is_in_it(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = own_ledger(broker)
    settings = with_options(settings_for(broker), ledger_topic=ledger)
    client = Client({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 10})
    for number in range(2_000):
        client.produce(ledger, key=f"other-{number}", value=b"x" * 500, partition=0)
        client.poll(0)
    assert client.flush(30) == 0
    taken: list[int] = []
    first: list[Any] = []
    real = ledger_reader.read_raw

    def counting(*given: Any, **more: Any) -> Any:
        read = real(*given, **more)
        taken.append(len(read.records))
        first.append(given)
        return read

    monkeypatch.setattr(ledger_reader, "read_raw", counting)

    run(settings)

    # What one answer brings beyond what was asked for is the rest.
    whole = len(real(*min(first, key=lambda given: given[2])).records)
    assert whole > 2_000 * 500
    assert sum(taken) < 3 * whole
    taken.clear()
    # The next start finds its decision at the end.
    run({**settings, "batch": 1})
    assert sum(taken) < whole / 2


@pytest.mark.parametrize(("replicas", "wanted"), [("3", "2"), ("2", "1"), (None, "1")])
def test_a_ledger_asks_for_two_copies_in_sync_where_new_topics_get_three(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, replicas: str | None, wanted: str
) -> None:
    """The embedded broker keeps one copy of everything, so what it says of new topics is made up."""
    told = {"default.replication.factor": replicas}
    monkeypatch.setattr(admin, "broker_settings", lambda *_: told)
    settings = settings_for(broker)
    name = f"ledger-of-{settings['options']['pipeline']}"
    run(with_options(settings, ledger_topic=name))

    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = ConfigResource(ConfigResource.Type.TOPIC, name)
    assert client.describe_configs([asked])[asked].result(30)["min.insync.replicas"].value == wanted


def test_a_ledger_that_is_not_compacted_is_refused_and_nothing_is_written(broker: EmbeddedKafka) -> None:
    ledger = topics_of(broker)(partitions=1, **{"cleanup.policy": "delete"})
    settings = with_options(settings_for(broker), ledger_topic=ledger)

    with pytest.raises(LedgerUnreadable, match=r"cleanup\.policy=delete"):
        run(settings)

    assert not read_all(broker, settings["options"]["topic"], "read_uncommitted")


def test_that_a_ledgers_settings_may_not_be_read_is_said_as_unknown(
    broker: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = own_ledger(broker)
    settings = with_options(settings_for(broker), ledger_topic=ledger)
    broker.deny("DESCRIBE_CONFIGS", "TOPIC", ledger)
    try:
        with caplog.at_level(logging.WARNING):
            assert run(settings)["records"] == 1200
        found = examine(SinkOptions.parse(settings["options"]))
    finally:
        broker.allow_all()

    assert "compacted: the right to read its settings (DESCRIBE_CONFIGS) is missing" in caplog.text
    (said,) = [check for check in found if check.about == ledger and check.status in ("unknown", "warn")]
    assert "DESCRIBE_CONFIGS" in said.seen + said.do
