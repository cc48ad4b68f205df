"""Kafka's DumpLogSegments reads the broker's files: batches, markers, and the two internal topics."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.chaos.history import EntryKind
from tests.chaos.log_dump import parse, segment_files
from tests.parity.brokers import Broker
from tests.parity.clients import JAVA
from tests.parity.java import java_tool
from tests.parity.judge import WAIT_S, new_name, new_topic, read, wait_until
from tests.support.brokers import settle

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 1_000
# `key` and `payload` as JSON at the end of a line, since Kafka 4.0.
RECORD = re.compile(r'key: (\{"type":.*?\}\}) payload: (<DELETE>|\{.*\})$', re.MULTILINE)
# Before Kafka 4.4 the tool prints the number in the record (4 and 5).
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"


def dumped(files: list[Path], *arguments: str) -> str:
    """What the tool says of the files; it fails at what it cannot read, and says so of a wrong checksum."""
    names = ",".join(map(str, files))
    said = java_tool("org.apache.kafka.tools.DumpLogSegments", "--files", names, *arguments)
    assert "isvalid: false" not in said
    return said


def records_of(
    broker: Broker, topic: str, decoder: str
) -> Iterator[tuple[dict[str, object], dict[str, object] | None]]:
    """Key and value (None: a tombstone) of every record of an internal topic, as the tool decodes them."""
    files = [path for path in segment_files(broker.log_dir, [topic]) if path.stat().st_size]
    for key, value in RECORD.findall(dumped(files, decoder)):
        yield json.loads(key)["data"], None if value == "<DELETE>" else json.loads(value)["data"]


@pytest.mark.shows(JAVA, "`DumpLogSegments` on data: every codec, several segments, markers")
def test_the_tool_reads_every_segment_of_a_partition_with_all_codecs_and_markers(broker: Broker) -> None:
    # The smallest segment that Kafka 4 allows.
    topic = new_topic(broker, configs={"segment.bytes": str(1 << 20)})
    rng = random.Random(1)
    for codec in CODECS:
        settings = {"compression.type": codec, "transactional.id": new_name("codec"), "linger.ms": 5}
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for _ in range(RECORDS):
            # Hexadecimal: half of it can be compressed away.
            producer.produce(topic, rng.randbytes(500).hex(), key=codec)
        producer.commit_transaction(WAIT_S)
    settle(broker.bootstrap_servers, topic)

    files = segment_files(broker.log_dir, [topic])
    assert len(files) > 2
    said = dumped(files, "--print-data-log")
    assert set(re.findall(r"compresscodec: (\w+)", said)) == set(CODECS)
    entries = parse(said)
    assert [entry.offset for entry in entries] == list(range(len(CODECS) * (RECORDS + 1)))
    assert [entry.kind for entry in entries if entry.kind is not EntryKind.DATA] == [EntryKind.COMMIT] * len(CODECS)
    data = [(entry.offset, entry.record) for entry in entries if entry.kind is EntryKind.DATA]
    assert data == [(each.offset, (each.value or b"").decode()) for each in read(broker, topic)]


@pytest.mark.shows(JAVA, "`DumpLogSegments` on `__transaction_state` and `__consumer_offsets`")
def test_the_tool_decodes_what_the_coordinators_wrote(broker: Broker) -> None:
    topic, group, transactional_id = new_topic(broker), new_name("group"), new_name("dumped")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(WAIT_S)
    with closing(Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})) as consumer:
        for offset, commit in ((7, True), (8, False)):
            producer.begin_transaction()
            producer.produce(topic, b"value")
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), WAIT_S
            )
            if commit:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
            settle(broker.bootstrap_servers, topic)
        # The group's own partition is settled when a committed offset can be had.
        [committed] = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
        assert committed.offset == 7

    def states() -> list[dict[str, object]]:
        log = records_of(broker, "__transaction_state", "--transaction-log-decoder")
        return [value for key, value in log if key == {"transactionalId": transactional_id} and value is not None]

    # The last state is written after the markers, which is all that could be waited for.
    wait_until(lambda: states()[-1]["transactionStatus"] == COMPLETE_ABORT, "the abort is complete")
    ended = [value["transactionStatus"] for value in states() if value["transactionPartitions"] == []]
    assert ended == [COMPLETE_COMMIT, COMPLETE_ABORT]
    named = [json.dumps(value["transactionPartitions"]) for value in states()]
    assert any(topic in names and "__consumer_offsets" in names for names in named)

    log = records_of(broker, "__consumer_offsets", "--offsets-decoder")
    where = {"group": group, "topic": topic, "partition": 0}
    found = [value["offset"] for key, value in log if key == where and value is not None]
    assert found == [7, 8]
