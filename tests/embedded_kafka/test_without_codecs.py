"""A broker whose Python has neither pyarrow nor numpy: what needs a codec is refused in words, and no connection is
closed for it.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import sys
import time
from pathlib import Path

import pytest

from embedded_kafka.log import encode_batch
from embedded_kafka.log.records import HEADER_BYTES, framed, own_header
from embedded_kafka.node import Node
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.wire.server import (
    AlterConfigsRequest,
    CreateTopicsRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    Message,
)
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.log import compaction_tools
from tests.embedded_kafka.node_tools import ask, fetch, fetched, produce, produced, with_cluster, with_node

_GZIP = 1
_TOPIC, _SET = 2, 0
SMALL = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture(autouse=True)
def _no_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka_core.compression", None)


def packed(key: bytes = b"k", value: bytes = b"value") -> bytes:
    plain = bytes(encode_batch([(key, value)], timestamp_ms=int(time.time() * 1000)))
    header = own_header(memoryview(plain))
    return bytes(framed(header._replace(attributes=header.attributes | _GZIP), gzip.compress(plain[HEADER_BYTES:])))


def create(name: str, **configs: str) -> Message:
    each = CreateTopicsRequest.CreatableTopic
    settings = [each.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = each(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=settings)
    return CreateTopicsRequest(version=5, topics=[topic], timeout_ms=1_000, validate_only=False)


def alter(value: str) -> list[Message]:
    """compression.type of the topic t, by either API."""
    new, old = IncrementalAlterConfigsRequest.AlterConfigsResource, AlterConfigsRequest.AlterConfigsResource
    return [
        IncrementalAlterConfigsRequest(
            version=1, validate_only=False,
            resources=[new(resource_type=_TOPIC, resource_name="t", configs=[
                new.AlterableConfig(name="compression.type", config_operation=_SET, value=value)])],
        ),
        AlterConfigsRequest(
            version=1, validate_only=False,
            resources=[old(resource_type=_TOPIC, resource_name="t", configs=[
                old.AlterableConfig(name="compression.type", value=value)])],
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_topic_whose_codec_the_broker_lacks_is_refused_in_words_that_name_pyarrow(tmp_path: Path, codec: str) -> None:
    async def scenario(node: Node) -> None:
        (refused,) = (await ask(node, create("u", compression_type=codec))).topics
        assert refused.error_code == Code.INVALID_CONFIG
        assert f"compression.type={codec} needs pyarrow" in refused.error_message
        node.parts.topics.create("t", 1)
        for request in alter(codec):
            (answer,) = (await ask(node, request)).responses
            assert answer.error_code == Code.INVALID_CONFIG
            assert "pyarrow" in answer.error_message
        assert dict(node.parts.topics.get("t").configs) == {}  # type: ignore[union-attr]
        for request in (*alter("uncompressed"), *alter("producer")):
            (answer,) = (await ask(node, request)).responses
            assert answer.error_code == Code.NONE

    with_node(tmp_path, scenario)


@pytest.mark.parametrize(
    "configs",
    [
        {"compression.type": "uncompressed"},
        {"cleanup.policy": "compact"},
        {"message.timestamp.before.max.ms": "3600000"},
    ],
    ids=str,
)
def test_a_batch_that_would_have_to_be_unpacked_is_answered(tmp_path: Path, configs: dict[str, str]) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1, configs)
        (topic,) = (await ask(node, produce("t", packed()))).responses
        (part,) = topic.partition_responses
        assert part.error_code == Code.UNSUPPORTED_COMPRESSION_TYPE
        assert "needs pyarrow and numpy" in part.error_message
        plain = bytes(encode_batch([(b"k", b"v")], timestamp_ms=int(time.time() * 1000)))
        assert produced(await ask(node, produce("t", plain))) == (Code.NONE, 0)

    with_node(tmp_path, scenario)


def test_a_topic_of_a_fuller_python_takes_no_batch_of_another_codec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def made(node: Node) -> None:
        node.parts.topics.create("t", 1, {"compression.type": "zstd"})

    async def scenario(node: Node) -> None:
        plain = bytes(encode_batch([(b"k", b"v")], timestamp_ms=int(time.time() * 1000)))
        for batch in (packed(), plain):
            assert produced(await ask(node, produce("t", batch)))[0] == Code.UNSUPPORTED_COMPRESSION_TYPE

    with monkeypatch.context() as fuller:
        fuller.delitem(sys.modules, "kafka_core.compression")
        with_node(tmp_path, made)
    with_node(tmp_path, scenario)


def test_compressed_batches_are_kept_and_read_as_they_came_and_an_offset_by_time_is_refused(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        assert produced(await ask(node, produce("t", packed()))) == (Code.NONE, 0)
        part = fetched(await ask(node, fetch("t", {0: 0})))[0]
        assert (part.error_code, len(part.records)) == (Code.NONE, len(packed()))

        each = ListOffsetsRequest.ListOffsetsTopic
        asked = each.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=1)
        request = ListOffsetsRequest(
            version=5, replica_id=-1, isolation_level=0, topics=[each(name="t", partitions=[asked])]
        )
        (topic,) = (await ask(node, request)).topics
        assert topic.partitions[0].error_code == Code.UNSUPPORTED_COMPRESSION_TYPE

    with_node(tmp_path, scenario)


def test_the_cleaner_passes_over_a_log_that_it_cannot_unpack_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig(cleaner_backoff_ms=10)

    async def scenario(cluster: KafkaCluster) -> None:
        node = cluster.nodes[0]
        # Compacted from now on only: a compacted topic would not have taken these.
        for name in ("packed", "plain"):
            node.parts.topics.create(name, 1, {"segment.bytes": "300"})
        for number in range(20):
            await ask(node, produce("packed", packed(value=b"%d" % number)))
            plain = bytes(encode_batch([(b"k", b"%d" % number)], timestamp_ms=int(time.time() * 1000)))
            await ask(node, produce("plain", plain))
        log = node.parts.topics.log(TopicPartition("plain", 0))
        for name in ("packed", "plain"):
            node.parts.topics.configure(name, SMALL)
        cluster.cleaner.wake()
        deadline = time.monotonic() + 30
        while len(compaction_tools.records(log)) == 20 or "packed-0" not in caplog.text:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    with caplog.at_level(logging.WARNING):
        with_cluster(tmp_path, scenario, config)
    said = [record for record in caplog.records if "cannot be cleaned" in record.message]
    assert len(said) == 1
    assert said[0].exc_info is None
    assert "packed-0 cannot be cleaned: UNSUPPORTED_COMPRESSION_TYPE: unpacking" in said[0].message
