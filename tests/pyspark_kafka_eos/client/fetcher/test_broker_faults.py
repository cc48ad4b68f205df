"""The reader on a broker that is slow, forgetful or has lost records: every record once, or an error that says which
are gone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import BrokerUnavailable, DataLoss
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.group_offsets import commit_group_offsets
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import LogMark, Offsets
from pyspark_kafka_eos.model import placed
from pyspark_kafka_eos.records import scan
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.client.fetcher.conftest import Writers, records_of, write
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

Connect = Callable[[AnyKafka], Cluster]
RECORDS = 200


@pytest.fixture
def broker(kafka: EmbeddedKafka) -> EmbeddedKafka:
    """The session's broker; this file's tests set faults for topics of their own."""
    return kafka


def filled(broker: EmbeddedKafka, name: str, partition: int = 0) -> TopicPartition:
    """A partition with RECORDS records in batches of five."""
    plain = Writers(broker.bootstrap_servers).plain()
    for first in range(0, RECORDS, 5):
        write(plain, name, partition, [{"value": b"%d" % number} for number in range(first, first + 5)])
    return TopicPartition(name, partition)


def offsets_of(fetcher: Fetcher, *ranges: OffsetRange) -> list[int]:
    """The offsets that come out, in their order."""
    return [record[1] for record in records_of(fetcher.read_ranges(ranges))]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize(("action", "batches"), [("empty", 0), ("fewer", 1), ("torn", 1), ("torn", 0)])
def test_answers_that_hold_less_than_they_could_take_no_record_away(
    broker: EmbeddedKafka, topic: MakeTopic, connect: Connect, action: str, batches: int, isolation: str
) -> None:
    where = filled(broker, topic(1))
    fault = broker.fault_in_answer("Fetch", action, topic=where.topic, times=7, batches=batches)

    found = offsets_of(Fetcher(connect(broker), isolation), OffsetRange(where, 0, RECORDS))

    assert fault.fired == 7
    assert found == list(range(RECORDS))


@pytest.mark.parametrize("delay_ms", [0, 300, 1_200, 5_000])
def test_every_record_of_a_store_that_answers_late_is_read(
    broker: EmbeddedKafka, topic: MakeTopic, connect: Connect, delay_ms: int
) -> None:
    where = filled(broker, topic(1))
    # The last tenth is on the broker's own disk, as of a tiered topic.
    below = RECORDS - RECORDS // 10
    fault = broker.fault_in_answer("Fetch", "slow-store", topic=where.topic, below=below, delay_ms=delay_ms)

    found = offsets_of(Fetcher(connect(broker)), OffsetRange(where, 0, RECORDS))

    assert (fault.fired > 0) is (delay_ms > 500)  # so long the broker waits by itself
    assert found == list(range(RECORDS))


def test_a_store_that_never_answers_ends_in_an_error_with_the_offset(
    broker: EmbeddedKafka, topic: MakeTopic, connect: Connect
) -> None:
    where = filled(broker, topic(1))
    fault = broker.fault_in_answer("Fetch", "slow-store", topic=where.topic, below=RECORDS, delay_ms=3_600_000)

    with pytest.raises(BrokerUnavailable, match="remote store") as caught:
        offsets_of(Fetcher(connect(broker), stall_timeout_ms=1_500), OffsetRange(where, 0, RECORDS))

    assert fault.fired > 0
    assert caught.value.facts["offset"] == 0


@pytest.mark.parametrize("action", ["leave-out", "other-partition"])
@pytest.mark.parametrize("api", ["Fetch", "Metadata", "ListOffsets", "OffsetForLeaderEpoch"])
def test_answers_that_lack_a_partition_take_no_record_away(
    broker: EmbeddedKafka, topic: MakeTopic, connect: Connect, api: str, action: str
) -> None:
    name = topic(2)
    first, second = filled(broker, name), filled(broker, name, 1)
    cluster = connect(broker)
    fault = broker.fault_in_answer(api, action, topic=name, times=3)

    ends = Offsets(cluster).ends([first, second])
    broker.elect_leader(name, 1)
    ranges = [OffsetRange(where, 0, ends[where].offset, ends[where].log) for where in (first, second)]
    found = records_of(Fetcher(cluster).read_ranges(ranges))

    assert fault.fired == 3
    assert [record[:2] for record in found] == [(part, at) for part in (0, 1) for at in range(RECORDS)]


@pytest.mark.parametrize("action", ["leave-out", "other-partition", "empty", "torn"])
def test_a_raw_reader_asks_again_where_an_answer_has_less(
    broker: EmbeddedKafka, topic: MakeTopic, connect: Connect, action: str
) -> None:
    where = filled(broker, topic(2), 1)
    fault = broker.fault_in_answer("Fetch", action, topic=where.topic, times=3, batches=0)

    read = read_raw(connect(broker), where, 0)

    assert fault.fired == 3
    assert next(scan(read.records))[0].base_offset == 0


@pytest.mark.parametrize("action", ["leave-out", "other-partition"])
def test_offsets_of_a_group_are_committed_when_every_partition_is_answered(
    broker: EmbeddedKafka, topic: MakeTopic, connect: Connect, action: str
) -> None:
    name = topic(2)
    offsets = {TopicPartition(name, 0): 3, TopicPartition(name, 1): 4}
    cluster = connect(broker)
    fault = broker.fault_in_answer("OffsetCommit", action, topic=name, times=2)

    commit_group_offsets(cluster, f"{name}-group", offsets)

    assert fault.fired == 2
    assert Offsets(cluster).committed(f"{name}-group", offsets) == placed(offsets)


def test_a_clean_election_while_a_range_is_read_costs_no_record(
    broker: EmbeddedKafka, topic: MakeTopic, connect: Connect
) -> None:
    where = filled(broker, topic(1))
    batches = Fetcher(connect(broker), fetch_bytes=500).read_ranges([OffsetRange(where, 0, RECORDS)])
    first = records_of(iter([next(batches)]))

    assert broker.elect_leader(where.topic, 0) == 1

    found = first + records_of(batches)
    assert [record[1] for record in found] == list(range(RECORDS))


def test_records_that_an_election_took_away_are_lost_data_also_where_others_took_their_offsets(
    broker: EmbeddedKafka, topic: MakeTopic, connect: Connect
) -> None:
    where = filled(broker, topic(1))
    cluster = connect(broker)
    end = Offsets(cluster).ends([where])[where]
    assert end.offset == RECORDS
    assert end.log == LogMark(cluster.topic_id(where.topic), 0)
    broker.elect_leader(where.topic, 0, lost_from=100)
    filled(broker, where.topic)
    planned = OffsetRange(where, 50, RECORDS, end.log)

    with pytest.raises(DataLoss, match="unclean election") as caught:
        offsets_of(Fetcher(cluster), planned)
    assert caught.value.facts["cut"] == 100

    # What took the place of the lost ones is the next range's.
    lenient = Fetcher(cluster, fail_on_data_loss=False)
    assert offsets_of(lenient, planned) == list(range(50, 100))


def test_an_election_that_cuts_what_was_read_is_noticed_without_any_plan(
    broker: EmbeddedKafka, topic: MakeTopic, connect: Connect
) -> None:
    where = filled(broker, topic(1))
    batches = Fetcher(connect(broker), fetch_bytes=500).read_ranges([OffsetRange(where, 0, RECORDS)])
    read = 0
    while read < 100:
        read += next(batches).num_rows
    broker.elect_leader(where.topic, 0, lost_from=20)
    filled(broker, where.topic)

    with pytest.raises(DataLoss, match="unclean election"):
        list(batches)
