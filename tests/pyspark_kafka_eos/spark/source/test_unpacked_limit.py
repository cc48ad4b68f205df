"""One limit for both sides: what the sink writes the source reads, and a batch above it is refused in words of its
own.
"""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from kafka_core.errors import BatchTooLarge, RecordTooLarge
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import WritePlan
from pyspark_kafka_eos.slot.writer import write_slot
from pyspark_kafka_eos.spark.source.source import read_range
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.pyspark_kafka_eos.spark.source.test_reader import reader_of
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

SIZE = 3_000_000
"""Some KB on the wire."""


def read(kafka: AnyKafka, topic: str, **options: object) -> list[int]:
    """The sizes of the values that a query reads."""
    reader = reader_of(kafka, topic, startingOffsets="earliest", **options)
    (planned,) = reader.partitions(reader.initialOffset(), reader.latestOffset(reader.initialOffset(), None))
    table = pa.Table.from_batches(read_range(reader.options, planned.offsets))
    return [len(value.as_buffer()) for value in table.column("value")]


def test_another_clients_large_value_is_read_up_to_the_option(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap_servers, "compression.type": "zstd", "message.max.bytes": 2 * SIZE, "log_level": "0",
    })  # fmt: skip
    producer.produce(name, bytes(SIZE))
    assert producer.flush(30) == 0

    assert read(kafka, name) == [SIZE]
    with pytest.raises(BatchTooLarge, match=rf"^{name}-0: .* more than {SIZE} bytes .* max\.unpacked\.bytes") as raised:
        read(kafka, name, **{"max.unpacked.bytes": SIZE})
    assert "damaged" not in str(raised.value) and "no record of this batch was used" in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)) == raised.value


def test_the_sink_refuses_what_the_source_would_not_read(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "pipeline": f"p-{name}",
             "kafka.compression.type": "zstd"}  # fmt: skip
    small, default = (SinkOptions.parse({**given, **more}) for more in ({"max.unpacked.bytes": SIZE}, {}))

    with pytest.raises(RecordTooLarge, match=rf"more than {SIZE} bytes .* max\.unpacked\.bytes"):
        write_slot(WritePlan.for_batch(small, 0, None, transaction_timeout_ms=60_000), 0, arrow_batches(["x" * SIZE]))
    assert (
        write_slot(
            WritePlan.for_batch(default, 0, None, transaction_timeout_ms=60_000),
            0,
            arrow_batches(["x" * SIZE]),
        ).records
        == 1
    )
