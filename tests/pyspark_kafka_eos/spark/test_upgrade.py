"""A checkpoint of an earlier version in the middle of a batch that it had decided: this version ends it and goes on."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import functions as sf

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.decision import write_decision
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import WritePlan
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.pyspark_kafka_eos.commit.test_golden import AsItWas
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

GOLDEN = Path(__file__).parent / "golden"
TIMEOUT_MS = 60_000


def decide_as_it_was(kafka: AnyKafka, options: SinkOptions, value: str) -> None:
    """What the earlier version had done of batch 1: two slots are sealed and the batch is decided, nothing is ended."""
    cluster = Cluster.shared(options.client)
    ledger = Ledger(cluster, options.ledger_topic, options.pipeline)
    ledger.prepare()
    body = json.loads(value)
    plan = WritePlan.of(options, 1, None, transaction_timeout_ms=TIMEOUT_MS)
    # Which rows a slot has is Spark's choice; what counts is how many, and that they are the batch's.
    rows = iter([str(number) for number in range(10, 20)])
    topics = set()
    for told in body["seals"]:
        values = [next(rows) for _ in range(told["records"])]
        seal = write_slot(plan, told["slot"], arrow_batches(values))
        topics |= set(seal.topics)
        mine = seal.to_json()
        assert mine["transactional_id"] == told["transactional_id"]
        told["producer"], told["partitions"], told["transaction_version"] = (
            mine["producer"],
            mine["partitions"],
            mine["transaction_version"],
        )
    body["topics"] = [each.to_json() for each in sorted(topics)]
    decision = AsItWas(**vars(Decision.from_bytes(json.dumps(body).encode())))
    object.__setattr__(decision, "value", json.dumps(body, separators=(",", ":")).encode())
    producer = Producer(
        cluster,
        f"{options.pipeline}.driver",
        transaction_timeout_ms=TIMEOUT_MS,
        delivery_timeout_ms=TIMEOUT_MS,
    )
    producer.initialize()
    write_decision(producer, ledger, decision, options.offsets_group, {})
    producer.commit()


def test_an_upgrade_between_decision_and_commit_log_ends_the_batch_and_goes_on(
    run_query: Callable[..., Any], read_topic: Callable[..., Any], kafka: AnyKafka, tmp_path: Path
) -> None:
    shutil.copytree(GOLDEN / "checkpoint", tmp_path / "checkpoint")
    options = {"pipeline": "golden-stream", "topic": "golden-stream-output"}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(options["topic"], num_partitions=2)])[options["topic"]].result(30)
    decided = json.loads((GOLDEN / "0.1.0-decisions.json").read_text())[-1]["value"]
    assert json.loads(decided)["batch_id"] == 1
    parsed = SinkOptions.parse({**options, "kafka.bootstrap.servers": kafka.bootstrap_servers})
    decide_as_it_was(kafka, parsed, decided)

    outcome = run_query(
        lambda rows: rows.select(sf.col("value").cast("string").alias("value")),
        options,
        batches=2,
        checkpoint=str(tmp_path / "checkpoint"),
    )

    assert "Enough" in outcome.spark_says, outcome.spark_says
    assert [(report.batch_id, report.resumed) for report in outcome.reports] == [(1, True), (2, False)]
    # Batch 0 was in the earlier version's broker.
    found = Counter(int(message.value()) for message in read_topic(options["topic"]))
    assert found == Counter(range(10, 30))
