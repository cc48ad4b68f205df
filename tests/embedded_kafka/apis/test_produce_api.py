"""Produce: who may write, what is refused as a whole, and that a refusal leaves the log alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_kafka.node import Node
from embedded_kafka.wire.server import FetchRequest
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from tests.embedded_kafka.node_tools import ask, produce, produced, records, with_node

WHERE = TopicPartition("t", 0)
IDEMPOTENT = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}


def end_of(node: Node) -> int:
    return node.parts.topics.log(WHERE).end_offset


@pytest.mark.parametrize(
    ("denied", "transactional_id", "batch", "code"),
    [
        (
            ("WRITE", "TRANSACTIONAL_ID", "x"),
            "x",
            {**IDEMPOTENT, "transactional": True},
            Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (("WRITE", "TOPIC", "t"), None, {}, Code.TOPIC_AUTHORIZATION_FAILED),
        (("WRITE", "TOPIC", "t"), None, IDEMPOTENT, Code.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_without_the_right_nothing_is_written(
    tmp_path: Path,
    denied: tuple[str, str, str],
    transactional_id: str | None,
    batch: dict[str, int],
    code: Code,
) -> None:
    """Rule: seed 000 §5.5 steps 1-3: Write on the transactional id, on the cluster, on the topic."""

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        node.parts.authorizer.deny(*denied)
        answer = await ask(node, produce("t", records(**batch), transactional_id=transactional_id))
        assert produced(answer) == (code, -1)
        assert end_of(node) == 0

        node.parts.authorizer.allow_all()
        plain = {**batch, "transactional": False}
        assert produced(await ask(node, produce("t", records(**plain)))) == (0, 0)

    with_node(tmp_path, scenario)


def test_an_idempotent_producer_needs_no_more_than_the_right_to_write_to_the_topic(tmp_path: Path) -> None:
    """Rule: seed 000 §5.5 step 2: IdempotentWrite on the cluster; since Kafka 2.8 Write on any topic will do
    (KIP-679), so Kafka has no check of its own for it here: who lacks both is told of the topic (seen on 4.4.0).
    """

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        node.parts.authorizer.deny("IDEMPOTENT_WRITE", "CLUSTER", "kafka-cluster")
        assert produced(await ask(node, produce("t", records(**IDEMPOTENT)))) == (0, 0)

        node.parts.authorizer.deny("WRITE", "TOPIC", "*")
        again = {**IDEMPOTENT, "base_sequence": 1}
        assert produced(await ask(node, produce("t", records(**again)))) == (
            Code.TOPIC_AUTHORIZATION_FAILED,
            -1,
        )
        assert end_of(node) == 1

    with_node(tmp_path, scenario)


def test_a_partition_that_does_not_exist_is_named_as_such(tmp_path: Path) -> None:
    """Rule: seed 000 §5.5 step 3: the topic has to exist."""

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        for topic, partition in (("nowhere", 0), ("t", 1), ("t", -1)):
            answer = await ask(node, produce(topic, records(), partition=partition))
            assert produced(answer) == (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert node.parts.topics.get("nowhere") is None

    with_node(tmp_path, scenario)


def test_records_without_a_producer_need_no_right_of_producers(tmp_path: Path) -> None:
    """Rule: seed 000 §5.5 step 4: a batch without a producer id is written without these checks."""

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        node.parts.authorizer.deny("IDEMPOTENT_WRITE", "CLUSTER")
        assert [produced(await ask(node, produce("t", records(3)))) for _ in range(2)] == [(0, 0), (0, 3)]

        node.parts.authorizer.deny("WRITE", "TOPIC", "*")
        refusals = [produced(await ask(node, produce("t", records(**batch)))) for batch in (IDEMPOTENT, {})]
        assert refusals == [(Code.TOPIC_AUTHORIZATION_FAILED, -1)] * 2
        assert end_of(node) == 6

    with_node(tmp_path, scenario)


def test_the_brokers_own_topics_are_not_written_by_clients(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.ensure_internal("__transaction_state")
        answer = await ask(node, produce("__transaction_state", records()))
        assert produced(answer) == (Code.INVALID_TOPIC_EXCEPTION, -1)

    with_node(tmp_path, scenario)


def test_acks_of_zero_are_written_and_not_answered_and_two_are_refused(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        assert await ask(node, produce("t", records(), acks=0)) is None
        assert end_of(node) == 1
        assert produced(await ask(node, produce("t", records(), acks=2))) == (Code.INVALID_REQUIRED_ACKS, -1)
        assert end_of(node) == 1

    with_node(tmp_path, scenario)


@pytest.mark.parametrize(("version", "begins"), [(11, False), (12, True)])
def test_a_produce_begins_a_transaction_from_version_12_on(tmp_path: Path, version: int, begins: bool) -> None:
    """KIP-890: transaction version 2 adds partitions by the Produce itself; version 1 has to have added them."""

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        identity = await node.parts.transactions.init_producer_id("x", 60_000)
        batch = records(
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
            transactional=True,
        )
        answer = await ask(node, produce("t", batch, version=version, transactional_id="x"))
        if begins:
            assert produced(answer) == (0, 0)
            assert node.parts.transactions.describe("x").partitions == {WHERE}
        else:
            assert produced(answer) == (Code.TRANSACTION_ABORTABLE, -1)
            assert end_of(node) == 0

    with_node(tmp_path, scenario)


def test_a_newer_epoch_is_not_taken_into_the_open_transaction_of_the_older_one(tmp_path: Path) -> None:
    """Between the abort's decision and its marker the older transaction is open; the fenced owner's successor must
    wait.
    """

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        old = await node.parts.transactions.init_producer_id("x", 60_000)
        batch = {"producer_id": old.producer_id, "base_sequence": 0, "transactional": True}
        request = produce("t", records(**batch, producer_epoch=old.epoch), version=12, transactional_id="x")
        assert produced(await ask(node, request)) == (0, 0)
        newer = ProducerIdentity(old.producer_id, old.epoch + 1)

        request = produce("t", records(**batch, producer_epoch=newer.epoch), version=12, transactional_id="x")
        code, _ = produced(await ask(node, request))
        assert code == Code.INVALID_PRODUCER_EPOCH
        assert end_of(node) == 1

    with_node(tmp_path, scenario)


def test_a_read_that_waits_is_woken_by_the_write(tmp_path: Path) -> None:
    import asyncio

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        part = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
        topic = FetchRequest.FetchTopic(topic="t", partitions=[part])
        request = FetchRequest(version=11, max_wait_ms=60_000, min_bytes=1, max_bytes=10_000, topics=[topic])
        waiting = asyncio.ensure_future(ask(node, request))
        await asyncio.sleep(0)
        assert not waiting.done()

        await ask(node, produce("t", records(2)))
        answer = await asyncio.wait_for(waiting, 30)
        (read,) = answer.responses[0].partitions
        assert (read.error_code, read.high_watermark, len(read.records)) == (0, 2, len(records(2)))

    with_node(tmp_path, scenario)
