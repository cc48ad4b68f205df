"""The output topic of a decided batch is deleted, or recreated: what nobody has seen of it is written again, and the
words are true.
"""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as Client
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import DecisionBroken, ExactlyOnceError, UnknownTopic
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import RunBatch, run, run_child
from tests.pyspark_kafka_eos.commit.judge import read_all, settings_for
from tests.pyspark_kafka_eos.commit.ledger.test_ledger_lost import delete
from tests.pyspark_kafka_eos.commit.test_damage import following, rows_of
from tests.pyspark_kafka_eos.commit.test_dataframe_write import killed_at
from tests.pyspark_kafka_eos.commit.test_dataframe_write import write as write_frame

pytestmark = pytest.mark.kafka

VERSIONS = [pytest.param("2", marks=pytest.mark.embedded), pytest.param("1", marks=pytest.mark.chaos)]
"""Transaction versions. The older one takes as long again, so it is left to `make chaos`; both on the embedded
broker.
"""

FOREIGN = Counter({"somebody else's": 500})


@pytest.fixture(params=VERSIONS, scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    config = {"transaction.version": request.param, "auto.create.topics.enable": "false"}
    with EmbeddedKafka(in_process=True, config=config) as kafka:
        yield kafka


def make_anew(broker: EmbeddedKafka, topic: str, partitions: int, records: int) -> None:
    """Delete and create a topic; `records` of somebody else in each partition, at the offsets of what was there."""
    delete(broker, topic)
    create(broker, topic, partitions)
    client = Client({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(partitions):
        for _ in range(records):
            client.produce(topic, b"somebody else's", partition=number)
    assert client.flush(30) == 0


def create(broker: EmbeddedKafka, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    new = NewTopic(topic, num_partitions=partitions, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(30)


def decided(broker: EmbeddedKafka, settings: dict[str, Any], run_it: RunBatch) -> None:
    point = "after-decision" if run_it is run_batch else "before-end"
    finished = run_child(settings, point, run_it)
    assert finished.exitcode == -signal.SIGKILL, finished.report


@pytest.mark.parametrize("run_it", [run, run_batch])
@pytest.mark.parametrize(("partitions", "records"), [(4, 0), (2, 0), (4, 125)])
def test_what_was_never_visible_is_written_into_a_topic_that_was_recreated_and_the_rest_went_with_the_former(
    broker: EmbeddedKafka,
    run_it: RunBatch,
    partitions: int,
    records: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = settings_for(broker)
    topic = settings["options"]["topic"]
    decided(broker, settings, run_it)
    make_anew(broker, topic, partitions, records)

    with caplog.at_level(logging.WARNING):
        report = run_it(settings)
        assert run_it({**following(settings)})["resumed"] is False

    assert report["resumed"] is True
    foreign = FOREIGN if records else Counter[str]()
    # With scope=batch the decision is the commit, so readers had these rows in the former topic.
    never_visible = rows_of(settings) if run_it is run else Counter[str]()
    assert (report["repaired"] > 0) == bool(never_visible)
    if never_visible:
        assert f"topic {topic} was deleted and recreated since batch 0 was decided" in caplog.text
    else:
        assert "are no longer in" in caplog.text and f"topic {topic} was deleted and recreated" in caplog.text
    if partitions == 4:
        assert read_all(broker, topic) == never_visible + rows_of(following(settings)) + foreign


@pytest.mark.parametrize("run_it", [run, run_batch])
def test_a_deleted_topic_is_asked_for_in_true_words(broker: EmbeddedKafka, run_it: RunBatch) -> None:
    """The batch had written there, so 'nothing was written to it' would be false."""
    settings = settings_for(broker)
    topic = settings["options"]["topic"]
    decided(broker, settings, run_it)
    delete(broker, topic)

    with pytest.raises(UnknownTopic) as refused:
        run_it(settings)

    assert topic in refused.value.message
    assert "nothing was written" not in refused.value.message
    assert "create it" in refused.value.message
    create(broker, topic, 4)
    assert run_it(settings)["resumed"] is True
    assert run_it(following(settings))["resumed"] is False
    never_visible = rows_of(settings) if run_it is run else Counter[str]()
    assert read_all(broker, topic) == never_visible + rows_of(following(settings))


def test_a_batch_that_was_decided_for_a_topic_that_is_gone_is_finished_once_the_topic_is_there(
    broker: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(broker)
    decided(broker, settings, run)
    before = settings["options"]["topic"]
    delete(broker, before)
    settings["options"]["topic"] = settings_for(broker)["options"]["topic"]

    with pytest.raises(UnknownTopic, match=f"{before}.*create it"):
        run(settings)
    create(broker, before, 4)
    with caplog.at_level(logging.WARNING):
        assert run(settings)["resumed"] is True
        assert run(following(settings))["resumed"] is False

    assert f"wrote to {before}; from now on it writes to {settings['options']['topic']}" in caplog.text
    assert read_all(broker, before) == rows_of(settings)
    assert read_all(broker, settings["options"]["topic"]) == rows_of(following(settings))


def test_a_write_whose_topic_was_recreated_while_it_was_open_is_asked_for_again(
    broker: EmbeddedKafka,
) -> None:
    settings = settings_for(broker)
    killed_at("before-end", settings["options"])
    make_anew(broker, settings["options"]["topic"], 4, 0)

    with pytest.raises(DecisionBroken, match=r"Write the same rows again with batch\.id=0"):
        write_frame(settings["options"], [["next"]])

    assert read_all(broker, settings["options"]["topic"]) == Counter()


def test_a_missing_topic_is_refused_at_the_first_start_and_nothing_is_begun(broker: EmbeddedKafka) -> None:
    settings = settings_for(broker)
    settings["options"]["topic"] = "never-created"

    with pytest.raises(ExactlyOnceError, match=r"never-created.*create") as refused:
        run(settings)

    assert isinstance(refused.value, UnknownTopic)
