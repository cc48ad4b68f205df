"""kafka.compression.*.level reaches the batches that a task sends, and the broker keeps and serves them as they are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import WritePlan
from pyspark_kafka_eos.slot.writer import write_slot
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

ROWS = [f"{number}: {number * 7919 % 1009} of the orders of the day" for number in range(4_000)]


def sent(broker: AnyKafka, topic: str, **level: str) -> int:
    """Bytes in the log after a task has written the rows without transactions."""
    given: dict[str, Any] = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": topic,
        "delivery.guarantee": "at-least-once",
        "kafka.compression.type": "zstd",
        **{f"kafka.compression.zstd.{name}": value for name, value in level.items()},
    }
    options = SinkOptions.parse(given)
    rows = pa.RecordBatch.from_pydict({"value": pa.array(ROWS, pa.string())})
    write_slot(WritePlan.for_batch(options, 0, None, transaction_timeout_ms=60_000), 0, iter([rows]))
    values = [message.value().decode() for message in messages_of(broker, topic)]
    assert sorted(values) == sorted(ROWS)
    cluster = Cluster.shared(options.client)
    return len(read_raw(cluster, TopicPartition(topic, 0), 0, max_bytes=50_000_000).records)


def test_a_higher_level_sends_less_and_every_client_reads_it(kafka: AnyKafka, topic: MakeTopic) -> None:
    fast, default, best = (sent(kafka, topic(1), **level) for level in ({"level": "-100"}, {}, {"level": "22"}))

    assert best < default < fast
