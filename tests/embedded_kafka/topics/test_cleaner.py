"""The broker's cleaner: what clients see of it, beside everything else that the broker does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.groups.offsets import NewOffset
from embedded_kafka.log import PartitionLog, encode_batch
from embedded_kafka.node import Node
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.settings.topic_configs import log_config
from embedded_kafka.topics.internal_topics import INTERNAL
from kafka_core.errors import OptionsError
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.log.compaction_tools import records
from tests.embedded_kafka.node_tools import ask, fetch, fetched, init, produce, produced, with_cluster, with_node

WITHIN_S = 30
OFTEN = BrokerConfig(cleaner_backoff_ms=20)
SMALL = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0.01"}
WHERE = TopicPartition("t", 0)


def batch(*pairs: tuple[bytes, bytes | None]) -> bytes:
    return bytes(encode_batch(pairs, timestamp_ms=int(time.time() * 1000)))


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


async def write(node: Node, *pairs: tuple[bytes, bytes | None]) -> None:
    assert produced(await ask(node, produce("t", batch(*pairs))))[0] == Code.NONE


def shown(log: PartitionLog, key: bytes) -> list[bytes | None]:
    return [value for _, found, value in records(log) if found == key]


@pytest.mark.slow
def test_a_compacted_topic_is_cleaned_while_it_is_read_and_written(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1, SMALL)
        log = node.parts.topics.log(WHERE)
        for number in range(200):
            await write(node, (b"a", b"%d" % number))
            part = fetched(await ask(node, fetch("t", {0: number})))[0]
            assert part.error_code == Code.NONE
            assert len(part.records)
        await until(lambda: len(shown(log, b"a")) <= 5)
        assert shown(log, b"a")[-1] == b"199"
        part = fetched(await ask(node, fetch("t", {0: 1})))[0]
        assert (part.error_code, part.high_watermark) == (Code.NONE, 200)
        assert len(part.records)

    with_node(tmp_path, scenario, OFTEN)


def test_time_that_is_moved_has_tombstones_taken_away(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        node = cluster.nodes[0]
        node.parts.topics.create("t", 1, SMALL)
        log = node.parts.topics.log(WHERE)
        await write(node, (b"a", b"1"))
        await write(node, (b"a", None))
        for _ in range(3):
            await write(node, (b"filler", bytes(200)))
        cluster.cleaner.wake()
        await until(lambda: shown(log, b"a") == [None])
        await write(node, (b"filler", bytes(200)))
        cluster.advance(86_400_000 + 1)
        await until(lambda: shown(log, b"a") == [])

    with_cluster(tmp_path, scenario)


def fill(node: Node, topic: str, count: int) -> None:
    """Make a topic with so many values of one key."""
    node.parts.topics.create(topic, 1, SMALL)
    log = node.parts.topics.log(TopicPartition(topic, 0))
    for number in range(count):
        log.append(batch((b"a", b"%d" % number)), now_ms=node.parts.clock.now_ms())


@pytest.mark.slow
def test_a_topic_that_is_deleted_while_it_is_cleaned_is_gone_and_the_cleaner_goes_on(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        node = cluster.nodes[0]
        fill(node, "gone", 300)
        fill(node, "t", 300)
        cluster.cleaner.wake()
        await until(lambda: bool(list(tmp_path.glob("*-0/cleaned"))))
        node.parts.topics.delete("gone")
        await until(lambda: len(shown(node.parts.topics.log(WHERE), b"a")) <= 5)
        assert not (tmp_path / "gone-0").exists()

    with_cluster(tmp_path, scenario)


def test_a_log_that_cannot_be_cleaned_does_not_keep_the_others_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        node = cluster.nodes[0]
        fill(node, "bad", 30)
        fill(node, "t", 30)
        first = tmp_path / "bad-0" / f"{0:020d}.log"
        content = bytearray(first.read_bytes())
        content[100] ^= 1
        first.write_bytes(content)
        cluster.cleaner.wake()
        await until(lambda: len(shown(node.parts.topics.log(WHERE), b"a")) <= 5)
        await until(lambda: "bad-0 cannot be cleaned" in caplog.text)
        cluster.cleaner.wake()
        assert first.read_bytes() == bytes(content)

    with_cluster(tmp_path, scenario)


@pytest.mark.slow
def test_the_coordinators_logs_are_compacted_and_a_restart_finds_what_was_there(tmp_path: Path) -> None:
    where = TopicPartition("t", 0)
    size = []

    async def commit(cluster: KafkaCluster) -> None:
        node = cluster.nodes[0]
        node.parts.topics.create("t", 1)
        for number in range(3_000):
            await node.parts.groups.commit_offsets("g", [NewOffset(where, number)])
            await ask(node, init("id"))
        logs = [log for topic, log in node.parts.topics.opened() if topic.topic in INTERNAL]
        size.append(sum(log.size_bytes for log in logs))
        assert size[0] > 600_000
        cluster.cleaner.wake()
        await until(lambda: sum(log.size_bytes for log in logs) < 1_000)

    async def find(node: Node) -> None:
        found = await node.parts.groups.fetch_offsets("g", [where], require_stable=True)
        assert found[where].offset == 2_999
        assert (await ask(node, init("id"))).producer_epoch == 3_000

    with_cluster(tmp_path, commit)
    with_node(tmp_path, find)


def test_the_settings_of_the_cleaner_have_kafkas_names(tmp_path: Path) -> None:
    settings = {
        "log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0.01", "log.roll.ms": "100",
        "log.cleaner.delete.retention.ms": "5", "log.cleaner.min.compaction.lag.ms": "0",
        "log.cleaner.max.compaction.lag.ms": "1000",
    }  # fmt: skip
    with EmbeddedKafka(in_process=True, config=settings):
        pass
    with (
        pytest.raises(OptionsError, match="between 0 and 1"),
        EmbeddedKafka(in_process=True, config={"log.cleaner.min.cleanable.ratio": "2"}),
    ):
        pass


def test_a_compacted_topic_rolls_at_the_latest_after_its_longest_lag() -> None:
    base = BrokerConfig().log
    lagging = {"cleanup.policy": "compact", "max.compaction.lag.ms": "1000", "segment.ms": "5000"}
    assert log_config(lagging, base).segment_ms == 1000
    assert log_config({**lagging, "cleanup.policy": "delete"}, base).segment_ms == 5000
    assert log_config({"cleanup.policy": "compact,delete"}, base).retention_ms == base.retention_ms
