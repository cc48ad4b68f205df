"""A batch in the ledger that takes more memory than any of this package stops no pipeline and no command.

Kafka takes it from whoever may write to the topic, under any key: 64 MB of zeros are 2 KB of zstd. On whatever broker
the tests are given. Source: an adversary's play of the shared ledger.
"""

from __future__ import annotations

import pytest

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.appending import one_record
from pyspark_kafka_eos.client.writing.delivery import stamper
from pyspark_kafka_eos.commit.ledger import topic as ledger_topic
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import MAX_OWN_BYTES, pack
from pyspark_kafka_eos.slot.plan import SharedPlan
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.cli.processes import kafka_eos
from tests.pyspark_kafka_eos.commit import stranger
from tests.pyspark_kafka_eos.commit.batch_child import driver_of, write_all
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import with_options
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def test_a_batch_that_fills_a_process_stops_neither_pipeline_nor_command(kafka: AnyKafka, topic: MakeTopic) -> None:
    ledger = topic(partitions=1, **{"cleanup.policy": "compact"})
    settings = with_options(settings_for(kafka), ledger_topic=ledger)
    pipeline = settings["options"]["pipeline"]
    assert run_child(settings).report["records"] == 1200
    batches = [
        pack(one_record(key, bytes(MAX_OWN_BYTES + 1)), transactional=True, compression="zstd", max_batch_bytes=None)
        for key in (pipeline.encode(), f"{pipeline}/part/0".encode(), b"other")
    ]
    his = stranger.begun(Cluster.shared(SinkOptions.parse(settings["options"]).client), f"evil-{ledger}")
    for batch in batches:
        his.send(TopicPartition(ledger, 0), 1, stamper(batch, his.identity))
    his.flush()
    his.commit()

    again = run_child(settings).report

    assert again["resumed"] is True
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED
    for words in (("transactions", "list", pipeline), ("verify",), ("ledger",)):
        ended = kafka_eos(kafka, *words, "-o", f"ledger.topic={ledger}", "-o", f"topic={settings['options']['topic']}")
        assert ended.code == 0, ended
        assert "Traceback" not in ended.err
    assert "that takes more memory than any that this package writes there" in ended.err


def test_a_decision_that_readers_would_take_for_one_goes_in_parts(
    kafka: AnyKafka, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fits a record of the topic, packed: the topic's limit is no bound on what is unpacked."""
    ledger = topic(partitions=1, **{"cleanup.policy": "compact"})
    settings = with_options(settings_for(kafka), ledger_topic=ledger)
    monkeypatch.setattr(ledger_topic, "_LARGEST_BYTES", 800)

    driver = driver_of(settings)
    assert driver.start(0) is None
    plan = driver.plan(0)
    assert isinstance(plan, SharedPlan)

    assert driver.commit(0, write_all(plan, settings), (), {}).records == 1200

    options = SinkOptions.parse(settings["options"])
    newest = Ledger(Cluster.shared(options.client), ledger, str(options.pipeline)).newest(settle=True)
    assert newest is not None and newest.records == 1200
    assert len(newest.to_bytes()) > 800
    assert sum(read_all(kafka, ledger).values()) > 4
