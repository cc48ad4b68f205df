"""Apache Kafka elects a leader that lacks acknowledged records: a range that was planned for them, or half read, is
lost data.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.real import LocalKafka
from kafka_core.errors import DataLoss
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.model import ClientSettings
from tests.pyspark_kafka_eos.client.fetcher.conftest import Writers, records_of, write

pytestmark = [pytest.mark.kafka, pytest.mark.real, pytest.mark.slow]

WHERE = TopicPartition("t", 0)


def put(servers: str, batches: int) -> None:
    """So many batches of ten records."""
    plain = Writers(servers).plain()
    for _ in range(batches):
        write(plain, WHERE.topic, WHERE.partition, [{"value": b"x" * 100}] * 10)


def make_topic(servers: str) -> None:
    """A partition on the brokers 0 and 1, led by 0, that may lose records rather than be without a leader."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic(WHERE.topic, num_partitions=1, replica_assignment=[[0, 1]], config=settings)
    admin.create_topics([topic])[WHERE.topic].result(60)


def test_records_that_the_new_leader_lacks_are_missed_though_others_took_their_offsets() -> None:
    with LocalKafka(brokers=3, fast_start=True) as kafka:
        servers = kafka.bootstrap_servers
        make_topic(servers)
        put(servers, 10)
        cluster = Cluster(ClientSettings(tuple(servers.split(",")), request_timeout_ms=5_000))
        try:
            # The second replica falls behind, and comes back when the only one that has everything is gone.
            kafka.kill(1)
            put(servers, 10)
            end = Offsets(cluster).ends([WHERE])[WHERE]
            assert end.offset == 200
            batches = Fetcher(cluster, fetch_bytes=1_500).read_ranges([OffsetRange(WHERE, 0, 200)])
            read = 0
            while read <= 120:
                read += next(batches).num_rows
            kafka.kill(0)
            kafka.restart(1)
            put(servers, 30)
            assert Offsets(cluster).latest([WHERE])[WHERE] == 400

            with pytest.raises(DataLoss, match="unclean election"):
                list(batches)
            with pytest.raises(DataLoss, match="unclean election") as caught:
                list(Fetcher(cluster).read_ranges([OffsetRange(WHERE, 50, 200, end.log)]))

            assert caught.value.facts["cut"] == 100
            # What took the place of the lost ones is the next range's.
            lenient = Fetcher(cluster, fail_on_data_loss=False)
            assert len(records_of(lenient.read_ranges([OffsetRange(WHERE, 50, 200, end.log)]))) == 50
            assert len(records_of(lenient.read_ranges([OffsetRange(WHERE, 100, 400)]))) == 300
        finally:
            cluster.close()
