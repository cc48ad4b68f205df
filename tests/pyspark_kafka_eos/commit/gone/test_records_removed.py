"""Records that retention or DeleteRecords removes while their transaction is open: never counted as written."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import TransactionTooOld
from pyspark_kafka_eos import crash_points
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import RunBatch, run
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_lost_in_election import stopped_at

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture(params=["1", "2"], scope="module", ids=["version1", "version2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    config = {"transaction.version": request.param}
    with EmbeddedKafka(in_process=True, config=config) as kafka:
        yield kafka


@pytest.fixture(autouse=True)
def nothing_armed() -> Iterator[None]:
    yield
    crash_points.arm("")


@pytest.mark.parametrize("run_it", [run, run_batch])
def test_records_that_are_removed_between_their_seal_and_the_decision_are_written_again(
    broker: EmbeddedKafka, caplog: pytest.LogCaptureFixture, run_it: RunBatch
) -> None:
    settings = settings_for(broker)
    topic = settings["options"]["topic"]

    def strike() -> None:
        remove(broker, topic, 0)

    crash_points.arm("before-check", 1, strike)

    said = (
        rf"{topic}-0 from offset 0 on, and its log begins at \d+ by now: retention \(retention.ms, retention.bytes\) or DeleteRecords "
        "removed records before they were visible"
    )
    with caplog.at_level(logging.WARNING):
        if run_it is run:
            # Nothing repeats the batch in this run.
            with pytest.raises(TransactionTooOld, match=said):
                run_it(settings)
            assert read_all(broker, topic) == Counter()
        assert run_it(settings)["resumed"] is False

    assert read_all(broker, topic) == EXPECTED
    assert run_it is run or re.search(said, caplog.text)


def remove(broker: EmbeddedKafka, topic: str, *partitions: int) -> list[int]:
    """Delete all records of these partitions; where their logs begin now."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = [ck.TopicPartition(topic, each, ck.OFFSET_END) for each in partitions]
    return [each.result().low_watermark for each in admin.delete_records(asked).values()]


def test_decided_records_that_were_removed_before_their_end_are_written_again(
    broker: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(broker)
    topic = settings["options"]["topic"]
    stopped_at("before-end", settings)
    (begins,) = remove(broker, topic, 0)
    assert begins > 0

    with caplog.at_level(logging.WARNING):
        report = run(settings)

    assert (report["resumed"], report["repaired"] > 0) == (True, True)
    assert read_all(broker, topic) == EXPECTED
    assert f"no longer in {topic}-0: retention or DeleteRecords removed them" in caplog.text
