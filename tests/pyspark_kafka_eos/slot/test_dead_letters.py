"""Rows that cannot be written go to the dead-letter topic in the same transaction, judged by librdkafka. No Spark."""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message

from kafka_core.errors import InvalidRow, OptionsError, RecordTooLarge, UnknownTopic
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import RoutedTopic, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import HEADERS_TYPE
from pyspark_kafka_eos.slot.dead_letters import PREFIX
from pyspark_kafka_eos.slot.writer import write_slot
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

Read = Callable[..., list[Message]]
SMALL = {"max.message.bytes": "2000"}
NOON = dt.datetime(2026, 3, 4, 12, tzinfo=dt.timezone.utc)


@pytest.fixture
def read(kafka: AnyKafka) -> Read:
    """read(topic, isolation="read_committed"): every message, in the order of their values."""

    def messages(topic: str, isolation: str = "read_committed") -> list[Message]:
        return sorted(messages_of(kafka, topic, isolation), key=lambda message: message.value() or b"")

    return messages


def options_for(kafka: AnyKafka, pipeline: str, **more: str) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in more.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, "pipeline": pipeline, **named})


def write(options: SinkOptions, rows: dict[str, Any], batches: int = 1) -> tuple[CommitReport, Seal]:
    """One micro-batch of one slot, from the start of a run to its commit."""
    cluster = Cluster.shared(options.client)
    driver = PerTask(Run(cluster, options, "query"))
    assert driver.start(0) is None
    seal = seal_of(driver, rows, batches)
    return driver.commit(0, [seal], (), {}), seal


def seal_of(driver: PerTask, rows: dict[str, Any], batches: int = 1) -> Seal:
    table = pa.RecordBatch.from_pydict(rows)
    step = -(-table.num_rows // batches)
    pieces = [table.slice(start, step) for start in range(0, table.num_rows, step)]
    return write_slot(driver.plan(0), 0, pieces)


def reasons(message: Message) -> dict[str, str]:
    """What the dead letter says of itself, names without their prefix."""
    return {name.removeprefix(PREFIX): value.decode() for name, value in message.headers() if name.startswith(PREFIX)}


def own_headers(message: Message) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in message.headers() if not name.startswith(PREFIX)]


def test_each_kind_of_bad_row_becomes_a_dead_letter_and_the_good_ones_are_written(
    kafka: AnyKafka, topic: MakeTopic, read: Read
) -> None:
    good, small, dead = topic(), topic(**SMALL), topic(partitions=2)
    kinds: dict[str, dict[str, Any]] = {
        "a-good": {},
        "b-null-timestamp": {"timestamp": None},
        "c-no-topic": {"topic": None},
        "d-unknown-topic": {"topic": "never-made"},
        "e-illegal-topic": {"topic": "no/topic"},
        "f-null-header-key": {"headers": [{"key": "kept", "value": b"1"}, {"key": None, "value": b"2"}]},
        "g-bad-partition": {"partition": 4},
        "h-negative-partition": {"partition": -1},
        "i-too-large": {"topic": small, "key": b"k" * 2500},
        "j-good": {"topic": small, "partition": 3},
    }
    rows = [
        {"key": b"key", "topic": good, "partition": None, "headers": None, "timestamp": NOON, **row}
        for row in kinds.values()
    ]
    columns = {
        "key": pa.array([row["key"] for row in rows], pa.binary()),
        "value": pa.array(list(kinds), pa.string()),
        "headers": pa.array([row["headers"] for row in rows], HEADERS_TYPE),
        "topic": pa.array([row["topic"] for row in rows], pa.string()),
        "partition": pa.array([row["partition"] for row in rows], pa.int32()),
        "timestamp": pa.array([row["timestamp"] for row in rows], pa.timestamp("us", tz="UTC")),
    }

    report, _ = write(options_for(kafka, f"p-{good}", dead__letter__topic=dead), columns)

    assert [message.value() for message in read(good)] == [b"a-good"]
    assert [message.value() for message in read(small)] == [b"j-good"]
    buried = {message.value().decode(): message for message in read(dead)}
    assert list(buried) == [name for name in kinds if not name.endswith("good")]
    told = {name: (reasons(each)["class"], reasons(each)["message"]) for name, each in buried.items()}
    assert told == {
        "b-null-timestamp": ("InvalidRow", "the timestamp is null"),
        "c-no-topic": ("InvalidRow", "the topic column is null and the option topic is not set"),
        "d-unknown-topic": ("UnknownTopic", "the topic does not exist"),
        "e-illegal-topic": ("UnknownTopic", "the topic does not exist"),
        "f-null-header-key": ("InvalidRow", "a header has no key"),
        "g-bad-partition": ("InvalidRow", "the topic does not have this partition"),
        "h-negative-partition": ("InvalidRow", "the topic does not have this partition"),
        "i-too-large": ("RecordTooLarge", "the record is larger than its topic allows"),
    }
    assert reasons(buried["g-bad-partition"]) == {
        "class": "InvalidRow",
        "message": "the topic does not have this partition",
        "topic": good,
        "partition": "4",
        "timestamp_ms": str(int(NOON.timestamp() * 1000)),
        "pipeline": f"p-{good}",
        "batch": "0",
    }
    assert "topic" not in reasons(buried["c-no-topic"])
    assert "timestamp_ms" not in reasons(buried["b-null-timestamp"])
    assert int(reasons(buried["i-too-large"])["size_bytes"]) > 2500
    assert buried["i-too-large"].key() == b"k" * 2500
    assert own_headers(buried["f-null-header-key"]) == [("kept", b"1"), ("", b"2")]
    assert (report.records, report.dead_letters) == (10, 8)


