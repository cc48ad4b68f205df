"""A query that reads the topic that it writes to has no end: its first batch says so, and so does the doctor before
it.
"""

from __future__ import annotations

import json
import logging

import pytest

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.model import Seal, SealedPartition
from pyspark_kafka_eos.operations.checks import examine
from pyspark_kafka_eos.options import SinkOptions, SourceOptions
from pyspark_kafka_eos.spark.source.source_group import group_offsets, warn_of_a_loop
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.test_reader import reader_of, write
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

SAID = "what it writes is its next input"


def offsets_of(kafka: AnyKafka, topic: str) -> str:
    """A line of Spark's offset log after a batch of this source."""
    write(kafka, topic, 2)
    reader = reader_of(kafka, topic, startingOffsets="earliest")
    return json.dumps(reader.latestOffset(reader.initialOffset(), None))


def options_of(kafka: AnyKafka, **options: str) -> SinkOptions:
    """A sink's options."""
    return SinkOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options})


@pytest.mark.parametrize("named", ["topic", "dead.letter.topic", "a column"])
@pytest.mark.parametrize("group", ["default", ""])
def test_a_batch_says_once_that_the_query_reads_what_it_writes(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture, named: str, group: str
) -> None:
    both, out = topic(1), topic(1)
    line = offsets_of(kafka, both)
    given: dict[str, str] = {} if named == "a column" else {"topic": out, named: both}
    if group == "":
        given["offsets.group"] = ""
    options = options_of(kafka, pipeline=f"p-{both}", **given)
    cluster = Cluster.shared(options.client)
    where = both if named == "a column" else out
    seals = [
        Seal("p:0", 0, None, 0, partitions=(SealedPartition(where, 0, 0, 0, 1, 0),)),
        Seal("p:1", 1, None, 0),
    ]

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            warn_of_a_loop(cluster, options, (line,), group_offsets(cluster, options, (line,)), seals)

    (said,) = [each.getMessage() for each in caplog.records if SAID in each.getMessage()]
    assert f"reads the topic {both} and writes to it" in said


def test_a_topic_of_the_same_name_on_another_cluster_is_no_loop(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    options = options_of(kafka, pipeline=f"p-{name}", topic=name)
    cluster = Cluster.shared(options.client)
    line = f'{{"{name}": {{"0": 0}}, "version:1": {{}}, "cluster:another": {{}}}}'

    warn_of_a_loop(cluster, options, (line,), group_offsets(cluster, options, (line,)), ())

    assert SAID not in caplog.text


@pytest.mark.parametrize("way", ["subscribe", "subscribePattern", "assign"])
def test_the_doctor_warns_of_it(kafka: AnyKafka, topic: MakeTopic, way: str) -> None:
    both = topic(1)
    options = options_of(kafka, pipeline=f"p-{both}", topic=both)
    asked = {way: json.dumps({both: [0]}) if way == "assign" else both}
    source = SourceOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, **asked}, "stream")

    found = [each for each in examine(options, source) if SAID in each.seen]

    assert [(each.name, each.status, each.about) for each in found] == [("source", "warn", both)]
    assert not [
        each for each in examine(options_of(kafka, pipeline=f"p-{both}", topic=topic(1)), source) if SAID in each.seen
    ]
