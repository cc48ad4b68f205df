"""A broker that was cut off knows less of a topic than a batch has read of it: its word costs the group no offsets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.spark.offset_json import Position, to_json
from pyspark_kafka_eos.spark.source import source_group
from pyspark_kafka_eos.spark.source.source_group import group_offsets
from tests.pyspark_kafka_eos.commit.fakes import World, send, skipping_clock
from tests.pyspark_kafka_eos.commit.node_kafka import CUT_OFF, NODE, NodeKafka

SOURCE = TopicPartition("source", 0)
WRITES = "pyspark_kafka_eos.spark.source.source_group"


@pytest.fixture
def world() -> Iterator[World]:
    with skipping_clock(), NodeKafka() as kafka:
        yield World(kafka)


def read(world: World, records: int, *, named: bool) -> list[str]:
    """What Spark logs of a batch that has read so many records. `named`: with the cluster and the topic's id, as
    `format("kafka_eos")` does; Spark's own source names neither.
    """
    writer = world.driver()
    writer.begin()
    for number in range(records):
        send(writer, SOURCE, f"{number}".encode())
    writer.flush()
    writer.commit()
    if not named:
        return [json.dumps(to_json(Position({SOURCE: records})))]
    log = LogMark(str(world.kafka.topic(SOURCE.topic).topic_id), 0)
    return [json.dumps(to_json(Position({SOURCE: records}, world.cluster.cluster_id(), {SOURCE: log})))]


def given(world: World, lines: list[str]) -> dict[TopicPartition, int]:
    """What the group gets, by a process that asks the broker which was cut off first."""
    world.kafka.brokers = [CUT_OFF, NODE]
    world.fresh_process()
    source_group._said.clear()
    options = SinkOptions.parse({"kafka.bootstrap.servers": "node:1", "pipeline": "p", "topic": "out"})
    return {where: each.offset for where, each in group_offsets(world.cluster, options, lines).items()}


@pytest.mark.parametrize("named", [True, False])
def test_a_source_topic_that_one_broker_lacks_keeps_its_offsets(
    world: World, caplog: pytest.LogCaptureFixture, named: bool
) -> None:
    lines = read(world, 3, named=named)
    world.kafka.lacking.add(SOURCE.topic)

    with caplog.at_level(logging.WARNING, WRITES):
        assert given(world, lines) == {SOURCE: 3}
    assert not caplog.records


def test_a_log_that_ends_before_the_offset_at_a_stale_leader_keeps_its_offsets(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.kafka.cut_off(SOURCE)
    lines = read(world, 3, named=False)

    with caplog.at_level(logging.WARNING, WRITES):
        assert given(world, lines) == {SOURCE: 3}
    assert not caplog.records


@pytest.mark.parametrize("named", [True, False])
def test_a_source_topic_that_no_broker_has_is_left_out_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture, named: bool
) -> None:
    lines = read(world, 3, named=named)
    world.kafka.delete(SOURCE.topic)

    with caplog.at_level(logging.WARNING, WRITES):
        assert given(world, lines) == {}
    assert "are not committed to the group" in caplog.text