def test_what_is_too_large_only_for_its_topic_keeps_key_value_and_headers(
    kafka: AnyKafka, topic: MakeTopic, read: Read
) -> None:
    small, dead = topic(**SMALL), topic()
    columns = {
        "key": pa.array([b"k"]),
        "value": pa.array([b"v" * 5000]),
        "headers": pa.array([[{"key": "h", "value": None}]], HEADERS_TYPE),
    }

    write(options_for(kafka, f"p-{small}", topic=small, dead__letter__topic=dead), columns)

    (letter,) = read(dead)
    assert (letter.key(), letter.value(), own_headers(letter)) == (b"k", b"v" * 5000, [("h", None)])
    assert read(small, "read_uncommitted") == []


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_the_dead_letter_topic_would_not_take_either_is_cut_and_says_so(
    kafka: AnyKafka, topic: MakeTopic, read: Read, compression: str
) -> None:
    small, dead = topic(**SMALL), topic(**{"max.message.bytes": "20000"})
    value, key = random.Random(1).randbytes(300_000), random.Random(2).randbytes(50_000)
    columns = {
        "key": pa.array([key, b"short", b"good"]),
        "value": pa.array([value, value, b"small"]),
        "headers": pa.array([[{"key": "h", "value": value}], [{"key": "h", "value": b"1"}], None], HEADERS_TYPE),
    }
    options = options_for(
        kafka, f"p-{small}", topic=small, dead__letter__topic=dead, kafka__compression__type=compression
    )

    report, _ = write(options, columns)

    assert report.dead_letters == 2
    assert [message.key() for message in read(small)] == [b"good"]
    letters = {reasons(each)["cut"]: each for each in read(dead)}
    assert set(letters) == {"headers,key,value", "value"}
    all_cut, value_cut = letters["headers,key,value"], letters["value"]
    assert own_headers(all_cut) == []
    assert key.startswith(all_cut.key())
    assert len(all_cut.key()) > 5_000
    assert (reasons(all_cut)["key_bytes"], reasons(all_cut)["value_bytes"]) == ("50000", "300000")
    assert (value_cut.key(), own_headers(value_cut)) == (b"short", [("h", b"1")])
    assert value.startswith(value_cut.value())
    assert len(value_cut.value()) > 15_000


def test_a_record_that_compression_makes_small_enough_is_no_dead_letter(
    kafka: AnyKafka, topic: MakeTopic, read: Read
) -> None:
    small, dead = topic(**SMALL), topic()
    columns = {"value": pa.array([b"v" * 100_000, random.Random(1).randbytes(3000), b"good"])}
    options = options_for(kafka, f"p-{small}", topic=small, dead__letter__topic=dead, kafka__compression__type="zstd")

    report, _ = write(options, columns)

    assert [len(message.value()) for message in read(small)] == [4, 100_000]
    assert [len(message.value()) for message in read(dead)] == [3000]
    assert report.dead_letters == 1


def test_bad_rows_of_many_batches_are_all_there_once_beside_the_good_ones(
    kafka: AnyKafka, topic: MakeTopic, read: Read
) -> None:
    good, dead = topic(), topic(partitions=3)
    number = range(9_000)
    columns = {
        "key": pa.array([b"%d" % each for each in number]),
        "value": pa.array([b"%05d" % each for each in number]),
        "partition": pa.array([9 if each % 3 == 0 else None for each in number], pa.int32()),
    }

    report, seal = write(options_for(kafka, f"p-{good}", topic=good, dead__letter__topic=dead), columns, 4)

    assert [int(each.value()) for each in read(good)] == [each for each in number if each % 3]
    assert [int(each.value()) for each in read(dead)] == [each for each in number if each % 3 == 0]
    assert (report.records, report.dead_letters, seal.dead_letters) == (9_000, 3_000, 3_000)


def test_a_replay_may_have_a_bad_row_in_another_slot(kafka: AnyKafka, topic: MakeTopic) -> None:
    out, dead = topic(), topic()
    driver = PerTask(
        Run(
            Cluster.shared(options_for(kafka, "p").client),
            options_for(kafka, f"p-{out}", topic=out, dead__letter__topic=dead),
            "query",
        )
    )
    driver.start(0)
    row = pa.RecordBatch.from_pydict({"value": ["a"], "partition": pa.array([99], pa.int32())})

    first, second = (write_slot(driver.plan(0), slot, [row]) for slot in (0, 1))

    assert first.dead_letters == second.dead_letters == 1
    assert (first.records, first.digest) == (second.records, second.digest)


