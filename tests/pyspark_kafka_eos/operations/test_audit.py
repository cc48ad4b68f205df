"""The proof of a decided batch, function by function: what the log shows against what was decided. No Spark."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA, LocalKafka
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.commit.drivers import pipeline_driver
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations.audit import Finding, Verdict, verify
from pyspark_kafka_eos.operations.history import newest_first
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import HEADERS_TYPE, scan
from pyspark_kafka_eos.slot.dead_letters import PREFIX
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from tests.conftest import MakeTopic, topics_of
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

Driver = PerTask | WholeBatch
NOON = dt.datetime(2026, 3, 4, 12, tzinfo=dt.timezone.utc)


def options_for(kafka: AnyKafka, pipeline: str, **more: str) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in more.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, "pipeline": pipeline, **named})


def driver_of(options: SinkOptions) -> Driver:
    return pipeline_driver(Cluster.shared(options.client), options, "query")


def write(options: SinkOptions, *slots: dict[str, Any], batch: int = 0) -> None:
    """One micro-batch, a task for each dict of columns, from the start of a run to its end."""
    driver = driver_of(options)
    assert driver.start(batch) is None

    def tasks(only: frozenset[int] | None) -> list[Seal]:
        plan = driver.plan(batch, only)
        one: Callable[..., Seal] = write_shared if isinstance(plan, SharedPlan) else write_slot
        return [one(plan, slot, [pa.RecordBatch.from_pydict(rows)]) for slot, rows in enumerate(slots)]

    driver.process(batch, tasks, (), {})


def proven(options: SinkOptions) -> list[Finding]:
    """The verdicts on the newest batch."""
    cluster = Cluster.shared(options.client)
    (page,) = (page for page in newest_first(cluster, options.ledger_topic, options.pipeline, 1) if page)
    assert page[0].decision is not None
    return verify(cluster, page[0].decision)


# ---- dead letters


def _forwarded(pipeline: str, batch: int) -> list[dict[str, Any]]:
    """The headers of a dead letter that is written on as a row."""
    said = {"pipeline": pipeline, "batch": str(batch)}
    return [{"key": PREFIX + name, "value": value.encode()} for name, value in said.items()]


@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("stamped", [True, False], ids=["stamped", "plain"])
def test_a_batch_with_dead_letters_matches_whether_or_not_its_rows_have_times_and_whatever_else_is_in_that_topic(
    kafka: AnyKafka, topic: MakeTopic, scope: str, stamped: bool
) -> None:
    small, dead = topic(partitions=1, **{"max.message.bytes": "1000"}), topic(partitions=1)
    options = options_for(kafka, f"buried-{small}", dead__letter__topic=dead, transaction__scope=scope)
    # The last row is good and goes beside the dead letters, with the headers of an older one.
    rows: dict[str, Any] = {
        "value": ["a", "b" * 3000, "c", "d"],
        "topic": [small, small, small, dead],
        "headers": pa.array([None, None, None, _forwarded(options.pipeline, 7)], HEADERS_TYPE),
    }
    if stamped:
        rows["timestamp"] = pa.array([NOON] * 4, pa.timestamp("us", "UTC"))
    write(options, rows, rows)

    found = proven(options)

    assert len(messages_of(kafka, small)) == 4
    assert len(messages_of(kafka, dead)) == 4
    assert {each.verdict for each in found} == {Verdict.MATCHES}
    assert sum(each.found_records for each in found) == 8


# ---- compaction

CLEANED_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}
WITHIN_S = 60


def later(broker: AnyKafka, topic: str) -> None:
    """Time goes by, and another application writes: the segment before is closed and may be cleaned."""
    if isinstance(broker, EmbeddedKafka):
        broker.advance(2_000)
    # The cleaner comes by the machine's clock; Apache Kafka closes segments by it, too.
    threading.Event().wait(0.3 if isinstance(broker, EmbeddedKafka) else 1.2)
    other = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    other.produce(topic, key=b"of another", value=b"x")
    assert other.flush(30) == 0


@pytest.fixture(params=["2", "1"], ids=["version2", "version1"])
def cleaning(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """A broker of its own whose cleaner comes often."""
    often = {"log.cleaner.backoff.ms": "20"}
    if request.config.getoption("--brokers") == "real":
        version = NEWEST_KAFKA if request.param == "2" else NEWEST_ZOOKEEPER_KAFKA
        with LocalKafka(version, config={**often, "log.initial.task.delay.ms": "100"}) as kafka:
            yield kafka
    else:
        with EmbeddedKafka(config={**often, "transaction.version": request.param}) as embedded:
            yield embedded


@pytest.mark.long
def test_records_and_markers_that_a_cleaner_removed_are_gone_and_nobody_is_accused(
    cleaning: AnyKafka,
) -> None:
    topic = topics_of(cleaning)(1, **CLEANED_SOON)
    options = options_for(cleaning, f"cleaned-{topic}", topic=topic)
    keys = [f"key {number}" for number in range(10)]
    for batch in range(3):
        write(options, {"key": keys, "value": [f"{batch} {key}" for key in keys]}, batch=batch)
        later(cleaning, topic)
    # Written, aborted, and written again.
    driver = driver_of(options)
    driver.start(3)
    plan = driver.plan(3)
    assert not isinstance(plan, SharedPlan)
    rows = pa.RecordBatch.from_pydict({"key": keys, "value": ["aborted"] * 10})
    driver.abandon(3, [write_slot(plan, 0, [rows])], "the test says so")
    later(cleaning, topic)
    write(options, {"key": keys, "value": [f"3 {key}" for key in keys]}, batch=3)
    cluster = Cluster.shared(options.client)
    decided = [each.decision for page in newest_first(cluster, options.ledger_topic, options.pipeline) for each in page]

    seen: set[tuple[int, Verdict]] = set()
    deadline = time.monotonic() + WITHIN_S
    while {(0, Verdict.GONE), (1, Verdict.GONE), (2, Verdict.GONE)} - seen or markers(cluster, topic) > 1:
        assert time.monotonic() < deadline, f"the cleaner did not come: {seen}"
        later(cleaning, topic)
        found = [(each, finding) for each in decided if each for finding in verify(cluster, each)]
        seen |= {(decision.batch_id, finding.verdict) for decision, finding in found}

    assert {verdict for batch, verdict in seen if batch < 3} <= {Verdict.GONE, Verdict.MATCHES}
    assert {verdict for batch, verdict in seen if batch == 3} == {Verdict.MATCHES}
    assert {message.value() for message in messages_of(cleaning, topic)} == {
        *(f"3 {key}".encode() for key in keys), b"x"
    }  # fmt: skip


def markers(cluster: Cluster, topic: str) -> int:
    """How many markers the log has, the emptied ones left out. A fetch answers from one segment only."""
    offset, found = 0, 0
    while batches := [info for info, _ in scan(read_raw(cluster, TopicPartition(topic, 0), offset).records)]:
        offset = batches[-1].last_offset + 1
        found += sum(info.control and info.count > 0 for info in batches)
    return found
