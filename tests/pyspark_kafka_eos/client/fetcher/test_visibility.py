"""Which records a range gives: the same as librdkafka's consumer, for every past and every cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from kafka_core.errors import BrokerUnavailable
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.model import ClientSettings
from tests.conftest import MakeTopic, topics_of
from tests.pyspark_kafka_eos.client.fetcher.conftest import (
    Record,
    Writers,
    end,
    judged,
    past,
    records_of,
    some_records,
    write,
)
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

Connect = Callable[[AnyKafka], Cluster]
PARTITIONS = 2
SMALL_FETCH_BYTES = 700
"""So little that a past takes many answers and transactions lie across them."""


def whole(cluster: Cluster, topic: str, isolation: str) -> list[OffsetRange]:
    """The ranges that hold everything of a topic that this isolation level may read."""
    offsets = Offsets(cluster)
    partitions = offsets.partitions_of([topic])
    first, last = offsets.earliest(partitions), offsets.latest(partitions, isolation)
    return [OffsetRange(where, first[where], last[where]) for where in partitions]


def ours(cluster: Cluster, ranges: Iterable[OffsetRange], isolation: str, fetch_bytes: int) -> list[Record]:
    """What our fetcher reads of the ranges."""
    fetcher = Fetcher(cluster, isolation, include_headers=True, fetch_bytes=fetch_bytes)
    return records_of(fetcher.read_ranges(ranges))


@pytest.mark.parametrize(
    ("seed", "compression"),
    [(0, "none"), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd"), (5, "none"), (6, "none"), (7, "lz4")],
)
def test_every_past_reads_as_librdkafka_reads_it(
    kafka: AnyKafka, topic: MakeTopic, connect: Connect, seed: int, compression: str
) -> None:
    name = topic(PARTITIONS, **{"message.timestamp.type": ["CreateTime", "LogAppendTime"][seed % 2]})
    past(Writers(kafka.bootstrap_servers, compression), name, PARTITIONS, seed)
    cluster = connect(kafka)

    for isolation in ("read_committed", "read_uncommitted"):
        expected = judged(kafka.bootstrap_servers, name, PARTITIONS, isolation)
        assert len(expected) > 10
        for fetch_bytes in (SMALL_FETCH_BYTES, 2**20):
            assert ours(cluster, whole(cluster, name, isolation), isolation, fetch_bytes) == expected


def test_a_past_in_transaction_version_1_reads_as_librdkafka_reads_it(kafka_zk: AnyKafka, connect: Connect) -> None:
    name = topics_of(kafka_zk)(PARTITIONS)
    past(Writers(kafka_zk.bootstrap_servers), name, PARTITIONS, seed=11)
    cluster = connect(kafka_zk)

    expected = judged(kafka_zk.bootstrap_servers, name, PARTITIONS, "read_committed")

    found = ours(cluster, whole(cluster, name, "read_committed"), "read_committed", SMALL_FETCH_BYTES)
    assert found == expected


def test_wherever_a_past_is_cut_in_two_ranges_they_end_and_give_each_record_once(
    kafka: AnyKafka, topic: MakeTopic, connect: Connect
) -> None:
    name = topic(1)
    past(Writers(kafka.bootstrap_servers), name, 1, seed=21, steps=12)
    cluster = connect(kafka)
    (everything,) = whole(cluster, name, "read_committed")
    expected = judged(kafka.bootstrap_servers, name, 1, "read_committed")

    for cut in range(everything.start, everything.end + 1):
        first = ours(cluster, [OffsetRange(everything.where, 0, cut)], "read_committed", 2**20)
        second = ours(cluster, [OffsetRange(everything.where, cut, everything.end)], "read_committed", 2**20)
        assert first == [record for record in expected if record[1] < cut]
        assert first + second == expected


def test_a_range_of_aborted_records_and_markers_is_empty(kafka: AnyKafka, topic: MakeTopic, connect: Connect) -> None:
    name = topic(1)
    producer = Writers(kafka.bootstrap_servers).transactional(f"{name}.aborts")
    for _ in range(3):
        producer.begin_transaction()
        write(producer, name, 0, [{"value": b"never"}] * 5)
        end(producer, commit=False)
    cluster = connect(kafka)

    (everything,) = whole(cluster, name, "read_committed")

    assert everything.end == 18  # three times five records and a marker
    assert ours(cluster, [everything], "read_committed", SMALL_FETCH_BYTES) == []
    assert len(ours(cluster, [everything], "read_uncommitted", SMALL_FETCH_BYTES)) == 15


def test_nothing_behind_the_last_stable_offset_is_read_until_its_transaction_ends(
    kafka: AnyKafka, topic: MakeTopic, connect: Connect
) -> None:
    name = topic(1)
    where = TopicPartition(name, 0)
    writers = Writers(kafka.bootstrap_servers)
    producer = writers.transactional(f"{name}.open")
    write(writers.plain(), name, 0, [{"value": b"before"}] * 2)
    producer.begin_transaction()
    write(producer, name, 0, [{"value": b"open"}])
    write(writers.plain(), name, 0, [{"value": b"after"}] * 3)
    cluster = connect(kafka)
    offsets = Offsets(cluster)
    impatient = Fetcher(cluster, stall_timeout_ms=400)

    assert offsets.latest([where]) == {where: 2}
    assert offsets.latest([where], "read_uncommitted") == {where: 6}
    batches = impatient.read_ranges([OffsetRange(where, 0, 6)])
    assert next(batches).column("value").to_pylist() == [b"before"] * 2
    with pytest.raises(BrokerUnavailable, match="last stable offset is 2"):
        next(batches)

    end(producer, commit=True)
    rows = [record[3] for record in records_of(impatient.read_ranges([OffsetRange(where, 0, 6)]))]
    assert rows == [b"before", b"before", b"open", b"after", b"after", b"after"]


def test_a_record_larger_than_what_is_fetched_at_once_is_read(
    kafka: AnyKafka, topic: MakeTopic, connect: Connect
) -> None:
    name = topic(2)
    plain = Writers(kafka.bootstrap_servers).plain()
    write(plain, name, 0, [{"value": b"x" * 500_000}, {"value": b"y"}])
    write(plain, name, 1, [{"value": b"z" * 300_000}])
    cluster = connect(kafka)

    found = ours(cluster, whole(cluster, name, "read_committed"), "read_committed", 1000)

    assert [len(record[3] or b"") for record in found] == [500_000, 1, 300_000]


def test_headers_come_only_when_asked_for(kafka: AnyKafka, topic: MakeTopic, connect: Connect) -> None:
    name = topic(1)
    write(Writers(kafka.bootstrap_servers).plain(), name, 0, some_records(random.Random(5), 20))
    cluster = connect(kafka)
    ranges = whole(cluster, name, "read_committed")

    (without,) = Fetcher(cluster).read_ranges(ranges)
    (with_headers,) = Fetcher(cluster, include_headers=True).read_ranges(ranges)

    assert "headers" not in without.schema.names
    assert with_headers.drop_columns(["headers"]).equals(without)
    assert with_headers.column("headers").null_count not in (0, 20)


def test_an_empty_range_asks_nothing_of_anybody(connect: Connect, kafka: AnyKafka) -> None:
    nowhere = TopicPartition("no-such-topic", 0)

    assert list(Fetcher(connect(kafka)).read_ranges([OffsetRange(nowhere, 7, 7)])) == []


def test_a_time_that_no_timestamp_can_hold_is_the_furthest_and_is_logged(
    kafka: AnyKafka, topic: MakeTopic, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    furthest_ms = (2**63 - 1) // 1000
    values = [(b"within", furthest_ms), (b"beyond", furthest_ms + 1), (b"far beyond", 2**63 - 1)]
    records: list[dict[str, object]] = [{"value": value, "timestamp": time_ms} for value, time_ms in values]
    write(Writers(kafka.bootstrap_servers).plain(), name, 0, records)
    cluster = connect(kafka)

    fetcher = Fetcher(cluster, "read_committed", include_headers=False, fetch_bytes=2**20)
    found = list(fetcher.read_ranges(whole(cluster, name, "read_committed")))

    times = [time_us for batch in found for time_us in batch.column("timestamp").cast("int64").to_pylist()]
    assert times == [furthest_ms * 1000] * 3
    assert "2 timestamps are out of range and replaced by the nearest possible one" in caplog.text


def test_an_answer_that_the_loop_has_lost_ends_the_read_with_an_error(
    kafka: AnyKafka, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(1)
    write(Writers(kafka.bootstrap_servers).plain(), name, 0, some_records(random.Random(0), 3))
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,), request_timeout_ms=500))
    try:
        ranges = whole(cluster, name, "read_committed")
        lost: list[object] = []
        monkeypatch.setattr(cluster.network, "send_on_loop", lambda *asked: lost.append(asked))

        with pytest.raises(BrokerUnavailable, match="neither got an answer nor timed out"):
            ours(cluster, ranges, "read_committed", 2**20)
    finally:
        cluster.close()

    assert len(lost) == 1