def test_a_slot_of_bad_rows_only_writes_dead_letters_only(kafka: AnyKafka, topic: MakeTopic, read: Read) -> None:
    good, dead = topic(), topic()
    columns = {"value": pa.array(["a", "b"]), "topic": pa.array([None, "no/topic"], pa.string())}

    report, _ = write(options_for(kafka, f"p-{good}", dead__letter__topic=dead), columns)

    assert [message.value() for message in read(dead)] == [b"a", b"b"]
    assert report.dead_letters == report.records == 2


def test_dead_letters_of_a_batch_that_is_given_up_are_not_visible(
    kafka: AnyKafka, topic: MakeTopic, read: Read
) -> None:
    good, dead = topic(), topic()
    options = options_for(kafka, f"p-{good}", topic=good, dead__letter__topic=dead)
    driver = PerTask(Run(Cluster.shared(options.client), options, "query"))
    driver.start(0)
    seal = seal_of(driver, {"value": pa.array(["a"]), "partition": pa.array([7], pa.int32())})
    assert (seal.records, seal.dead_letters) == (1, 1)

    driver.abandon(0, [seal], "a test")

    assert len(read(dead, "read_uncommitted")) == 1
    assert read(dead) == []


def test_the_same_rows_give_the_same_count_and_digest_when_they_are_written_again(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    good, dead = topic(**SMALL), topic()
    options = options_for(kafka, f"p-{good}", topic=good, dead__letter__topic=dead)
    driver = PerTask(Run(Cluster.shared(options.client), options, "query"))
    driver.start(0)
    rows = {
        "value": pa.array([b"good", b"v" * 9000, b"bad"]),
        "timestamp": pa.array([NOON, NOON, None], pa.timestamp("us", tz="UTC")),
    }

    first, again = seal_of(driver, rows), seal_of(driver, rows)

    assert (first.records, first.dead_letters, first.digest) == (3, 2, again.digest)
    assert first.identity != again.identity


def test_a_seal_names_every_topic_that_it_wrote_to_as_it_was_then(kafka: AnyKafka, topic: MakeTopic) -> None:
    good, unused, dead = topic(), topic(), topic()
    options = options_for(kafka, f"p-{good}", dead__letter__topic=dead)
    cluster = Cluster.shared(options.client)
    driver = PerTask(Run(cluster, options, "query"))
    driver.start(0)

    # The row that names `unused` names no partition of it, so nothing is written there.
    seal = seal_of(driver, {"value": ["a", "b"], "topic": [good, unused], "partition": pa.array([0, 99], pa.int32())})

    known = {name: cluster.topic(name) for name in (good, dead)}
    assert all(each.topic_id for each in known.values())
    assert seal.topics == tuple(
        RoutedTopic(name, known[name].topic_id, len(known[name].leaders)) for name in sorted(known)
    )


def test_without_a_dead_letter_topic_a_bad_row_still_fails_the_slot(
    kafka: AnyKafka, topic: MakeTopic, read: Read
) -> None:
    good = topic(**SMALL)
    options = options_for(kafka, f"p-{good}", topic=good)

    with pytest.raises(RecordTooLarge):
        write(options, {"value": pa.array([b"good", b"v" * 3000])})
    with pytest.raises(InvalidRow, match="partition"):
        write(options, {"value": pa.array([b"good"]), "partition": pa.array([9], pa.int32())})

    assert read(good) == []


def test_a_dead_letter_topic_that_is_not_there_or_takes_too_little_is_refused_at_the_start(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    good, tiny = topic(), topic(**SMALL)
    columns = {"value": pa.array([b"good"])}

    with pytest.raises(UnknownTopic, match="no-such-dead-letters"):
        write(options_for(kafka, f"p-{good}", topic=good, dead__letter__topic="no-such-dead-letters"), columns)
    with pytest.raises(OptionsError, match=r"max\.message\.bytes=2000"):
        write(options_for(kafka, f"p-{good}", topic=good, dead__letter__topic=tiny), columns)


def test_a_row_cannot_hide_a_missing_topic_of_the_option(kafka: AnyKafka, topic: MakeTopic) -> None:
    """The option names the query's own topic: when it is gone, no row is to blame."""
    good, dead = topic(), topic()
    options = options_for(kafka, f"p-{good}", topic=good, dead__letter__topic=dead)
    driver = PerTask(Run(Cluster.shared(options.client), options, "query"))
    plan = driver.plan(0)
    with pytest.raises(UnknownTopic, match="gone-since"):
        write_slot(replace(plan, topic="gone-since"), 0, [pa.RecordBatch.from_pydict({"value": ["a"]})])


def test_hundreds_of_unknown_topics_take_no_longer_than_a_few(kafka: AnyKafka, topic: MakeTopic, read: Read) -> None:
    good, dead = topic(), topic()
    names = [f"unknown-{number}" for number in range(300)]
    columns = {"value": pa.array(names), "topic": pa.array(names)}
    began = time.monotonic()

    write(options_for(kafka, f"p-{good}", dead__letter__topic=dead), columns)

    # Each alone may take the two seconds that a new topic is waited for.
    assert time.monotonic() - began < 60
    assert len(read(dead)) == 300
