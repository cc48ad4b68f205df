"""The figures of docs/sizing.md are those that the code's constants, a real decision and the benchmark give."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from benchmarks.memory import LIMIT_MB
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import PARTITIONS, SETTINGS, Ledger
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.routing import SECTIONS_BYTES, SMALLEST_SECTION_BYTES
from tests.docs import figures
from tests.pyspark_kafka_eos.cli.cli_tools import committed, name_of
from tests.pyspark_kafka_eos.commit.judge import ROWS
from tests.pyspark_kafka_eos.slot.test_routing import Topics, plan, router
from tests.support.brokers import AnyKafka

LEDGER = "exactly-once-ledger"


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, blocks in figures.PAGES.items() for name in blocks])
def test_the_figures_of_a_page_are_those_of_the_code_and_of_the_newest_run(page: Path, name: str) -> None:
    assert figures.current(page, name) == figures.PAGES[page][name](), "run: python -m tests.docs.figures"


def test_the_page_has_every_block_and_no_other_figures_of_the_code() -> None:
    text = figures.PAGE.read_text(encoding="utf-8")
    assert re.findall(r"<!-- sizing (\w+):", text) == list(figures.BLOCKS)
    # The sizes in the sentences.
    assert f"equal share of\n  {SECTIONS_BYTES // figures.MIB} MiB" in text
    assert f"no share is below {SMALLEST_SECTION_BYTES // 1024} KiB" in text
    first_smaller, first_growing = SECTIONS_BYTES // figures.MIB, SECTIONS_BYTES // SMALLEST_SECTION_BYTES
    assert f"Beyond {first_smaller} partitions" in text and f"beyond {first_growing:,} the sum grows" in text
    assert f"({int(SETTINGS['max.message.bytes']) // figures.MIB} MiB where the connector has made the" in text
    assert f"holds up to\n{int(SETTINGS['segment.bytes']) // figures.MIB} MiB of older decisions" in text


def test_the_limits_that_the_page_names_are_those_of_the_alert_and_of_the_benchmark() -> None:
    text = figures.PAGE.read_text(encoding="utf-8")
    rules = (figures.ROOT / "docs" / "prometheus-alerts.yaml").read_text(encoding="utf-8")
    assert "kafka_eos_transaction_left_seconds < 60" in rules and "less than a minute left" in text
    assert f"stays under {LIMIT_MB} MB" in text


def test_the_page_has_no_latency_of_the_commit_as_long_as_the_results_have_none() -> None:
    empty = json.loads(figures.RESULTS.read_text(encoding="utf-8"))["commit_latency"] == []
    assert empty == ("`commit_latency` is empty in that run" in figures.PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("partitions", [24, 64, 200, 1000])
def test_a_section_of_a_task_is_as_large_as_the_page_computes(partitions: int) -> None:
    topics = Topics({"out": partitions})
    routed = router(topics, plan("out", batch_bytes=1_048_576))
    rows = 3 * figures.section_bytes(partitions) // 1000
    every = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["x" * 1000] * rows),
            "partition": pa.array(np.zeros(rows, dtype=np.int32)),
        }
    )
    sizes = [len(section.buffer) for section in routed.pack(every)]

    assert sizes and max(sizes) <= figures.section_bytes(partitions)
    # A bound that is never nearly reached would say nothing.
    assert max(sizes) > 0.9 * figures.section_bytes(partitions)


@pytest.mark.kafka
def test_a_real_decision_has_the_size_that_the_page_computes(kafka: AnyKafka) -> None:
    settings = committed(kafka)
    name = name_of(settings)
    cluster = Cluster.shared(SinkOptions.parse(settings["options"]).client)
    real = Ledger(cluster, LEDGER, name).newest(settle=True)
    assert real is not None
    value = _value_in_the_log(kafka, name)

    assert figures.decision_bytes(real)[0] == len(value)
    assert Decision.from_bytes(value) == real
    parts = sum(len(seal.partitions) for seal in real.seals)
    assert len(real.seals) == len(ROWS) and parts >= len(ROWS)
    # The computed decision has the real one's form: a part of a task differs by the lengths of names and numbers alone.
    topic = str(settings["options"]["topic"])
    computed = figures.decision(len(real.seals), round(parts / len(real.seals)))
    assert _of_a_part(computed, "clean-orders", "orders.clean") == pytest.approx(_of_a_part(real, name, topic), rel=0.2)


def _of_a_part(made: Decision, pipeline: str, topic: str) -> float:
    """Bytes for each partition of a task, without the names."""
    body = json.loads(made.to_bytes())
    text = json.dumps(body["seals"], separators=(",", ":")).replace(pipeline, "").replace(topic, "")
    return len(text) / sum(len(seal.partitions) for seal in made.seals)


def _value_in_the_log(kafka: AnyKafka, pipeline: str) -> bytes:
    """The newest record under a pipeline's key, read by another client."""
    reader = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "sizing", "log_level": 0})
    try:
        reader.assign([TopicPartition(LEDGER, number, 0) for number in range(PARTITIONS)])
        found = None
        while found is None:
            message = reader.poll(30)
            assert message is not None, "the ledger has no decision of this pipeline"
            if message.error() is None and message.key() == pipeline.encode():
                found = message.value()
        return bytes(found)
    finally:
        reader.close()
