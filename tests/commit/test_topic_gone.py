"""The output topic of a decided batch is deleted, or made anew, before its end: the next run goes on, and its words are true."""

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

from connector.embedded import EmbeddedKafka
from connector.errors import ExactlyOnceError, UnknownTopic
from tests.commit.batch_child import run_batch
from tests.commit.child import RunBatch, run, run_child
from tests.commit.judge import read_all, settings_for
from tests.commit.test_damage import following, rows_of
from tests.commit.test_dataframe_write import killed_at
from tests.commit.test_dataframe_write import write as write_frame
from tests.commit.test_ledger_lost import delete

pytestmark = pytest.mark.kafka

VERSIONS = [pytest.param("2", marks=pytest.mark.embedded), pytest.param("1", marks=pytest.mark.chaos)]
"""Transaction versions. The older one takes as long again, so it is left to `make chaos`; both on the embedded broker."""

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
def test_a_topic_that_was_made_anew_holds_nothing_up(
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
        assert run_it(settings)["resumed"] is True
        assert run_it({**following(settings)})["resumed"] is False

    # At the same offsets only reading would tell somebody else's records from those that were there.
    if not records:
        assert "are no longer in" in caplog.text
        assert topic in caplog.text
    foreign = FOREIGN if records else Counter[str]()
    if partitions == 4:
        assert read_all(broker, topic) == rows_of(following(settings)) + foreign


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
    assert read_all(broker, topic) == rows_of(following(settings))


def test_a_decided_batch_goes_on_where_the_query_has_another_topic_now(
    broker: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(broker)
    decided(broker, settings, run)
    before = settings["options"]["topic"]
    delete(broker, before)
    settings["options"]["topic"] = settings_for(broker)["options"]["topic"]

    with caplog.at_level(logging.WARNING):
        assert run(settings)["resumed"] is True
        assert run(following(settings))["resumed"] is False

    assert "are no longer in" in caplog.text
    assert f"wrote to {before}; from now on it writes to {settings['options']['topic']}" in caplog.text
    assert read_all(broker, settings["options"]["topic"]) == rows_of(following(settings))


def test_a_write_goes_on_where_the_topic_of_the_one_before_was_made_anew(broker: EmbeddedKafka) -> None:
    settings = settings_for(broker)
    killed_at("before-end", settings["options"])
    make_anew(broker, settings["options"]["topic"], 4, 0)

    assert write_frame(settings["options"], [["next"]]) == {"records": 1, "repaired": 0}
    assert read_all(broker, settings["options"]["topic"]) == Counter(["next"])


def test_a_missing_topic_is_refused_at_the_first_start_and_nothing_is_begun(broker: EmbeddedKafka) -> None:
    settings = settings_for(broker)
    settings["options"]["topic"] = "never-created"

    with pytest.raises(ExactlyOnceError, match=r"never-created.*create") as refused:
        run(settings)

    assert isinstance(refused.value, UnknownTopic)
